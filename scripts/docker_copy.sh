# shellcheck shell=sh disable=SC2154
# What goes into a container and what comes home from it; a part of in_docker.sh. From there:
#   root rig verb project home inside runs   names and places
#   scratch                                  a folder of this call, for what is on the way
#   needs, settings_of, in_force, fail       what scripts/lists and tpu.env say

give() { # KEY FILE: its path in the container, where the link that is made here lets it be copied
    case $2 in /*) file=$2 ;; *) file=$PWD/$2 ;; esac
    [ -r "$file" ] || fail "$1=$2: there is no $file to be read"
    mkdir -p "$scratch/given/$1"
    ln -sf "$file" "$scratch/given/$1/"
    echo "/tmp/given/$1/$(basename "$file")"
}

reads() { needs "$1" && value=$(in_force "$1") && [ -n "$value" ]; } # KEY: files; they are in `value`

# Settings that name files of this host, of those that this verb reads, get the names that the files
# have in the container.
files() {
    for key in $(settings_of file); do
        reads "$key" || continue
        value=$(give "$key" "$value")
        export "$key=$value"
    done
    for key in $(settings_of files); do
        reads "$key" || continue
        all=
        for file in $(echo "$value" | tr , ' '); do # as on the host: else it is in the models folder
            case $file in /*) file=$(give "$key" "$file") ;; esac
            all=$all,$file
        done
        export "$key=${all#,}"
    done
}

own_run() { # FOLDER of a run on this host: its path in the container
    folder=$(cd "$1" 2>/dev/null && pwd -P) || fail "$1 is not a folder"
    [ "$(dirname "$folder")" = "$(cd "$runs" 2>/dev/null && pwd -P)" ] || fail "$1 is not a run of $rig:" \
        "in a container there are only those in $runs; another one needs RUNNER=host"
    echo "benchmarks/runs/$(basename "$folder")"
}

copy_in() { # FROM TO WHAT [FLAG]: into the container `container`, owned by its user
    tar -C "$1" --exclude=logs --exclude=run.lock --owner=10001 --group=10001 ${4:+"$4"} -cf - "$3" |
        docker cp -q - "$container:$2"
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

writes() { needs writes || { needs applies && [ "${APPLY:-}" = 1 ]; }; }

take_settings() { # the tpu.env that came from the container
    [ "$(cksum <"$scratch/tpu.env")" != "$before" ] || return 0 # nothing was written
    if [ "$(cksum <"$PWD/tpu.env")" != "$before" ]; then
        again="run it again (seconds, the files are there)"
        if needs applies; then again="make tune APPLY=1 RUN= and the run's folder writes it (seconds)"; fi
        fail "tpu.env was changed while make $verb ran, so nothing was written; $again"
    fi
    cp -p "$PWD/tpu.env" "$PWD/tpu.env.part" # its mode stays
    cat "$scratch/tpu.env" >"$PWD/tpu.env.part"
    mv "$PWD/tpu.env.part" "$PWD/tpu.env"
}

collect_left() { # from a make that was killed
    for left in $(docker ps --all --quiet --filter "label=gemma-rigs.run=$project/$rig" --filter status=exited); do
        echo "bringing home what an interrupted run left" >&2
        bring_home "$left"
    done
}
