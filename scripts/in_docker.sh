#!/bin/sh
# Run one of the scripts in the rig's image: in_docker.sh SCRIPT.py [ARGUMENT ...]
# Called by common/rig.mk in the rig's folder when RUNNER=docker. The host needs only Docker, and the
# engine may be on another machine (DOCKER_CONTEXT, DOCKER_HOST): nothing of this folder is mounted,
# run directories are copied in and brought home. From the environment:
#   IMAGE=NAME         run this image as it is, instead of building the rig's own
#   MODELS_DIR=FOLDER  models in a folder of the Docker host instead of a volume
#   GPU_FLAGS=...      how a container gets the card (default --gpus all; CDI: --device nvidia.com/gpu=all)
#   CA_BUNDLE, LLAMA_SRC, CPU_BASE: see image.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
rig=$(basename "$PWD")
verb=$(basename "$1" .py)
shift
project=${COMPOSE_PROJECT_NAME:-gemma-rigs}
serving=$project-$rig-serve
inside=/opt/gemma-rigs/$rig/benchmarks/runs
runs=$root/$rig/benchmarks/runs

fail() { echo "error: $*" >&2; exit 1; }

# The card is asked for first: without it nothing is built and nothing fetched. Another Docker host
# may have one; Windows gives it to Linux as /dev/dxg.
check_card() {
    grep -q '^BACKEND=cuda' "$root/$rig/tpu.env" || return 0
    case $verb in show | draft | model | pin | files | report | map | engine | stop | status) return 0 ;; esac
    [ -z "${DOCKER_CONTEXT:-}${DOCKER_HOST:-}${GPU_FLAGS:-}" ] || return 0
    [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ] || fail "$rig is for the card" \
        "$(sed -n 's/^GPU_NAME=//p' "$root/$rig/tpu.env"), but no NVIDIA card can be used on this host;" \
        "run it on the host with that card (DOCKER_CONTEXT=... make $verb), or try make demo here."
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
    grep -q '^BACKEND=cuda' "$root/$rig/tpu.env" || { GPU_FLAGS=; return 0; }
    case $verb in show | draft | model | pin | files | report | map | engine | stop | status)
        GPU_FLAGS=; return 0 ;;
    esac
    [ -z "${GPU_FLAGS:-}" ] || return 0
    GPU_FLAGS="--gpus all"
    docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"' || fail "Docker has no nvidia runtime;" \
        "install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker &&" \
        "sudo systemctl restart docker; with CDI give GPU_FLAGS='--device nvidia.com/gpu=all'"
}

ready_image() {
    image=$("$root/scripts/image.sh" "$rig" name)
    if [ -n "${IMAGE:-}" ]; then
        docker image inspect "$image" >/dev/null 2>&1 || fail "IMAGE=$image is not on the Docker host"
        return
    fi
    if docker image inspect "$image" >/dev/null 2>&1; then
        "$root/scripts/image.sh" "$rig" quiet >/dev/null
    else
        echo "building the image $image (the first time: minutes)" >&2
        "$root/scripts/image.sh" "$rig" >&2
    fi
}

# Settings that a user gave: they go in as they are, so that they beat tpu.env there too.
settings() {
    keys=$(sed -n 's/^    \([a-z0-9_]*\): .* = _key(.*/\1/p' "$root/common/rig.py" | tr '[:lower:]' '[:upper:]')
    for key in $keys QUICK RESUME HF_TOKEN HF_ENDPOINT; do
        if printenv "$key" >/dev/null; then echo "$key"; fi
    done
}

# What the run directories need to know of the tree they were made from.
harness() {
    commit=$(git -C "$root" rev-parse HEAD 2>/dev/null) || return 0
    dirty=0
    [ -z "$(git -C "$root" status --porcelain -uall -- . ':(exclude,glob)*/benchmarks/**')" ] || dirty=1
    echo "HARNESS_COMMIT=$commit"
    echo "HARNESS_DIRTY=$dirty"
}

same_run() { # two folders are one run if they started at the same moment
    [ "$(grep -m 1 '"started"' "$1/manifest.json")" = "$(grep -m 1 '"started"' "$2/manifest.json")" ]
}

