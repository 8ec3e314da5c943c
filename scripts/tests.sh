#!/usr/bin/env bash
# Runs tests and ends with what failed and what was skipped, and why: ./scripts/tests.sh COMMAND...
#
# COMMAND is a `cargo test`, with or without arguments for the test programs. Tests that cannot run here say
# `SKIPPED: reason`, which is shown of passing tests only if it is asked for: so it is, and all but these
# lines is left out again.
set -euo pipefail
skips=$(mktemp)
failures=$(mktemp)
trap 'rm -f "$skips" "$failures"' EXIT
status=0
# What needs.sh has installed for Python.
PYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/target/python${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
[[ " $* " == *" -- "* ]] || set -- "$@" --
"$@" --show-output 2>&1 | awk -v skips="$skips" -v failures="$failures" '
    /^successes:$/ { hidden = 1 }
    /^(failures:|test result:)/ { hidden = 0 }
    /^SKIPPED/ { print > skips }
    # What a test that failed said first of it, said again where a long log is read first: at its end.
    !hidden && /^---- .* stdout ----$/ { print substr($0, 1, 200) > failures; said = 0 }
    !hidden && /panicked at/ && said < 3 { lines = 4; said++ }
    lines > 0 { print "    " substr($0, 1, 1000) > failures; lines-- }
    !hidden { print; fflush() }
' || status=$?
if [ -s "$failures" ]; then
    echo "tests: failed:"
    cat "$failures"
fi
if [ -s "$skips" ]; then
    echo "tests: skipped:"
    sort "$skips" | uniq -c | sort -rn
else
    echo "tests: nothing was skipped"
fi
exit "$status"
