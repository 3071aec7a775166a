# shellcheck shell=sh
# The NVIDIA cards of this host, for scripts that have no Python of ours.

cards_here() { # each card in a line: UUID, name
    nvidia-smi --query-gpu=uuid,name --format=csv,noheader
}

is_card() { # GPU_NAME NAME, as nvidia-smi has it: whole words, since an L40S is no L4
    wanted=$(echo "$1" | tr _ ' ')
    case " $2 " in *" $wanted "*) ;; *) return 1 ;; esac
}

# The UUID of the first card of that name, or of the one that CUDA_VISIBLE_DEVICES names; nothing where
# the cards cannot be told apart from here.
card_uuid() { # GPU_NAME
    case ${CUDA_VISIBLE_DEVICES:-} in
    GPU-*[!A-Za-z0-9-]*) ;;
    GPU-*) echo "$CUDA_VISIBLE_DEVICES"; return ;;
    esac
    [ -z "${DOCKER_CONTEXT:-}${DOCKER_HOST:-}" ] || return 0
    command -v nvidia-smi >/dev/null || return 0
    cards_here 2>/dev/null | while IFS=', ' read -r id name; do
        if is_card "$1" "$name"; then echo "$id"; break; fi
    done
}
