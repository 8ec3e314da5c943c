#!/bin/sh
# The user of the units, where systemd is.
set -e
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/pagewarden.conf
fi
