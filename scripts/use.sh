#!/bin/sh
# Let plain `docker compose up` serve one rig: use.sh [RIG]. Without RIG the card of this host decides.
# Writes COMPOSE_PROFILES into .env and leaves its other lines as they are.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

fail() { echo "error: $*" >&2; exit 1; }

rigs_for_card() { # CARD, as nvidia-smi names it
    for file in local-*/tpu.env; do
        wanted=$(sed -n 's/^GPU_NAME=//p' "$file" | tr _ ' ')
        [ -n "$wanted" ] || continue
        case " $1 " in *" $wanted "*) dirname "$file" ;; esac # whole words: an L40S is no L4
    done
}

rig=${1:-}
if [ -z "$rig" ]; then
    all=$(find . -maxdepth 2 -name tpu.env -path './local-*' | sort | cut -d / -f 2 | tr '\n' ' ')
    command -v nvidia-smi >/dev/null ||
        fail "no NVIDIA card found (nvidia-smi is missing); name a rig: make use RIG=... Rigs: $all"
    cards=$(nvidia-smi --query-gpu=name --format=csv,noheader) ||
        fail "nvidia-smi failed: $cards; mend the driver, or name a rig: make use RIG=..."
    found=$(echo "$cards" | while read -r card; do rigs_for_card "$card"; done | sort -u)
    [ -n "$found" ] || fail "no rig is for this card ($cards); name one: make use RIG=... Rigs: $all"
    rig=$(echo "$found" | head -n 1)
    others=$(echo "$found" | tail -n +2 | tr '\n' ' ')
    [ -z "$others" ] || echo "also for this card: $others(make use RIG=... picks one)"
fi
[ -f "$rig/tpu.env" ] || fail "$rig is not a rig: it has no tpu.env"
grep -q "^  $rig:" compose.yaml || fail "compose.yaml has no service $rig"

touch .env
grep -v '^COMPOSE_PROFILES=' .env >.env.part || :
echo "COMPOSE_PROFILES=$rig" >>.env.part
mv .env.part .env
echo "docker compose up now serves $rig"
