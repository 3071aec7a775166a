#!/bin/sh
# Build the image of a rig: image.sh RIG [name|quiet|build [other]]. With `name` say only what it is
# called; with `other` it is the other build of `make builds` (BUILDS_... in tpu.env).
# What is built is in the rig's tpu.env; the environment beats it. Also from the environment:
#   IMAGE=NAME         another name for the image (OTHER_IMAGE for the other build's)
#   LLAMA_SRC=FOLDER   a llama.cpp tree instead of the pinned source
#   CPU_BASE=IMAGE     another base for BACKEND=cpu
#   CA_BUNDLE=FILE     certificates, for hosts behind a proxy that signs its own
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
rig=$1
mode=${2:-build}
which=${3:-own}
file=$root/$rig/tpu.env
[ -f "$file" ] || { echo "error: $rig is not a rig: it has no tpu.env" >&2; exit 2; }

setting() { # KEY: its value, from the environment or from tpu.env
    other=
    if [ "$which" = other ]; then other=$(given "BUILDS_$1"); fi
    if [ -n "$other" ]; then echo "$other"; else given "$1"; fi
}

given() { # KEY
    if printenv "$1"; then return; fi
    sed -n "s/^$1=//p" "$file"
}

backend=$(setting BACKEND)
commit=$(setting LLAMA_CPP_COMMIT)
source=${commit:-$(setting LLAMA_CPP_RELEASE)}
tag=$source-cpu
if [ "$backend" = cuda ]; then
    tag=$source-cuda$(setting CUDA_VERSION)-$(setting CUDA_ARCHITECTURES | tr ',' _)
fi
extra=$(setting CMAKE_EXTRA)
[ -z "$extra" ] || tag=$tag-$(printf %s "$extra" | cksum | cut -d ' ' -f 1)
[ -z "${LLAMA_SRC:-}" ] || tag=$tag-local
image=gemma-rigs:$tag
if [ "$which" = own ]; then image=${IMAGE:-$image}; else image=${OTHER_IMAGE:-$image}; fi
if [ "$mode" = name ]; then
    echo "$image"
    exit
fi

set -- --build-arg "BACKEND=$backend"
for key in LLAMA_CPP_COMMIT LLAMA_CPP_REPOSITORY LLAMA_CPP_RELEASE LLAMA_CPP_RELEASE_SHA256 \
    CUDA_VERSION CUDA_ARCHITECTURES CMAKE_EXTRA; do
    value=$(setting "$key")
    [ -z "$value" ] || set -- "$@" --build-arg "$key=$value"
done
[ -z "${LLAMA_SRC:-}" ] || set -- "$@" --build-context "llama-src=$LLAMA_SRC"
[ -z "${CPU_BASE:-}" ] || set -- "$@" --build-context "cpu-base=docker-image://$CPU_BASE"
[ -z "${CA_BUNDLE:-}" ] || set -- "$@" --secret "id=ca_bundle,src=$CA_BUNDLE"
[ "$mode" != quiet ] || set -- "$@" --quiet
exec docker buildx build --load "$@" --tag "$image" "$root"
