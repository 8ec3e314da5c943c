#!/bin/sh
# Builds the Python wheel into target/wheels, with a maturin of its own.
#
#   scripts/wheel.sh            optimised, as users get it
#   scripts/wheel.sh --profile dev
set -eu
cd "$(dirname "$0")/.."

tools=target/python-tools
test -x $tools/bin/maturin || {
    python3 -m venv $tools
    $tools/bin/pip --quiet install 'maturin>=1.9,<2'
}
test $# -gt 0 || set -- --release
$tools/bin/maturin build --locked --manifest-path python/Cargo.toml --out target/wheels "$@"
