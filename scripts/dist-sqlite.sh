#!/usr/bin/env bash
# Builds the extension for SQLite for other machines: ./scripts/dist-sqlite.sh [TARGET...]
#
# Writes to target/dist/sqlite: libpagewarden_sqlite-VERSION-TARGET.so, stripped, and SHA256SUMS. A target is
# one of Rust's; without one, Linux with glibc (2.17 and later) and with musl, each on x86_64 and aarch64.
# A .dylib of aarch64-apple-darwin and x86_64-apple-darwin is made when it is named; none of them was ever
# run. Refuses what is larger than 2.5 MB, and what asks for a library that not every such system has.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. scripts/dist-tools.sh

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
    x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
out=$root/target/dist/sqlite
build=$root/target/dist-sqlite
flags=$RUSTFLAGS
bytes_max=2500000
mkdir -p "$out"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ext/sqlite/Cargo.toml | head -1)

for target in "${targets[@]}"; do
    library "$target"
    ending=so
    wanted=$target
    export RUSTFLAGS=$flags
    case $target in
    # The oldest C library that Rust itself supports.
    *-linux-gnu) wanted=$target.2.17 ;;
    # A shared object takes the C library of the program that loads it.
    *-linux-musl) export RUSTFLAGS="$flags -C target-feature=-crt-static" ;;
    *-apple-darwin) ending=dylib ;;
    esac
    cargo zigbuild --release --locked --lib --manifest-path ext/sqlite/Cargo.toml --target "$wanted" \
        --target-dir "$build"
    file=$out/libpagewarden_sqlite-$version-$target.$ending
    install -m 644 "$build/$target/release/libpagewarden_sqlite.$ending" "$file"
    bytes=$(stat -c %s "$file")
    echo "dist: $target: $bytes bytes"
    if [ "$bytes" -gt $bytes_max ]; then
        echo "dist: $file is larger than $bytes_max bytes" >&2
        exit 1
    fi
    [ "$ending" = so ] || continue
    # What the loading program has anyway: the C library, in its parts.
    strange=$(readelf --dynamic --wide "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux.*|libgcc_s)\.so' || true)
    if [ -n "$strange" ]; then
        echo "dist: $file needs $strange" >&2
        exit 1
    fi
done
(cd "$out" && sha256sum -- *pagewarden_sqlite-* >SHA256SUMS)
