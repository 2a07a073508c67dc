#!/bin/sh
# Gives programs that know no secrets from files what they look for in the environment, then runs
# the command. Quire itself reads every QUIRE_X_FILE.
set -eu
for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY FLOWER_BASIC_AUTH; do
    eval "file=\${${name}_FILE:-}"
    if [ -n "$file" ]; then
        value=$(cat "$file")
        export "$name=$value"
    fi
done
exec "$@"
