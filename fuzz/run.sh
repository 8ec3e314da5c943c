#!/usr/bin/env bash
# Fuzzes everything that parses bytes from disks and servers: ./fuzz/run.sh SECONDS [TARGET...]
#
# SECONDS is for all targets together, without the time to build them. Prints a
# line for each target and ends with 1 if any of them crashed; the input is then
# in fuzz/artifacts/TARGET, and this runs it again:
#
#     FUZZ_TARGET=TARGET fuzz/target/fuzz fuzz/artifacts/TARGET/crash-...
#
# Needs a C++ compiler, for libFuzzer.
#
# FUZZ_SANITIZER=none is faster and blind to what unsafe code does wrong.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:?usage: run.sh SECONDS [TARGET...]}
shift
# The toolchain in use does, as it brings the sanitizer along: this lets it take
# the flags that fuzzing needs and that are not stable yet.
export RUSTC_BOOTSTRAP=1
sanitizer=${FUZZ_SANITIZER:-address}
# Leaks are not looked for: what threads that are about to end still hold looks
# like one, and a container may forbid to stop them and look.
export ASAN_OPTIONS=detect_leaks=0
# What libFuzzer asks of the compiler: https://llvm.org/docs/SanitizerCoverage.html
flags="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
[ "$sanitizer" = none ] || flags+=" -Zsanitizer=$sanitizer"
# Longer inputs only where a file of several pages is wanted.
declare -A max_len=([postgres_archive]=65536 [tar]=16384 [pack]=16384 [postgres_file]=131072 [sqlite_target]=131072 [sqlite_page]=66000 [postgres_index]=8300 [postgres_catalogue]=16384 [mtf]=32768 [mssqlbak]=16384 [xpress]=8192 [db_heap]=8300 [sqlserver_page]=8300 [sqlserver_pfs]=8300 [innodb_redo]=32768 [innodb_doublewrite]=131072 [aria_page]=33000 [duckdb_target]=131072 [parquet_target]=65536 [xbstream]=65536 [innodb_page]=70000 [innodb_target]=66000)

if ! command -v "${CXX:-c++}" >/dev/null; then
    echo "fuzz: no C++ compiler" >&2
    echo "hint: install g++, or set CXX" >&2
    exit 1
fi
./seed.sh

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n '/^targets! {/,/^}/s/^    //p' targets/main.rs)
fi
# The targets write small files all the time: in memory, where there is some.
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" pagewarden-fuzz.XXXXXX)
trap 'rm -rf "$folder"' EXIT
log=$folder/log

# The flags are for what runs, not for what runs while it is built: hence the host by its name.
host=$(rustc --print host-tuple)
build=${CARGO_TARGET_DIR:-target}
echo "fuzz: building ${#targets[@]} targets, sanitizer: $sanitizer"
RUSTFLAGS=$flags cargo build --quiet --release --locked --target "$host" --target-dir "$build"
ln -sfn "$host/release/fuzz" "$build/fuzz"
export TMPDIR=$folder
each=$((seconds / ${#targets[@]}))
[ "$each" -gt 0 ] || each=1
failed=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    begin=$SECONDS
    status=0
    FUZZ_TARGET=$target "$build/fuzz" "corpus/$target" -artifact_prefix="artifacts/$target/" \
        -max_total_time="$each" -max_len="${max_len[$target]:-4096}" \
        -timeout=30 -rss_limit_mb=4096 -detect_leaks=0 -print_final_stats=1 \
        >"$log" 2>&1 </dev/null || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    coverage=$(sed -n 's/.*\(cov: [0-9]* ft: [0-9]*\).*/\1/p' "$log" | tail -n 1)
    printf 'fuzz: %-18s %10s executions in %4d s, %s\n' \
        "$target" "${executions:-no}" $((SECONDS - begin)) "${coverage:-no coverage}"
    if [ "$status" -ne 0 ]; then
        failed=1
        echo "fuzz: $target FAILED with status $status:"
        grep -m 1 -A 6 -E 'panicked at|ERROR: ' "$log" || true
        echo ...
        tail -n 40 "$log"
    fi
done
exit "$failed"
