#!/usr/bin/env bash
# Makes what is released: ./scripts/dist.sh [ARCH...]  (default: x86_64 aarch64)
#
# Writes to target/dist: a static binary for each architecture in a tar archive with man pages and
# completions, packages for Debian and Red Hat, a bill of materials (CycloneDX), the licences of all
# dependencies, and SHA256SUMS. The same commit gives the same bytes, so that anyone can verify them:
# --verify builds a second time in another folder and compares.
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
architectures=("$@")
[ ${#architectures[@]} -gt 0 ] || architectures=(x86_64 aarch64)

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

build() { # ARCH TARGET_DIR
    library "$1-unknown-linux-musl"
    cargo zigbuild --release --locked --target "$1-unknown-linux-musl" --target-dir "$2" --package pagewarden-cli
}

RUST_LOG=error cargo bundle-licenses --format yaml --output "$stage/LICENSES.txt"
for architecture in "${architectures[@]}"; do
    build "$architecture" "$root/target/dist-build"
    binary=$root/target/dist-build/$architecture-unknown-linux-musl/release/pagewarden
    if [ "$architecture" = "$(uname -m)" ]; then
        "$binary" man "$stage/man"
        "$binary" completions bash >"$stage/completions/pagewarden.bash"
        "$binary" completions zsh >"$stage/completions/_pagewarden"
        "$binary" completions fish >"$stage/completions/pagewarden.fish"
    fi
    if [ -n "$verify" ]; then
        build "$architecture" "$root/target/dist-build-again"
        cmp "$binary" "$root/target/dist-build-again/$architecture-unknown-linux-musl/release/pagewarden"
        echo "dist: $architecture was built twice, the same bytes"
    fi
done
[ -n "$(ls "$stage/man")" ] || {
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
cargo cyclonedx --quiet --format json --manifest-path crates/pagewarden-cli/Cargo.toml \
    --override-filename pagewarden-sbom --all
sed "s|$root|/pagewarden|g" crates/pagewarden-cli/pagewarden-sbom.json >"$out/pagewarden-$version.cdx.json"
# It writes one for each member of the workspace.
find . -name pagewarden-sbom.json -not -path './target/*' -delete
cp "$stage/LICENSES.txt" "$out/"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
