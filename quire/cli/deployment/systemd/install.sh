#!/bin/sh
# Installs the units in this folder. Run as root. Replaces existing units, but not settings or secrets.
set -eu
cd "$(dirname "$0")"
units=/etc/systemd/system
install -D -m 644 sysusers.conf /etc/sysusers.d/quire.conf
systemd-sysusers /etc/sysusers.d/quire.conf
install -d -m 755 /etc/quire
install -d -m 700 /etc/quire/secrets
[ -e /etc/quire/quire.env ] || install -m 644 quire.env /etc/quire/quire.env
for file in secrets/*; do
    [ -e "/etc/quire/$file" ] || install -m 600 "$file" "/etc/quire/$file"
done
install -m 644 quire*.service quire*.timer quire.target "$units"
install -D -m 644 postgresql.conf "$units/postgresql@.service.d/quire.conf"
for name in redis-server valkey-server; do
    install -D -m 644 redis.conf "$units/$name.service.d/quire.conf"
done
systemctl daemon-reload
echo "Set the passwords from /etc/quire/secrets for PostgreSQL's role quire and for Redis, then run:"
echo "  systemctl enable --now @OWN@"
echo "  systemctl enable --now @OTHERS@"
