#!/bin/sh
# Installs the wheel `pagewarden-sqlite` into a clean virtual environment and runs its tests.
#
#   PYTHON=python3.13 scripts/test-wheel-sqlite.sh
set -eu
cd "$(dirname "$0")/.."

wheel=$(ls target/wheels/pagewarden_sqlite-*.whl)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
python=$folder/venv/bin/python
$python -m pip --quiet install --disable-pip-version-check "$wheel" pytest
cd "$folder"
$python -m pytest --quiet -p no:cacheprovider "$OLDPWD/ext/sqlite/python/tests"
