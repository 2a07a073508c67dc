#!/bin/sh
# Creates .venv in this checkout from the lock files, or does nothing if it is up to date.
#
#   sh tools/setup.sh run     what `quire` needs
#   sh tools/setup.sh dev     the same, all extras and the test tools
#
# PYTHON=python3.12 selects the interpreter. Caches are in .cache: nothing outside the checkout
# changes.
set -eu
cd "$(dirname "$0")/.."
level=${1:-run}
case $level in
    run) lock=requirements/base.lock ;;
    dev) lock=requirements/dev.lock ;;
    *) echo "setup: unknown level '$level' (known: run, dev)" >&2; exit 2 ;;
esac

# The stamp includes the path, because an editable install breaks when the checkout is moved.
stamp() {
    echo "$1 ${PYTHON:-} $(cat requirements/*.lock pyproject.toml tools/setup.sh | cksum) $(pwd -P)"
}
current=$(cat .venv/.stamp 2>/dev/null || true)
if [ -x .venv/bin/quire ] && .venv/bin/python -c '' 2>/dev/null; then
    if [ "$current" = "$(stamp "$level")" ] || [ "$current" = "$(stamp dev)" ]; then exit 0; fi
fi

export UV_CACHE_DIR="$PWD/.cache/uv" PIP_CACHE_DIR="$PWD/.cache/pip"
export UV_PYTHON_INSTALL_DIR="$PWD/.cache/python"
export UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
uv=$(command -v uv || true)

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; }
makes_venvs() { [ -n "$uv" ] || "$1" -c 'import ensurepip, venv' 2>/dev/null; }

python='' bare=''
for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if fits "$name"; then
        if makes_venvs "$name"; then python=$name; break; fi
        bare=${bare:-$name}
    fi
done
if [ -z "$python" ] && [ -n "$bare" ]; then
    echo "setup: $bare has no venv module. Install it (Debian: apt install python3-venv) or install uv." >&2
    exit 1
fi
if [ -z "$python" ] && { [ -z "$uv" ] || [ -n "${PYTHON:-}" ]; }; then
    echo "setup: no CPython 3.11, 3.12 or 3.13 as ${PYTHON:-python3}. Install one, or install uv, which downloads one." >&2
    exit 1
fi

echo "setup: .venv from $lock with ${uv:-pip} (the first time takes a minute)"
rm -f .venv/.stamp
if [ -n "$uv" ]; then
    "$uv" venv --quiet --clear --no-project --python "${python:->=3.11,<3.14}" .venv
    install() { "$uv" pip install --quiet --python .venv/bin/python "$@"; }
else
    "$python" -m venv --clear .venv
    install() { .venv/bin/python -m pip install --quiet "$@"; }
fi
# Only wheels: building from source needs a compiler and runs code that is not in the lock.
install --require-hashes --only-binary :all: -r "$lock" -r requirements/build.lock
install --no-deps --no-build-isolation --editable .
stamp "$level" > .venv/.stamp
