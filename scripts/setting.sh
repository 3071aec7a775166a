#!/bin/sh
# Say a setting of a rig: setting.sh FOLDER KEY. For common/rig.mk.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
rig=$1
file=$1/tpu.env
fail() { echo "error: $*" >&2; exit 1; }
# shellcheck source=scripts/tpu_env.sh
. "$root/scripts/tpu_env.sh"
check_settings
in_force "$2"
