#!/bin/sh
# Installs the programs that ext/sqlite/tests/programs.rs opens databases with into
# target/sqlite-programs. better-sqlite3 is compiled where its binary cannot be fetched: some minutes.
set -eu
cd "$(dirname "$0")/.."

folder=target/sqlite-programs
mkdir -p "$folder"
"${PYTHON:-python3}" -m pip --quiet install --disable-pip-version-check --upgrade --target "$folder/python" \
    apsw datasette django sqlalchemy sqlite-utils
if command -v npm >/dev/null; then
    # A Node whose own module loads extensions, whatever version is on the path.
    npm install --silent --no-save --prefix "$folder" better-sqlite3 bun node@24
fi
