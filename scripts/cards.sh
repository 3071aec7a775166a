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

# Before anything is built: the oldest driver that each CUDA runs on, as common/host/driver.py has it.
check_driver() { # CUDA_VERSION
    command -v nvidia-smi >/dev/null || return 0
    version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || return 0
    case $1 in 13.*) oldest=580 ;; 12.*) oldest=525.60.13 ;; *) return 0 ;; esac
    case $version in [0-9]*) ;; *) return 0 ;; esac
    first=$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n 1)
    [ "$first" = "$oldest" ] || fail "NVIDIA driver $version is too old for CUDA $1, which needs $oldest or newer;" \
        "update the driver"
}
