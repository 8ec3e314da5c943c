#!/usr/bin/env bash
# Installs the programs that the tests run beside ours, where they are missing
# and we may: a C compiler for linking, openssl, the sqlite3 shell, Python's pip for the
# servers that `cargo xtask servers` fetches, and MariaDB with its backup program,
# of which temporary servers are started. PAGEWARDEN_WITHOUT=mariadb leaves that out; its tests then
# say aloud that they were skipped.
set -euo pipefail

declare -A packages=(
    [cc]=gcc
    [c++]=g++
    [openssl]=openssl
    [sqlite3]=sqlite3
    [python3]=python3
    [xz]=xz-utils
)

wanted=()
for program in "${!packages[@]}"; do
    command -v "$program" >/dev/null || wanted+=("${packages[$program]}")
done
if command -v python3 >/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
    wanted+=(python3-pip)
fi
# A server's folder is often not in the PATH of an ordinary user.
if [[ " ${PAGEWARDEN_WITHOUT:-} " != *" mariadb "* ]] && ! PATH="$PATH:/usr/sbin" command -v mariadbd >/dev/null; then
    wanted+=(mariadb-server)
fi
# Its backup program, for tests of backups.
if [[ " ${PAGEWARDEN_WITHOUT:-} " != *" mariadb "* ]] && ! command -v mariabackup >/dev/null; then
    wanted+=(mariadb-backup)
fi
# Not needed, and used where they are: a load for running servers, and what compresses tables.
if [[ " ${PAGEWARDEN_WITHOUT:-} " != *" mariadb "* ]] && command -v apt-cache >/dev/null; then
    for package in sysbench mariadb-plugin-provider-{bzip2,lz4,lzma,lzo,snappy}; do
        if ! dpkg-query --show "$package" >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] &&
            apt-cache show "$package" >/dev/null 2>&1; then
            wanted+=("$package")
        fi
    done
fi
# A backup tool whose repositories are taken apart, not needed either.
if ! command -v pgbackrest >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-cache >/dev/null &&
    apt-cache show pgbackrest >/dev/null 2>&1; then
    wanted+=(pgbackrest)
fi
# A second opinion on `pagewarden iotest`, not needed either.
if ! command -v fio >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-cache >/dev/null &&
    apt-cache show fio >/dev/null 2>&1; then
    wanted+=(fio)
fi
# Writes down which pages a run has read, not needed either.
if ! command -v strace >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-cache >/dev/null &&
    apt-cache show strace >/dev/null 2>&1; then
    wanted+=(strace)
fi
# Lets users mount, and so do the tests.
if ! command -v fusermount3 >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-cache >/dev/null &&
    apt-cache show fuse3 >/dev/null 2>&1; then
    wanted+=(fuse3)
fi
# Not needed either, and half a minute each: a browser that looks at the pages of `serve`, and what takes its figures.
for program in chromium prometheus; do
    if ! command -v "$program" >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-cache >/dev/null &&
        apt-cache show "$program" 2>/dev/null | grep -q '^Filename:.*\.deb'; then
        wanted+=("$program")
    fi
done
if [ ${#wanted[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing: ${wanted[*]}" >&2
        echo "hint: install them with your system's package manager, then run this again" >&2
        exit 1
    fi
    echo "installing: ${wanted[*]}" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
fi

# DuckDB as a package of Python, in a folder of its own, whose files the tests check.
folder="$(cd "$(dirname "$0")/.." && pwd)/target/python"
if ! PYTHONPATH="$folder" python3 -c 'import duckdb' 2>/dev/null; then
    python3 -m pip install --quiet --target "$folder" duckdb 2>/dev/null ||
        echo "no package duckdb for Python: its tests are skipped" >&2
fi
# pyarrow, which writes and reads Parquet files.
if ! PYTHONPATH="$folder" python3 -c 'import pyarrow' 2>/dev/null; then
    python3 -m pip install --quiet --target "$folder" pyarrow 2>/dev/null ||
        echo "no package pyarrow for Python: its tests are skipped" >&2
fi
