#!/bin/sh
# Gives programs that know no secrets from files what they look for in the environment, then runs
# the command. Quire itself reads every QUIRE_X_FILE.
# In the image `quire` is a link to this file too: `docker exec` passes the entry point by.
set -eu
case $0 in */quire) set -- /venv/bin/quire "$@" ;; esac
for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY FLOWER_BASIC_AUTH; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        value=$(cat "$file")
        export "$name=$value"
    fi
done
exec "$@"