copy_home() { # CONTAINER: its new or changed run directories, owned by whoever calls
    incoming=$(mktemp -d)
    docker cp -q "$1:$inside/." "$incoming"
    for folder in "$incoming"/*/; do
        [ -f "$folder/manifest.json" ] || continue
        name=$(basename "$folder")
        target=$runs/$name
        number=2
        while [ -e "$target" ] && ! same_run "$folder" "$target"; do
            target=$runs/$name-$number
            number=$((number + 1))
        done
        if [ -e "$target" ] && diff -rq --exclude=logs --exclude=run.lock "$folder" "$target" >/dev/null; then
            continue
        fi
        mkdir -p "$target"
        cp -R "$folder." "$target"
        rm -f "$target/run.lock"
    done
    rm -rf "$incoming"
}

bring_home() { # CONTAINER that has ended
    copy_home "$1"
    docker rm --volumes "$1" >/dev/null
}

collect_left() { # from a make that was killed
    for left in $(docker ps --all --quiet --filter "label=gemma-rigs.run=$project/$rig" --filter status=exited); do
        echo "bringing home what an interrupted run left" >&2
        bring_home "$left"
    done
}

create() { # CONTAINER VERB [ARGUMENT ...]; more_flags: one word each
    name=$1
    shift
    environment=$(mktemp)
    # A bare name takes its value from here, so no token is written down.
    { settings; harness; docker image inspect --format 'IMAGE_DIGEST={{.Id}}' "$image"; } >"$environment"
    terminal=
    if [ -t 1 ]; then terminal=--tty; fi
    # shellcheck disable=SC2086 # flags, one word each
    docker create $terminal $GPU_FLAGS ${more_flags:-} --name "$name" --init --label "gemma-rigs.run=$project/$rig" \
        --cap-drop ALL --security-opt no-new-privileges --pids-limit 512 --env-file "$environment" \
        --volume "${MODELS_DIR:-${project}_models}:/models" --volume "${project}_kernels:/kernels" \
        --volume "$inside" --workdir "/opt/gemma-rigs/$rig" "$image" "$@" >/dev/null
    rm -f "$environment"
    # What is there already: run directories get the next free name, RESUME=1 finds its run.
    if [ -d "$runs" ]; then
        tar -C "$runs" --exclude=logs --exclude=run.lock --owner=10001 --group=10001 -cf - . |
            docker cp -q - "$name:$inside"
    fi
    if [ -n "${CA_BUNDLE:-}" ]; then docker cp -q --follow-link "$CA_BUNDLE" "$name:/run/secrets/ca_bundle"; fi
}

run() { # CONTAINER: start it, pass on signals; its exit code
    # In a session of its own, or Docker's client would pass on a Ctrl-C that we pass on too.
    setsid docker start --attach "$1" &
    client=$!
    trap 'docker kill --signal INT "$1" >/dev/null 2>&1 || :' INT
    trap 'docker kill --signal TERM "$1" >/dev/null 2>&1 || :' TERM HUP
    while kill -0 "$client" 2>/dev/null; do wait "$client" || :; done
    trap '' INT TERM HUP # bringing home is not interrupted
    if [ "$(docker inspect --format '{{.State.Status}}' "$1")" = created ]; then
        docker rm --volumes "$1" >/dev/null
        fail "the container could not be started; Docker's reason is above"
    fi
    code=$(docker wait "$1")
}

in_force() { # KEY: the setting, from the environment or tpu.env
    printenv "$1" || sed -n "s/^$1=//p" "$root/$rig/tpu.env"
}

# For an MCP client: standard input and output are the protocol's. One container per rig stays while
# sessions come and go, so that the next session finds the server and the jobs of this one.
mcp_server() {
    container=$project-$rig-mcp
    if [ -n "$(docker ps --quiet --filter "name=^$container\$")" ]; then
        copy_home "$container"
    else
        if docker inspect "$container" >/dev/null 2>&1; then bring_home "$container"; fi
        port=$(in_force PORT)
        # Inside it listens on every address; outside only where HOST says.
        more_flags="--publish $(in_force HOST):$port:$port --env HOST=0.0.0.0 --entrypoint sleep"
        create "$container" infinity
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
    # HOST is where compose publishes the port, not an address inside the container.
    for setting in $(settings | grep -vx HOST); do set -- "$@" --env "$setting"; done
    export IMAGE="$image"
    exec docker compose --project-directory "$root" --profile "$rig" "$@" "$rig"
}

check_card
check_docker
case $verb in
engine)
    exec "$root/scripts/image.sh" "$rig"
    ;;
stop)
    if [ -z "$(docker ps --quiet --filter "name=^$serving\$")" ]; then
        echo "$rig is not being served by make serve"
        exit
    fi
    docker stop "$serving" >/dev/null
    echo "stopped $serving"
    ;;
status)
    if [ -z "$(docker ps --quiet --filter "name=^$serving\$")" ]; then
        echo "$rig is not being served by make serve"
        exit 3
    fi
    exec docker exec "$serving" /opt/venv/bin/python scripts/entry.py status "$rig"
    ;;
serve)
    ready_image
    serve
    ;;
mcp_server)
    exec 3<&0 </dev/null # nobody but the server reads what the client says
    ready_image
    mcp_server
    ;;
*)
    collect_left
    if [ "$verb" = doctor ] && ! docker image inspect "$("$root/scripts/image.sh" "$rig" name)" >/dev/null 2>&1; then
        echo "Docker can run this rig; its image is not built yet: make image RIG=$rig (minutes, once)"
        exit
    fi
    ready_image
    container=$project-$rig-$verb-$$
    trap 'docker rm --force --volumes "$container" >/dev/null 2>&1 || :' EXIT # half made
    create "$container" "$verb" "$@"
    trap - EXIT
    run "$container"
    if [ "$verb" = pin ] && [ "$code" = 0 ]; then docker cp -q "$container:/opt/gemma-rigs/$rig/tpu.env" "$PWD"; fi
    bring_home "$container"
    exit "$code"
    ;;
esac
