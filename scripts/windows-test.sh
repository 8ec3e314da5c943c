#!/usr/bin/env bash
# Builds pagewarden.exe and compares what it says with what the program of Linux says, by wine:
# ./scripts/windows-test.sh [PATH...]
#
# Of every fixture, of copies of them with a flipped byte, a zeroed page and a cut end, and of each
# PATH that is named, verdicts, findings and pages must be the same. Packs and backups that it
# unpacks must be the same bytes, and commands that do not run on Windows must say so.
#
# With PAGEWARDEN_EXE=FILE it takes that program, such as the one of a release, and builds none for Windows.
#
# Needs wine, the C compiler of mingw-w64, and rustup for the target x86_64-pc-windows-gnu.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in wine x86_64-w64-mingw32-gcc rustup; do
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: windows-test: there is no $program here" >&2
        exit 0
    fi
done
target=x86_64-pc-windows-gnu
rustup target add "$target" >/dev/null
work=$(mktemp -d)
export WINEPREFIX=$work/wine WINEDEBUG=-all
trap 'wineserver -k 2>/dev/null || true; rm -rf "$work"' EXIT

cargo build --locked --package pagewarden-cli
if [ -z "${PAGEWARDEN_EXE:-}" ]; then
    cargo build --locked --package pagewarden-cli --target "$target"
    PAGEWARDEN_EXE=target/$target/debug/pagewarden.exe
fi
cp "$PAGEWARDEN_EXE" "$work/pagewarden.exe"
# Wine before 9 has no such library, which Rust takes random numbers from.
cat >"$work/random.c" <<'C'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count)
{
    return RtlGenRandom(bytes, (ULONG)count);
}
C
x86_64-w64-mingw32-gcc -shared -o "$work/bcryptprimitives.dll" "$work/random.c" -ladvapi32

# Wine's server is begun here: else it would keep the output of the first program open.
mkdir -p "$WINEPREFIX"
wineserver -p
wine wineboot --init >/dev/null 2>&1 </dev/null

python3 - "$work" "$@" <<'P'
import json, pathlib, subprocess, sys

work = pathlib.Path(sys.argv[1])
linux = [str(pathlib.Path("target/debug/pagewarden").resolve())]
windows = ["wine", str(work / "pagewarden.exe")]
# What may differ: times, and what is known of the page cache.
UNLIKE = ("second", "elapsed", "timing", "cached", "rate", "started")


deaths = []


def run(program, *words):
    done = subprocess.run([*program, *map(str, words)], capture_output=True, timeout=600)
    # A fault of the program has an exit status. By a signal it is Wine that dies: once in a few hundred
    # processes, as it ends them, with no exception in its own log.
    if done.returncode < 0 and len(deaths) < 10:
        deaths.append(done.returncode)
        return run(program, *words)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def alike(value):
    if isinstance(value, dict):
        return {k: alike(v) for k, v in value.items() if not any(word in k for word in UNLIKE)}
    if isinstance(value, list):
        return [alike(one) for one in value]
    # Drive Z is the root of Linux.
    return value.replace("\\", "/").replace("Z:/", "/") if isinstance(value, str) else value


def checked(program, path):
    status, out, said = run(program, "check", "--json", "--quiet", path)
    try:
        return status, alike(json.loads(out))
    except ValueError:
        return status, (out, said)


def wounds(path):
    """Copies of a file that were damaged."""
    content = bytearray(path.read_bytes())
    place = work / "wounds"
    place.mkdir(exist_ok=True)
    flipped, zeroed = bytearray(content), bytearray(content)
    middle = len(content) // 2
    flipped[middle] ^= 0x10
    zeroed[middle - middle % 8192 : middle - middle % 8192 + 8192] = bytes(8192)
    for name, damaged in ("flipped", flipped), ("zeroed", zeroed), ("cut", content[: middle + 77]):
        copy = place / f"{name}-{path.name}"
        copy.write_bytes(damaged[: len(content)])
        yield copy


fixtures = pathlib.Path("fixtures").resolve()
paths = [pathlib.Path(word).resolve() for word in sys.argv[2:]]
for engine in sorted(fixtures.iterdir()):
    for version in filter(pathlib.Path.is_dir, sorted(engine.iterdir())):
        paths.extend(sorted(version.iterdir()))
files = [path for path in paths if path.is_file() and 16384 <= path.stat().st_size <= 64 << 20]
paths += [wound for path in files for wound in wounds(path)]

different, verdicts = [], {}
for path in paths:
    one, other = checked(linux, path), checked(windows, path)
    verdicts[one[0]] = verdicts.get(one[0], 0) + 1
    if one != other:
        different.append(f"{path}:\n  Linux   {one}\n  Windows {other}")

for number, path in enumerate(path for path in paths if path.suffix in (".pwk", ".bak")):
    folders = [work / f"unpacked-{number}-{name}" for name in ("linux", "windows")]
    statuses = [run(p, "unpack", "--quiet", path, f)[0] for p, f in zip((linux, windows), folders)]
    trees = [sorted(p.relative_to(f) for p in f.rglob("*")) if f.exists() else [] for f in folders]
    read = lambda path: path.read_bytes() if path.is_file() else None
    same = statuses[0] == statuses[1] and trees[0] == trees[1]
    if not same or any(read(folders[0] / name) != read(folders[1] / name) for name in trees[0]):
        different.append(f"{path}: unpacked otherwise: {statuses}")

for command in ("pack", "mount", "protect", "repair", "cost", "iotest", "serve"):
    status, _, said = run(windows, command, fixtures)
    if status != 2 or "does not run on Windows" not in said:
        different.append(f"{command}: {status} {said}")

for one in different:
    print(one[:2000], file=sys.stderr)
print(f"windows-test: {len(paths)} paths, {len(different)} otherwise than on Linux; by exit status: {verdicts}")
print(f"windows-test: Wine itself died {len(deaths)} times, and was begun again")
sys.exit(bool(different) or len(paths) < 10 or 1 not in verdicts)
P
