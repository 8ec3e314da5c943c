#!/bin/sh
# Builds the wheel `pagewarden-sqlite` into target/wheels: the extension, optimised and stripped, with the
# module that loads it. It is not tied to a version of Python: nothing of Python's own is linked.
set -eu
cd "$(dirname "$0")/.."

cargo build --release --locked --manifest-path ext/sqlite/Cargo.toml
tools=target/python-tools
test -x $tools/bin/python || python3 -m venv $tools
$tools/bin/pip --quiet install 'wheel>=0.45,<1' 'setuptools>=77'

stage=target/wheel-sqlite
rm -rf $stage
mkdir -p $stage target/wheels
cp -R ext/sqlite/python/. $stage
cp LICENSE-APACHE LICENSE-MIT $stage
cp ext/sqlite/target/release/libpagewarden_sqlite.so $stage/pagewarden_sqlite/
$tools/bin/pip --quiet wheel --no-deps --no-build-isolation --wheel-dir $stage/out $stage
# What the extension asks of the C library is what the machine has that built it.
platform="linux_$(uname -m)"
$tools/bin/python -m wheel tags --remove --platform-tag "$platform" $stage/out/*.whl
rm -f target/wheels/pagewarden_sqlite-*.whl
mv $stage/out/*.whl target/wheels/
ls -l target/wheels/pagewarden_sqlite-*.whl
