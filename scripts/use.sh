#!/bin/sh
# Let plain `docker compose up` serve one rig: use.sh [RIG]. Without RIG the card of this host decides.
# Writes COMPOSE_PROFILES and GPU_UUID into .env and leaves its other lines as they are.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

fail() { echo "error: $*" >&2; exit 1; }

# shellcheck source=scripts/tpu_env.sh
. "$root/scripts/tpu_env.sh"
# shellcheck source=scripts/cards.sh
. "$root/scripts/cards.sh"

rigs_for_card() { # NAME, as nvidia-smi has it
    for file in local-*/tpu.env; do
        wanted=$(stated GPU_NAME)
        if [ -n "$wanted" ] && is_card "$wanted" "$1"; then dirname "$file"; fi
    done | tr '\n' ' '
}

# The rig of the one kind of card that is here; more than one kind is the user's to choose from.
rig_of_card() {
    all=$(find . -maxdepth 2 -name tpu.env -path './local-*' | sort | cut -d / -f 2 | tr '\n' ' ')
    command -v nvidia-smi >/dev/null ||
        fail "no NVIDIA card found (nvidia-smi is missing); name a rig: make use RIG=... Rigs: $all"
    cards=$(cards_here) || fail "nvidia-smi failed: $cards; mend the driver, or name a rig: make use RIG=..."
    names=$(echo "$cards" | cut -d , -f 2- | sed 's/^ *//' | sort -u)
    found=$(echo "$names" | while read -r name; do rigs_for_card "$name" | grep . || :; done | sort -u)
    kinds=$(echo "$found" | grep -c . || :)
    [ "$kinds" != 0 ] ||
        fail "no rig is for this card ($(echo "$names" | tr '\n' ',' | sed 's/,$//')); name one: make use RIG=... Rigs: $all"
    [ "$kinds" = 1 ] || fail "cards of $kinds kinds are here; name a rig: make use RIG=... Rigs:" \
        "$(echo "$found" | tr '\n' ';' | sed 's/ ;$//; s/ ;/; /g')"
    rig=${found%% *}
    others=${found#"$rig "}
    [ -z "$others" ] || echo "also for this card: $others(make use RIG=... picks one)"
}

# What docker compose takes from compose.yaml alone must be what tpu.env says.
check_compose() {
    grep -q "^  $rig:" compose.yaml || fail "compose.yaml has no service $rig"
    made=$(sed -n "/^  $rig:/,/^  [a-z].*-files:/p" compose.yaml)
    for said in "PORT:-$(settings_lines | sed -n 's/^PORT=//p')}" \
        "IMAGE:-$(env -i PATH="$PATH" "$root/scripts/image.sh" "$rig" name)}"; do
        case $made in *"$said"*) ;; *)
            fail "compose.yaml was made before $rig/tpu.env was changed (it lacks $said); run make compose" ;;
        esac
    done
}

# In place, so that a link stays a link, and a file with secrets as private as it is. Its other lines may
# hold any bytes.
write_env() {
    [ -e .env ] || true 2>/dev/null >>.env || fail ".env cannot be made; mend its folder's permissions, or its link"
    [ -r .env ] && [ -w .env ] || fail ".env cannot be read and written; mend its permissions"
    rm -f .env.part || fail ".env.part is in the way; delete it"
    set -C # a link that another made since then is not written to
    umask 077
    (
        LC_ALL=C grep -avE '^(COMPOSE_PROFILES|GPU_UUID)=' .env || [ $? = 1 ] || exit 1
        echo "COMPOSE_PROFILES=$rig"
        uuid=$(card_uuid "$(in_force GPU_NAME)")
        [ -z "$uuid" ] || echo "GPU_UUID=$uuid"
    ) >.env.part || fail ".env.part cannot be written; .env is as it was"
    set +C
    cat .env.part >.env || fail ".env cannot be written whole; what belongs there is in .env.part"
    rm .env.part
}

rig=${1:-}
rig=${rig%/}
[ -n "$rig" ] || rig_of_card
file=$rig/tpu.env
check_settings
check_compose
write_env
echo "docker compose up now serves $rig"
