#!/bin/sh
# Run one of the scripts in the rig's image: in_docker.sh SCRIPT.py [ARGUMENT ...]
# Called by common/rig.mk in the rig's folder when RUNNER=docker. The host needs only Docker, and the
# engine may be on another machine (DOCKER_CONTEXT, DOCKER_HOST): nothing of this folder is mounted,
# run directories and files that settings name are copied in, runs are brought home. What a verb needs
# stands in scripts/lists. From the environment:
#   IMAGE=NAME         run this image as it is, instead of building the rig's own
#   OTHER_IMAGE=NAME   the same for the other build of make builds
#   MODELS_DIR=FOLDER  models in a folder of the Docker host instead of a volume
#   GPU_FLAGS=...      how a container gets the card (default --gpus all; CDI: --device nvidia.com/gpu=all)
#   CA_BUNDLE, LLAMA_SRC, BASE_IMAGE: see image.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
rig=$(basename "$PWD")
verb=$(basename "$1" .py)
shift
if [ "$verb" = measure ]; then # measure.py RIG KIND
    verb=$2
    set -- "$1"
fi
project=${COMPOSE_PROJECT_NAME:-gemma-rigs}
serving=$project-$rig-serve
home=/opt/gemma-rigs/$rig
inside=$home/benchmarks/runs
runs=$root/$rig/benchmarks/runs
file=$root/$rig/tpu.env
scratch=

fail() { echo "error: $*" >&2; exit 1; }

needs() { grep "^$verb|" "$root/scripts/lists" | cut -d '|' -f 3 | tr , '\n' | grep -qx "$1"; }

settings_of() { # KIND, a pattern: the names of such settings
    sed -n "s/^\([A-Z0-9_]*\)|setting|$1|.*/\1/p" "$root/scripts/lists"
}

# shellcheck source=scripts/tpu_env.sh
. "$root/scripts/tpu_env.sh"
# shellcheck source=scripts/cards.sh
. "$root/scripts/cards.sh"
# shellcheck source=scripts/docker_copy.sh
. "$root/scripts/docker_copy.sh"

for_card() { [ "$(in_force BACKEND)" = cuda ] && needs card; }

# The card is asked for first: without it nothing is built and nothing fetched. Another Docker host
# may have one; Windows gives it to Linux as /dev/dxg.
check_card() {
    for_card || return 0
    [ -z "${DOCKER_CONTEXT:-}${DOCKER_HOST:-}${GPU_FLAGS:-}" ] || return 0
    [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ] || fail "$rig is for the card" \
        "$(in_force GPU_NAME), but no NVIDIA card can be used on this host;" \
        "run it on the host with that card (DOCKER_CONTEXT=... make $verb), or try make demo here."
    check_driver "$(in_force CUDA_VERSION)"
}

check_docker() {
    command -v docker >/dev/null || fail "Docker is not installed; install Docker Engine" \
        "(docs.docker.com), or use RUNNER=host"
    if ! reason=$(docker version --format '{{.Server.Version}}' 2>&1); then
        case $reason in
        *"permission denied"*) fail "no permission on Docker's socket;" \
            "sudo usermod -aG docker \$USER, then log in again" ;;
        *) fail "Docker's engine does not answer ($(echo "$reason" | tail -n 1));" \
            "sudo systemctl start docker, or check DOCKER_CONTEXT" ;;
        esac
    fi
    docker buildx version >/dev/null 2>&1 || fail "Docker has no buildx; install docker-buildx-plugin" \
        "(on Debian: docker-buildx)"
    docker compose version >/dev/null 2>&1 || fail "Docker has no compose; install" \
        "docker-compose-plugin (on Debian: docker-compose)"
    for_card || { GPU_FLAGS=; return 0; }
    [ -z "${GPU_FLAGS:-}" ] || return 0
    uuid=$(card_uuid "$(in_force GPU_NAME)")
    GPU_FLAGS="--gpus ${uuid:+device=}${uuid:-all}"
    docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"' || fail "Docker has no nvidia runtime;" \
        "install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker &&" \
        "sudo systemctl restart docker; with CDI give GPU_FLAGS='--device nvidia.com/gpu=all'"
}

own_git() {
    env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE -u GIT_COMMON_DIR -u GIT_OBJECT_DIRECTORY \
        -u GIT_ALTERNATE_OBJECT_DIRECTORIES -u GIT_NAMESPACE -u GIT_PREFIX git -C "$root" "$@"
}

