#!/usr/bin/env bash
# Makes what is released: ./scripts/dist.sh [--verify] [ARCH...]  (default: x86_64 aarch64 windows)
#
# Writes to target/dist: a static binary for each architecture in a tar archive with man pages and
# completions, packages for Debian and Red Hat, a zip archive with pagewarden.exe (x86_64), a bill of
# materials (CycloneDX), the licences of all dependencies, and SHA256SUMS. The same commit gives the
# same bytes, so that anyone can verify them: --verify builds a second time in another folder and compares.
#
# Fetches what it needs from the package registries into target/dist-tools: zig as the C compiler
# and linker (Python's package ziglang), cargo-zigbuild, cargo-cyclonedx, cargo-bundle-licenses, nfpm
# (which needs Go).
set -euo pipefail
cd "$(dirname "$0")/.."

verify=
if [ "${1:-}" = --verify ]; then
    verify=1
    shift
fi
[ $# -gt 0 ] || set -- x86_64 aarch64 windows
architectures=()
windows=
for word; do
    if [ "$word" = windows ]; then windows=1; else architectures+=("$word"); fi
done

root=$PWD
out=$root/target/dist
stage=$root/target/dist-stage
version=$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "pagewarden-cli"))')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
. scripts/dist-tools.sh
tool cargo-cyclonedx 0.5.9
tool cargo-bundle-licenses 5.0.0
[ -x "$tools/bin/nfpm" ] || GOBIN=$tools/bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

rm -rf "$out" "$stage"
mkdir -p "$out" "$stage/man" "$stage/completions"

# The same archive from the same files: names in order, one time, no owner.
archive() { # FOLDER FILE.tar.gz
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        -C "$(dirname "$1")" -cf - "$(basename "$1")" | gzip -9n >"$2"
}

# The same for Windows, where programs are unpacked from zip archives.
zip() { # FILE...
    python3 - "$out/pagewarden-$version-windows-x86_64.zip" "$SOURCE_DATE_EPOCH" "$@" <<'PYTHON'
import os, sys, time, zipfile
archive, seconds, *files = sys.argv[1:]
folder = os.path.basename(archive).removesuffix(".zip")
with zipfile.ZipFile(archive, "w") as made:
    for path in files:
        entry = zipfile.ZipInfo(f"{folder}/{os.path.basename(path)}", time.gmtime(int(seconds))[:6])
        entry.external_attr = 0o644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        with open(path, "rb") as file:
            made.writestr(entry, file.read(), compresslevel=9)
PYTHON
}

build() { # TARGET TARGET_DIR
    library "$1"
    cargo zigbuild --release --locked --target "$1" --target-dir "$2" --package pagewarden-cli
}

# The program of a target, once, and with --verify twice.
program() { # TARGET FILE
    build "$1" "$root/target/dist-build"
    [ -n "$verify" ] || return 0
    build "$1" "$root/target/dist-build-again"
    cmp "$root/target/dist-build/$1/release/$2" "$root/target/dist-build-again/$1/release/$2"
    echo "dist: $1 was built twice, the same bytes"
}

RUST_LOG=error cargo bundle-licenses --format yaml --output "$stage/LICENSES.txt"
for architecture in "${architectures[@]}"; do
    program "$architecture-unknown-linux-musl" pagewarden
    binary=$root/target/dist-build/$architecture-unknown-linux-musl/release/pagewarden
    if [ "$architecture" = "$(uname -m)" ]; then
        "$binary" man "$stage/man"
        "$binary" completions bash >"$stage/completions/pagewarden.bash"
        "$binary" completions zsh >"$stage/completions/_pagewarden"
        "$binary" completions fish >"$stage/completions/pagewarden.fish"
    fi
done
[ ${#architectures[@]} -eq 0 ] || [ -n "$(ls "$stage/man")" ] || {
    echo "dist: this machine cannot run any of the binaries that it built" >&2
    echo "hint: name its own architecture too: $(uname -m)" >&2
    exit 1
}
# Packages keep the times of their files.
cp -r packaging README.md "$stage"
for architecture in "${architectures[@]}"; do
    name=pagewarden-$version-linux-$architecture
    binary=$root/target/dist-build/$architecture-unknown-linux-musl/release/pagewarden
    folder=$stage/$name
    mkdir -p "$folder"
    install -m 755 "$binary" "$folder/pagewarden"
    cp -r "$stage/man" "$stage/completions" "$stage/LICENSES.txt" README.md CHANGELOG.md "$folder/"
    archive "$folder" "$out/$name.tar.gz"
    case $architecture in
    x86_64) ARCH=amd64 ;;
    aarch64) ARCH=arm64 ;;
    *) ARCH=$architecture ;;
    esac
    export ARCH VERSION=$version BINARY=$folder/pagewarden STAGE=$stage
    find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    for packager in deb rpm; do
        nfpm package --config packaging/nfpm.yaml --packager "$packager" --target "$out/"
    done
done
if [ -n "$windows" ]; then
    program x86_64-pc-windows-gnu pagewarden.exe
    zip "$root/target/dist-build/x86_64-pc-windows-gnu/release/pagewarden.exe" \
        "$stage/LICENSES.txt" README.md CHANGELOG.md
fi
cargo cyclonedx --quiet --format json --manifest-path crates/pagewarden-cli/Cargo.toml \
    --override-filename pagewarden-sbom --all
sed "s|$root|/pagewarden|g" crates/pagewarden-cli/pagewarden-sbom.json >"$out/pagewarden-$version.cdx.json"
# It writes one for each member of the workspace.
find . -name pagewarden-sbom.json -not -path './target/*' -delete
cp "$stage/LICENSES.txt" "$out/"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
