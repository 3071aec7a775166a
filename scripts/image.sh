#!/bin/sh
# Build the image of a rig: image.sh RIG [build|name|ready|both [other]].
#   build   build it; name: say only what it is called
#   ready   build it where it is not up to date, and say what it is called
#   both    the same for the image of `make builds`, with the rig's own engine and the other
#   other   the other build of `make builds` (BUILDS_... in tpu.env) instead of the rig's own
# What is built is in the rig's tpu.env; the environment beats it. Also from the environment:
#   IMAGE=NAME         another name for the image (OTHER_IMAGE for the other build's); `ready` takes it
#                      as it is
#   LLAMA_SRC=FOLDER   a llama.cpp tree instead of the pinned source
#   BASE_IMAGE=IMAGE   another Debian or Ubuntu to build on
#   CA_BUNDLE=FILE     certificates, for hosts behind a proxy that signs its own
#   NEW_PAGE=1         try again to build the chat page, which needed a network
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
rig=$1
mode=${2:-build}
which=${3:-own}
file=$root/$rig/tpu.env
fail() { echo "error: $*" >&2; exit 1; }
# shellcheck source=scripts/tpu_env.sh
. "$root/scripts/tpu_env.sh"
check_settings

there() { docker image inspect "$1" >/dev/null 2>&1; } # IMAGE

# The arms of make builds take turns in one container, so both engines are put into one image. Docker
# copies from image to image, so this works on a far host too.
if [ "$mode" = both ]; then
    other=$("$0" "$rig" ready other)
    own=$("$0" "$rig" ready)
    [ "$own" != "$other" ] || fail "the other build is the rig's own; set BUILDS_CUDA_VERSION," \
        "BUILDS_CUDA_ARCHITECTURES or BUILDS_CMAKE_EXTRA to something else"
    image=gemma-rigs:builds-$(echo "$own $other" | cksum | cut -d ' ' -f 1)
    # The context's own builder: another one does not see this host's images.
    docker buildx build --builder "$(docker context show)" --load --quiet --tag "$image" \
        --build-arg "RIG_IMAGE=$own" --build-arg "OTHER_IMAGE=$other" - \
        <"$root/scripts/both.Dockerfile" >/dev/null
    echo "$image"
    exit
fi

setting() { # KEY: its value, from the environment or from tpu.env
    other=
    if [ "$which" = other ]; then other=$(stated "BUILDS_$1"); fi
    if [ -n "$other" ]; then echo "$other"; else stated "$1"; fi
}

backend=$(setting BACKEND)
commit=$(setting LLAMA_CPP_COMMIT)
source=${commit:-$(in_force LLAMA_CPP_RELEASE)}
tag=$source-cpu
if [ "$backend" = cuda ]; then
    tag=$source-cuda$(setting CUDA_VERSION)-$(setting CUDA_ARCHITECTURES | tr ',' _)
fi
extra=$(setting CMAKE_EXTRA)
[ -z "$extra" ] || tag=$tag-$(printf %s "$extra" | cksum | cut -d ' ' -f 1)
[ -z "${LLAMA_SRC:-}" ] || tag=$tag-local
as_it_is=${IMAGE:-}
[ "$which" = own ] || as_it_is=${OTHER_IMAGE:-}
image=${as_it_is:-gemma-rigs:$tag}
if [ "$mode" = name ]; then
    echo "$image"
    exit
fi
if [ "$mode" = ready ] && [ -n "$as_it_is" ]; then
    there "$image" || fail "the image $image is not on the Docker host"
    echo "$image"
    exit
fi

# CUDA's compiler is brought from the package index; that of CUDA 12 is not there, so it is NVIDIA's image.
stage=
cuda=$(setting CUDA_VERSION)
case $backend$cuda in
cpu*) ;;
cuda12.*)
    stage=cuda-$cuda
    grep -q "^FROM .* AS $stage\$" "$root/Dockerfile" || fail "CUDA_VERSION=$cuda: of CUDA 12 the Dockerfile has" \
        "$(sed -n 's/^FROM .* AS cuda-\([0-9.]*\)$/\1/p' "$root/Dockerfile" | paste -sd ' ')"
    ;;
*)
    [ "${cuda%%.*}" -ge 13 ] || fail "CUDA_VERSION=$cuda is too old to be built here; of CUDA 12 the Dockerfile has" \
        "$(sed -n 's/^FROM .* AS cuda-\([0-9.]*\)$/\1/p' "$root/Dockerfile" | paste -sd ' ')"
    for architecture in $(setting CUDA_ARCHITECTURES | tr ',' ' '); do
        number=${architecture%%[!0-9]*}
        [ "${number:-75}" -ge 75 ] || fail "CUDA $cuda does not compile for $architecture (CUDA_ARCHITECTURES); the" \
            "last that does is CUDA 12.9.1: set CUDA_VERSION=12.9.1"
    done
    [ -f "$root/requirements-cuda-$cuda.lock" ] || fail "CUDA_VERSION=$cuda has no lock file here; there is" \
        "$(cd "$root" && echo requirements-cuda-*.lock). This writes one: make lock CUDA_VERSION=$cuda"
    ;;
esac

set -- --build-arg "BACKEND=$backend"
[ -z "$stage" ] || set -- "$@" --build-arg "CUDA_DEVEL=$stage"
for key in LLAMA_CPP_COMMIT LLAMA_CPP_REPOSITORY LLAMA_CPP_RELEASE LLAMA_CPP_RELEASE_SHA256 \
    CUDA_VERSION CUDA_ARCHITECTURES CMAKE_EXTRA; do
    value=$(setting "$key")
    # Told also where tpu.env has it not, so that the image can say what it is of.
    [ "$key" != LLAMA_CPP_RELEASE ] || [ -n "$commit" ] || value=$(in_force "$key")
    case $key in LLAMA_CPP_*) [ -z "${LLAMA_SRC:-}" ] || value= ;; esac
    [ -z "$value" ] || set -- "$@" --build-arg "$key=$value"
done
[ -z "${LLAMA_SRC:-}" ] || set -- "$@" --build-context "llama-src=$LLAMA_SRC"
[ -z "${BASE_IMAGE:-}" ] || set -- "$@" --build-arg "BASE=$BASE_IMAGE" --build-arg BASE_DIGEST=
[ -z "${CA_BUNDLE:-}" ] || set -- "$@" --secret "id=ca_bundle,src=$CA_BUNDLE"
[ "${NEW_PAGE:-}" != 1 ] || set -- "$@" --no-cache-filter page
set -- --load "$@" --tag "$image" "$root"
[ "$mode" = ready ] || exec docker buildx build "$@"
if there "$image"; then
    docker buildx build --quiet "$@" >/dev/null
else
    echo "building the image $image (the first time: minutes)" >&2
    docker buildx build "$@" >&2
fi
echo "$image"