# Two measurements on one host would disturb each other: this host's lock (common/host/alone.py) is
# held until this script ends, and no other container may measure.
alone() {
    for other in $(docker ps --quiet --filter label=gemma-rigs.run); do
        if docker top "$other" -eo args 2>/dev/null |
            grep -qE 'scripts/(measure|tune|bench_[a-z]*)\.py'; then
            fail "the container $(docker inspect --format '{{.Name}}' "$other") is measuring;" \
                "wait for it, or end it; two would disturb each other"
        fi
    done
    [ -z "${DOCKER_CONTEXT:-}${DOCKER_HOST:-}" ] || return 0 # it is another host's
    command -v flock >/dev/null || return 0
    lock=${GEMMA_RIGS_LOCK:-/tmp/gemma-rigs-measuring.lock}
    [ -e "$lock" ] || (umask 0; set -C; : >"$lock") 2>/dev/null || :
    [ -f "$lock" ] && [ ! -L "$lock" ] && [ -r "$lock" ] || fail "the lock of this host's measurements," \
        "$lock, cannot be used; delete it, or name another file with GEMMA_RIGS_LOCK=..."
    exec 9<"$lock" # without the wish to make it, which /tmp refuses for another user's file
    flock -n 9 || fail "something is being measured on this host ($lock says what);" \
        "wait for it, or end it; two would disturb each other"
    echo "{\"what\": \"$verb of $rig\", \"pid\": $$, \"started\": \"$(date -Iseconds)\"}" 2>/dev/null >"$lock" || :
}

# What the run directories need to know of the tree they were made from.
harness() {
    # Only the project's own repository counts, not one around it, and none that a variable names.
    top=$(own_git rev-parse --show-toplevel 2>/dev/null) || return 0
    [ "$top" = "$(cd "$root" && pwd -P)" ] || return 0
    commit=$(own_git rev-parse HEAD 2>/dev/null) || return 0
    changes=$(own_git status --porcelain -uall -- . ':(exclude,glob)**/benchmarks/**' \
        ':(exclude,glob)local-*/**' ':(exclude,glob)README.md' ':(exclude,glob)compose.yaml') || return 0
    dirty=0
    [ -z "$changes" ] || dirty=1
    echo "HARNESS_COMMIT=$commit"
    echo "HARNESS_DIRTY=$dirty"
}

digest() { docker image inspect --format "$1={{.Id}}" "$2"; } # KEY IMAGE: a line for the environment

# Settings that a user gave: they go in as they are, so that they beat tpu.env there too.
settings() {
    for key in $(settings_of '.*'); do
        if printenv "$key" >/dev/null; then echo "$key"; fi
    done
}

# Only what may fetch is told the token, and by a file: a variable would stand in the container's
# configuration, which docker inspect shows.
give_token() {
    needs fetches && [ -n "${HF_TOKEN:-}" ] || return 0
    mkdir -m 700 "$scratch/secrets"
    (umask 077 && printf '%s' "$HF_TOKEN" >"$scratch/secrets/hf_token")
    copy_in "$scratch/secrets" /run/secrets hf_token
}

clean_up() { # what is half made
    rm -rf "$scratch"
    [ -z "${half_made:-}" ] || docker rm --force --volumes "$container" >/dev/null 2>&1 || :
}

