#!/usr/bin/env bash
# Loads each extension in target/dist/sqlite that this machine can run, into a SQLite of its kind:
#
#   with glibc   Debian's own `sqlite3` shell; of another architecture, under qemu-user, with its packages
#                unpacked into target/dist-roots
#   with musl    a program of ext/sqlite/tests/musl that is built here with zig and loads the extension with
#                Debian's `musl`, of this architecture or the other
#
# Each makes a protected database in WAL mode, verifies it, and sees a flipped bit. Says which were not run.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. scripts/dist-tools.sh
out=$root/target/dist/sqlite
roots=$root/target/dist-roots
own=$(uname -m)

debian_name() { # ARCH
    case $1 in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    esac
}

# Unpacks packages of Debian into a folder, without installing anything.
unpack() { # FOLDER ARCH PACKAGE...
    local folder=$1 architecture=$2
    shift 2
    [ ! -e "$folder/.done" ] || return 0
    mkdir -p "$folder" "$roots/apt/lists/partial" "$roots/apt/cache/archives/partial" "$roots/deb"
    : >"$roots/apt/status"
    cat >"$roots/apt/debian.sources" <<X
Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
X
    local apt=(apt-get -qq -o Dir::Etc::sourceparts=/dev/null -o "Dir::Etc::sourcelist=$roots/apt/debian.sources"
        -o "Dir::State::lists=$roots/apt/lists" -o "Dir::Cache=$roots/apt/cache"
        -o "Dir::State::status=$roots/apt/status" -o "APT::Architecture=$architecture"
        -o "APT::Architectures=$architecture" -o APT::Sandbox::User=root)
    "${apt[@]}" update
    rm -f "$roots"/deb/*
    (cd "$roots/deb" && "${apt[@]}" download "$@")
    for package in "$roots"/deb/*.deb; do
        dpkg-deb -x "$package" "$folder"
    done
    touch "$folder/.done"
}

# What runs a program of an architecture, with the libraries of FOLDER.
runner() { # ARCH FOLDER
    if [ "$1" != "$own" ]; then
        unpack "$roots/host" "$(debian_name "$own")" qemu-user-static
        echo "$roots/host/usr/bin/qemu-$1-static -L $2"
    fi
}

with_glibc() { # ARCH EXTENSION
    local shell=sqlite3 folder=$roots/$1-gnu
    if [ "$1" != "$own" ]; then
        unpack "$folder" "$(debian_name "$1")" libc6 libgcc-s1 libreadline8 libsqlite3-0 libtinfo6 sqlite3 zlib1g
        shell="$(runner "$1" "$folder") $folder/usr/bin/sqlite3"
    fi
    local database=$work/$1.db
    local said
    said=$($shell -init /dev/null -cmd ".load ${2%.so} sqlite3_pagewarden_default_init" -cmd ".open $database" \
        :memory: "PRAGMA journal_mode=WAL; CREATE TABLE t(a, b); WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL
            SELECT v+1 FROM n WHERE v<9000) INSERT INTO t SELECT v, hex(randomblob(100)) FROM n;
            PRAGMA page_verify; PRAGMA integrity_check;" | tr '\n' ' ')
    [ "$said" = "wal CHECKSUM ok " ] || {
        echo "dist: $2 said: $said" >&2
        return 1
    }
    local place=$((40 * 4096 + 2000)) byte
    byte=$(od -An -tu1 -j "$place" -N 1 "$database")
    printf '%b' "\\x$(printf %02x $((byte ^ 4)))" | dd of="$database" bs=1 seek="$place" conv=notrunc status=none
    said=$($shell -init /dev/null -cmd ".load ${2%.so} sqlite3_pagewarden_default_init" -cmd ".open $database" \
        :memory: "SELECT sum(length(b)) FROM t;" 2>&1 || true)
    case $said in
    *"disk I/O error"*) echo "dist: ${2##*/}: protected, sound, damage seen" ;;
    *)
        echo "dist: $2 read a damaged page: $said" >&2
        return 1
        ;;
    esac
}

with_musl() { # ARCH EXTENSION
    local folder=$roots/$1-musl sqlite
    unpack "$folder" "$(debian_name "$1")" musl
    sqlite=$(cargo metadata --format-version 1 --locked --manifest-path ext/sqlite/Cargo.toml |
        python3 -c 'import json, os, sys
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"]
    if p["name"] == "libsqlite3-sys"))')/sqlite3
    local program=$roots/$1-musl/main
    [ -x "$program" ] || "$tools/python/bin/python" -m ziglang cc -target "$1-linux-musl" -dynamic -O1 \
        -I "$sqlite" "$sqlite/sqlite3.c" ext/sqlite/tests/musl/main.c -o "$program"
    echo "dist: ${2##*/}: $($(runner "$1" "$folder") "$folder/lib/ld-musl-$1.so.1" "$program" "$2" "$work/$1-musl.db")"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for extension in "$out"/libpagewarden_sqlite-*; do
    target=${extension##*libpagewarden_sqlite-}
    architecture=$(echo "$target" | sed -E 's/^[^-]*-([^-]*)-.*/\1/')
    case $target in
    *-linux-gnu.so) with_glibc "$architecture" "$extension" ;;
    *-linux-musl.so) with_musl "$architecture" "$extension" ;;
    *) echo "dist: NOT RUN: ${extension##*/}: no such system here" ;;
    esac
done
