#!/usr/bin/env bash
# Runs tests and ends with what was skipped, and why: ./scripts/tests.sh COMMAND...
#
# COMMAND is a `cargo test`, with or without arguments for the test programs. Tests that cannot run here say
# `SKIPPED: reason`, which is shown of passing tests only if it is asked for: so it is, and all but these
# lines is left out again.
set -euo pipefail
skips=$(mktemp)
trap 'rm -f "$skips"' EXIT
status=0
# What needs.sh has installed for Python.
PYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/target/python${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
[[ " $* " == *" -- "* ]] || set -- "$@" --
"$@" --show-output 2>&1 | awk -v skips="$skips" '
    /^successes:$/ { hidden = 1 }
    /^(failures:|test result:)/ { hidden = 0 }
    /^SKIPPED/ { print > skips }
    !hidden { print; fflush() }
' || status=$?
if [ -s "$skips" ]; then
    echo "tests: skipped:"
    sort "$skips" | uniq -c | sort -rn
else
    echo "tests: nothing was skipped"
fi
exit "$status"
