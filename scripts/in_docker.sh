#!/bin/sh
# Run one of the scripts in the rig's image: in_docker.sh SCRIPT.py [ARGUMENT ...]
# Called by common/rig.mk in the rig's folder when RUNNER=docker. The host needs only Docker, and the
# engine may be on another machine (DOCKER_CONTEXT, DOCKER_HOST): nothing of this folder is mounted,
# run directories are copied in and brought home. From the environment:
#   IMAGE=NAME         run this image as it is, instead of building the rig's own
#   OTHER_IMAGE=NAME   the same for the other build of make builds
#   MODELS_DIR=FOLDER  models in a folder of the Docker host instead of a volume
#   GPU_FLAGS=...      how a container gets the card (default --gpus all; CDI: --device nvidia.com/gpu=all)
#   CA_BUNDLE, LLAMA_SRC, CPU_BASE: see image.sh
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

fail() { echo "error: $*" >&2; exit 1; }

# What this verb is in scripts/lists: card, engine, fetches, writes.
needs() { grep "^$verb|" "$root/scripts/lists" | cut -d '|' -f 3 | tr , '\n' | grep -qx "$1"; }

# The card is asked for first: without it nothing is built and nothing fetched. Another Docker host
# may have one; Windows gives it to Linux as /dev/dxg.
check_card() {
    grep -q '^BACKEND=cuda' "$root/$rig/tpu.env" || return 0
    needs card || return 0
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
    needs card || { GPU_FLAGS=; return 0; }
    [ -z "${GPU_FLAGS:-}" ] || return 0
    GPU_FLAGS="--gpus all"
    docker info --format '{{json .Runtimes}}' | grep -q '"nvidia"' || fail "Docker has no nvidia runtime;" \
        "install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker &&" \
        "sudo systemctl restart docker; with CDI give GPU_FLAGS='--device nvidia.com/gpu=all'"
}

ready_image() { # [other]
    image=$("$root/scripts/image.sh" "$rig" name "$@")
    as_it_is=${IMAGE:-}
    if [ $# -gt 0 ]; then as_it_is=${OTHER_IMAGE:-}; fi
    if [ -n "$as_it_is" ]; then
        docker image inspect "$image" >/dev/null 2>&1 || fail "the image $image is not on the Docker host"
        return
    fi
    if docker image inspect "$image" >/dev/null 2>&1; then
        "$root/scripts/image.sh" "$rig" quiet "$@" >/dev/null
    else
        echo "building the image $image (the first time: minutes)" >&2
        "$root/scripts/image.sh" "$rig" build "$@" >&2
    fi
}

# The arms of make builds take turns in one container, so both engines are put into one image. Docker
# copies from image to image, so this works on a far host too.
ready_both() {
    ready_image other
    other=$image
    ready_image
    own=$image
    [ "$own" != "$other" ] || fail "the other build is the rig's own; set BUILDS_CUDA_VERSION," \
        "BUILDS_CUDA_ARCHITECTURES or BUILDS_CMAKE_EXTRA to something else"
    image=gemma-rigs:builds-$(echo "$own $other" | cksum | cut -d ' ' -f 1)
    # The context's own builder: another one does not see this host's images.
    docker buildx build --builder "$(docker context show)" --load --quiet --tag "$image" \
        --build-arg "RIG_IMAGE=$own" --build-arg "OTHER_IMAGE=$other" - \
        <"$root/scripts/both.Dockerfile" >/dev/null
}

digest() { # KEY IMAGE: a line for the environment
    docker image inspect --format "$1={{.Id}}" "$2"
}

# Settings that a user gave: they go in as they are, so that they beat tpu.env there too. Only what
# may fetch is told the token.
settings() {
    keys=$(sed -n 's/^\([A-Z0-9_]*\)|setting|.*/\1/p' "$root/scripts/lists")
    if needs fetches; then keys="$keys HF_TOKEN"; fi
    for key in $keys; do
        if printenv "$key" >/dev/null; then echo "$key"; fi
    done
}

# What the run directories need to know of the tree they were made from.
harness() {
    commit=$(git -C "$root" rev-parse HEAD 2>/dev/null) || return 0
    dirty=0
    [ -z "$(git -C "$root" status --porcelain -uall -- . ':(exclude,glob)**/benchmarks/**')" ] || dirty=1
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

take_settings() { # the tpu.env that came from the container as tpu.env.part
    if [ "$(cksum <"$PWD/tpu.env")" != "$before" ]; then
        rm -f "$PWD/tpu.env.part"
        case $verb in
        pin) again="run it again (seconds, the files are there)" ;;
        tune) again="make tune APPLY=1 RUN= and the run's folder writes it (seconds)" ;;
        esac
        fail "tpu.env was changed while make $verb ran, so nothing was written; $again"
    fi
    mv "$PWD/tpu.env.part" "$PWD/tpu.env"
}

collect_left() { # from a make that was killed
    for left in $(docker ps --all --quiet --filter "label=gemma-rigs.run=$project/$rig" --filter status=exited); do
        echo "bringing home what an interrupted run left" >&2
        bring_home "$left"
    done
}

copy_in() { # FROM TO WHAT: into the container `name`, owned by its user
    tar -C "$1" --exclude=logs --exclude=run.lock --owner=10001 --group=10001 -cf - "$3" |
        docker cp -q - "$name:$2"
}

create() { # CONTAINER VERB [ARGUMENT ...]; more_flags: one word each
    name=$1
    shift
    environment=$(mktemp)
    # A bare name takes its value from here, so no token is written down.
    { settings; harness; digest IMAGE_DIGEST "$image"; } >"$environment"
    if [ "$verb" = builds ]; then
        { digest RIG_IMAGE_DIGEST "$own"; digest OTHER_IMAGE_DIGEST "$other"; } >>"$environment"
    fi
    terminal=
    if [ -t 1 ]; then terminal=--tty; fi
    # shellcheck disable=SC2086 # flags, one word each
    docker create $terminal $GPU_FLAGS ${more_flags:-} --name "$name" --init --label "gemma-rigs.run=$project/$rig" \
        --cap-drop ALL --security-opt no-new-privileges --pids-limit 512 --env-file "$environment" \
        --volume "${MODELS_DIR:-${project}_models}:/models" --volume "${project}_kernels:/kernels" \
        --volume "$inside" --workdir "$home" "$image" "$@" >/dev/null
    rm -f "$environment"
    # An image run as it is (IMAGE) may hold an older tpu.env.
    copy_in "$PWD" "$home" tpu.env
    # What is there already: run directories get the next free name, RESUME=1 finds its run.
    if [ -d "$runs" ]; then copy_in "$runs" "$inside" .; fi
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
    if [ "$verb" = builds ]; then ready_both; else ready_image; fi
    container=$project-$rig-$verb-$$
    trap 'docker rm --force --volumes "$container" >/dev/null 2>&1 || :' EXIT # half made
    before=$(cksum <"$PWD/tpu.env")
    create "$container" "$verb" "$@"
    trap - EXIT
    run "$container"
    wrote=
    case $verb-${APPLY:-} in pin-* | tune-1) [ "$code" != 0 ] || wrote=1 ;; esac
    if [ -n "$wrote" ]; then docker cp -q "$container:$home/tpu.env" "$PWD/tpu.env.part"; fi
    bring_home "$container"
    if [ -n "$wrote" ]; then take_settings; fi
    exit "$code"
    ;;
esac
