#!/bin/sh
# Exports secrets from files for programs that read only environment variables, then runs the
# command. Quire itself reads every QUIRE_X_FILE.
# In the image, `quire` is a link to this file, because `docker exec` bypasses the entry point.
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
