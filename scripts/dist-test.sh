#!/usr/bin/env bash
# Installs the Debian package of target/dist in a clean root without a compiler, and uses it as a
# new user would: ./scripts/dist-test.sh [SUITE]  (default: bookworm)
#
# Needs root and mmdebstrap. The root is a temporary folder, removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "dist-test: not run: it needs root and mmdebstrap" >&2
    exit 2
fi
root=$(mktemp -d)
trap 'umount "$root/clean/proc" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
mmdebstrap --quiet --variant=minbase "${1:-bookworm}" "$root/clean"
mount -t proc proc "$root/clean/proc"
cp target/dist/pagewarden_*_"$(dpkg --print-architecture)".deb "$root/clean/tmp/pagewarden.deb"
sqlite3 "$root/clean/srv/shop.sqlite" "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT);
    WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
    INSERT INTO item SELECT i, 'item number ' || i FROM n;"

inside() { chroot "$root/clean" "$@"; }
begin=$(date +%s%N)
inside dpkg --install /tmp/pagewarden.deb >/dev/null
inside pagewarden check --quiet /srv/shop.sqlite
echo "dist-test: from the package to the first verdict: $((($(date +%s%N) - begin) / 1000000)) ms"
inside pagewarden protect --quiet --mode checksum /srv/shop.sqlite
inside pagewarden pack --quiet /srv/shop.sqlite -o /srv/shop.pwk
inside test -f /usr/lib/systemd/system/pagewarden-scrub.timer -a -d /etc/pagewarden
inside test -s /usr/share/man/man1/pagewarden-check.1 -o -e /etc/dpkg/dpkg.cfg.d
# A flipped byte is damage, and nothing but damage.
printf '\x55' | dd of="$root/clean/srv/shop.sqlite" bs=1 seek=9000 conv=notrunc status=none
status=0
inside pagewarden check --quiet /srv/shop.sqlite || status=$?
[ "$status" -eq 1 ] || {
    echo "dist-test: a flipped byte gave exit status $status" >&2
    exit 1
}
# What the administrator wrote stays when the package goes.
touch "$root/clean/etc/pagewarden/pagewarden.toml"
inside dpkg --remove pagewarden >/dev/null
inside test -f /etc/pagewarden/pagewarden.toml
if inside test -e /usr/bin/pagewarden; then
    echo "dist-test: the program is still there" >&2
    exit 1
fi
echo "dist-test: passed"
