#!/bin/sh
# Make a Debian host ready for `make test-docker`: Docker installed, its daemon running, and a base
# image that needs no registry. Safe to run again. Ends with an error where it cannot, never with a skip.
# Needs root. BASE_IMAGE names the base (default gemma-rigs-base:bookworm).
set -eu
base=${BASE_IMAGE:-gemma-rigs-base:bookworm}
suite=bookworm
state=/var/tmp/gemma-rigs-docker

say() { echo "docker set-up: $*"; }
fail() { echo "error: docker set-up: $*" >&2; exit 1; }

install_docker() {
    [ "$(id -u)" = 0 ] || fail "Docker is missing and only root can install it"
    command -v apt-get >/dev/null || fail "Docker is missing and this is no Debian or Ubuntu"
    say "installing Docker, buildx and compose from Debian"
    # bookworm's own are too old (no buildx package, compose 1): take these four from trixie, nothing else.
    mirror=$(sed -n 's/^URIs: *\([^ ]*\/debian\)\/*$/\1/p; s/^deb \(\[[^]]*\] \)*\([^ ]*\/debian\)\/* .*/\2/p' \
        /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || fail "no Debian mirror found in /etc/apt"
    cat >/etc/apt/sources.list.d/gemma-rigs-trixie.sources <<END
Types: deb
URIs: $mirror
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    printf 'Package: *\nPin: release n=trixie\nPin-Priority: 100\n' \
        >/etc/apt/preferences.d/gemma-rigs-trixie
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates debootstrap iptables docker.io/trixie docker-cli/trixie \
        docker-buildx/trixie docker-compose/trixie >"$state/apt.log" 2>&1 || {
        tail -n 20 "$state/apt.log" >&2
        fail "apt could not install Docker"
    }
}

start_daemon() {
    docker info >/dev/null 2>&1 && return
    say "starting the daemon; its log is $state/dockerd.log"
    # A daemon that was killed leaves its number behind, and another process may bear it now.
    for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
        [ -f "$file" ] || continue
        case $(ps -o stat=,comm= -p "$(cat "$file")" 2>/dev/null) in
        Z*) rm -f "$file" ;;
        *dockerd | *containerd) ;;
        *) rm -f "$file" ;;
        esac
    done
    # Its own session, so that it outlives this script.
    setsid dockerd >"$state/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 60); do
        docker info >/dev/null 2>&1 && return
        sleep 1
    done
    tail -n 20 "$state/dockerd.log" >&2
    fail "the daemon did not answer within a minute"
}

make_base() {
    docker image inspect "$base" >/dev/null 2>&1 && return
    command -v debootstrap >/dev/null || {
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends debootstrap
    }
    say "making the base image $base (about a minute)"
    rm -rf "$state/root"
    debootstrap --variant=minbase "$suite" "$state/root" >"$state/debootstrap.log" 2>&1 || {
        tail -n 20 "$state/debootstrap.log" >&2
        fail "debootstrap failed"
    }
    rm -rf "$state"/root/var/cache/apt/archives/*.deb "$state"/root/var/lib/apt/lists/*
    tar -C "$state/root" -c . | docker import \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        --change 'CMD ["bash"]' - "$base" >/dev/null
    rm -rf "$state/root"
}

mkdir -p "$state"
if ! { command -v dockerd && docker buildx version && docker compose version; } >/dev/null 2>&1; then
    install_docker
fi
start_daemon
make_base
docker buildx version
docker compose version
say "ready: $(docker version --format 'client {{.Client.Version}}, server {{.Server.Version}}'), $base"
