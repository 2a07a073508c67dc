#!/bin/sh
# Installs the given Debian packages without starting or enabling their daemons. Tests start the
# servers they need themselves.
set -eu
[ $# -gt 0 ] || exit 0

missing=''
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# Maintainer scripts run policy-rc.d before they start a daemon; exit code 101 forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # word splitting is intended
apt-get install -q -y --no-install-recommends $missing

for package in $missing; do
    dpkg -L "$package" | sed -n 's,^/usr/lib/systemd/system/\([^/@]*\.[a-z]*\)$,\1,p; s,^/lib/systemd/system/\([^/@]*\.[a-z]*\)$,\1,p' |
        while read -r unit; do systemctl disable "$unit" 2>/dev/null || true; done
    dpkg -L "$package" | sed -n 's,^/etc/init.d/,,p' |
        while read -r script; do update-rc.d "$script" disable 2>/dev/null || true; done
done