# All that can be wrong on this host is found here, before anything is built.
prepare() {
    scratch=$(mktemp -d)
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    case ${MODELS_DIR:-} in # a quoted ~ stays one; a relative name would be a volume's
    '') models=${project}_models ;;
    \~ | \~/*) models=$HOME${MODELS_DIR#\~} ;;
    /*) models=$MODELS_DIR ;;
    *) fail "MODELS_DIR=$MODELS_DIR: expected a path from / or ~/" ;;
    esac
    files
    if needs RUN && [ -n "${RUN:-}" ]; then
        RUN=$(own_run "$RUN")
        export RUN
    fi
    ready=ready
    if needs both; then ready=both; fi
    image=$("$root/scripts/image.sh" "$rig" "$ready")
}

create() { # [FLAG ...] IMAGE [ARGUMENT ...]: the container `container`
    half_made=1
    # A bare name takes its value from here.
    { settings; harness; digest IMAGE_DIGEST "$image"; } >"$scratch/environment"
    if needs both; then
        {
            digest RIG_IMAGE_DIGEST "$("$root/scripts/image.sh" "$rig" name)"
            digest OTHER_IMAGE_DIGEST "$("$root/scripts/image.sh" "$rig" name other)"
        } >>"$scratch/environment"
    fi
    terminal=
    if [ -t 1 ]; then terminal=--tty; fi
    # shellcheck disable=SC2086 # flags, one word each
    docker create $terminal $GPU_FLAGS --name "$container" --init --label "gemma-rigs.run=$project/$rig" \
        --cap-drop ALL --security-opt no-new-privileges --pids-limit 512 --env-file "$scratch/environment" \
        --volume "$models:/models" --volume "${project}_kernels:/kernels" \
        --volume "$inside" --workdir "$home" "$@" >/dev/null
    # An image run as it is (IMAGE) may hold an older tpu.env.
    copy_in "$PWD" "$home" tpu.env
    # What is there already: run directories get the next free name, RESUME=1 finds its run.
    if [ -d "$runs" ]; then copy_in "$runs" "$inside" .; fi
    if [ -d "$scratch/given" ]; then copy_in "$scratch" /tmp given --dereference; fi
    if [ -n "${CA_BUNDLE:-}" ]; then docker cp -q --follow-link "$CA_BUNDLE" "$container:/run/secrets/ca_bundle"; fi
    give_token
    half_made=
    trap - INT TERM HUP
}

run() { # start the container, pass on signals; its exit code
    # In a session of its own, or Docker's client would pass on a Ctrl-C that we pass on too.
    setsid docker start --attach "$container" &
    client=$!
    trap 'docker kill --signal INT "$container" >/dev/null 2>&1 || :' INT
    trap 'docker kill --signal TERM "$container" >/dev/null 2>&1 || :' TERM HUP
    while kill -0 "$client" 2>/dev/null; do wait "$client" || :; done
    trap '' INT TERM HUP # bringing home is not interrupted
    if [ "$(docker inspect --format '{{.State.Status}}' "$container")" = created ]; then
        docker rm --volumes "$container" >/dev/null
        fail "the container could not be started; Docker's reason is above"
    fi
    code=$(docker wait "$container")
}

# For an MCP client: standard input and output are the protocol's. One container per rig stays while
# sessions come and go, so that the next session finds the server and the jobs of this one.
mcp_server() {
    container=$project-$rig-mcp
    if [ -n "$(docker ps --quiet --filter "name=^$container\$")" ]; then
        copy_home "$container"
    else
        if docker inspect "$container" >/dev/null 2>&1; then bring_home "$container"; fi
        prepare
        port=$(in_force PORT)
        # Inside it listens on every address; outside only where HOST says.
        create --publish "$(published):$port:$port" --env HOST=0.0.0.0 --entrypoint sleep "$image" infinity
        docker start "$container" >/dev/null
    fi
    code=0
    docker exec --interactive "$container" /opt/venv/bin/python /opt/gemma-rigs/scripts/entry.py \
        mcp_server "$rig" <&3 || code=$?
    trap '' INT TERM HUP # bringing home is not interrupted
    copy_home "$container"
    # Two processes are its own: with no other, nobody needs it.
    if [ "$(docker top "$container" -eo pid | wc -l)" -le 3 ]; then
        docker rm --force --volumes "$container" >/dev/null
    fi
    exit "$code"
}

serve() {
    docker rm --force "$serving" >/dev/null 2>&1 || :
    set -- run --rm --service-ports --name "$serving"
    # HOST is where compose publishes the port, not an address inside the container. The token is for
    # the service that brings the files; compose.yaml hands it on.
    for setting in $(settings | grep -vxE 'HOST|HF_TOKEN'); do set -- "$@" --env "$setting"; done
    PORT=$(in_force PORT) # compose knows no tpu.env, only what compose.yaml was made of
    export IMAGE="$image" PORT
    if [ -n "${uuid:-}" ]; then export GPU_UUID="$uuid"; fi
    exec docker compose --project-directory "$root" --profile "$rig" "$@" "$rig"
}

served() {
    [ -n "$(docker ps --quiet --filter "name=^$serving\$")" ] && return
    echo "$rig is not being served by make serve"
    return 1
}

check_settings
check_card
check_docker
case $verb in
engine)
    exec "$root/scripts/image.sh" "$rig"
    ;;
stop)
    served || exit 0
    docker stop "$serving" >/dev/null
    echo "stopped $serving"
    ;;
status)
    served || exit 3
    exec docker exec "$serving" /opt/venv/bin/python scripts/entry.py status "$rig"
    ;;
serve)
    image=$("$root/scripts/image.sh" "$rig" ready)
    serve
    ;;
mcp_server)
    exec 3<&0 </dev/null # nobody but the server reads what the client says
    mcp_server
    ;;
*)
    if grep -q "^$verb|measure|" "$root/scripts/lists" || [ "$verb${RUN:-}" = tune ]; then alone; fi
    collect_left
    image=$("$root/scripts/image.sh" "$rig" name)
    if [ "$verb" = doctor ] && ! docker image inspect "$image" >/dev/null 2>&1; then
        echo "Docker can run this rig; its image is not built yet: make image RIG=$rig (minutes, once)"
        exit
    fi
    if needs run; then
        folder=$(own_run "$1")
        set -- "$folder"
    fi
    prepare
    container=$project-$rig-$verb-$$
    before=$(cksum <"$PWD/tpu.env")
    create "$image" "$verb" "$@"
    run
    # After an error too: what was pinned before it stays.
    if [ "$code" -le 1 ] && writes; then docker cp -q "$container:$home/tpu.env" "$scratch/tpu.env"; fi
    bring_home "$container"
    if [ -e "$scratch/tpu.env" ]; then take_settings; fi
    exit "$code"
    ;;
esac
