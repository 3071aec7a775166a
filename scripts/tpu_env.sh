# shellcheck shell=sh disable=SC2154
# What the settings in a rig's tpu.env are to a shell: the same as to common/rig.py. From the caller:
#   root   the project's folder
#   rig    what it is called
#   file   its tpu.env
#   fail   says an error and ends

return_sign=$(printf '\r')

settings_lines() { # the file's lines, without a CR at their end
    LC_ALL=C tr '\000' '?' <"$file" | LC_ALL=C sed "s/$return_sign\$//"
}

# Fails, in one line, for a file that common/rig.py does not take either.
check_settings() {
    [ -f "$file" ] || fail "$rig is not a rig: it has no tpu.env"
    [ -r "$file" ] || fail "$file cannot be read; mend its permissions"
    odd=$(settings_lines | LC_ALL=C grep -nvE '^(#.*|[ 	]*|[A-Z][A-Z0-9_]*=[A-Za-z0-9._/:+,=@-]*)$' | sed -n 1p)
    [ -z "$odd" ] || fail "$file, line ${odd%%:*}: expected KEY=value or a # comment; values may only" \
        "use letters, digits and . _ / : + , = @ -"
    twice=$(settings_lines | sed -n 's/^\([A-Z][A-Z0-9_]*\)=.*/\1/p' | sort | uniq -d | sed -n 1p)
    [ -z "$twice" ] || fail "$file: $twice is given twice"
}

# What scripts/lists says of a key: whether it is wanted, its default.
told() { sed -n "s/^$1|setting|\(.*\)/\1/p" "$root/scripts/lists"; }

is_wanted() { case $(told "$1") in wanted\|*) ;; *) return 1 ;; esac; }

is_address() {
    case $1 in
    localhost) ;;
    *[!0-9a-fA-F:.]*) return 1 ;;
    *:*:*) ;;
    *[!0-9.]*) return 1 ;;
    *.*.*.*) ;;
    *) return 1 ;;
    esac
}

# Whether the environment decides a key: empty is the default, a HOST that is a name is none of ours.
is_given() {
    printenv "$1" >/dev/null || return 1
    given=$(printenv "$1")
    if is_wanted "$1"; then [ -n "$given" ] || return 1; fi
    if [ "$1" = HOST ] && [ -n "$given" ]; then is_address "$given" || return 1; fi
}

stated() { # KEY: its value from the environment or tpu.env
    if is_given "$1"; then printenv "$1"; else settings_lines | sed -n "s/^$1=//p"; fi
}

in_force() { # KEY: its value, or its default
    value=$(stated "$1")
    if [ -z "$value" ]; then
        value=$(told "$1")
        value=${value#*\|}
        value=${value%%\|*}
    fi
    if [ "$1" = HOST ]; then
        is_address "$value" || fail "$file: HOST=$value: expected localhost or an address, such as 127.0.0.1 or ::1"
    fi
    printf '%s\n' "$value"
}

published() { # where a port is published that HOST names: Docker wants numbers, and IPv6 in brackets
    host=$(in_force HOST)
    case $host in
    localhost) echo 127.0.0.1 ;;
    *:*) echo "[$host]" ;;
    *) echo "$host" ;;
    esac
}
