"""Where a test run keeps its files: one folder a run, inside the checkout, gone at the end.

The path is kept short, because a UNIX socket cannot be bound at more than about 100
characters and both PostgreSQL and Quire bind sockets in here. Only a checkout that is itself
too deep for that gets its folder from the system's temporary folder instead.
A run holds a lock on its folder; who can take that lock knows that the run died, and sweeps.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests import brokers, postgres

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
#: The run's folder, for the worker processes of xdist.
RUN_VARIABLE = "QUIRE_TEST_RUN"
#: Leaves 40 characters for a home of its own and the name of a socket in it.
LONGEST_RUN_PATH = 60


class Run:
    """The folder of one test run, held by a lock from begin to end."""

    def __init__(self) -> None:
        CACHE.mkdir(exist_ok=True)
        with locked(CACHE / "runs.lock"):
            _sweep()
            parent, prefix = _place()
            self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self._lock = _hold(self.folder / "alive")
            self._lock.write(str(ROOT))
            self._lock.flush()

    def end(self) -> None:
        """Stop what still runs in the folder, by its pid file, and remove it."""
        _remove(self.folder)
        self._lock.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between the processes of a run."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def use_checkout_for_temporary_files() -> None:
    """Point TMPDIR into the checkout, for this process and those that it starts."""
    folder = CACHE / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def keep_bytecode() -> None:
    """Compile each module once a checkout, not once in each of the thousands of programs.

    An installer may have left no bytecode, and the environment may forbid to write it: then
    compiling is more than half of the start of a worker.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(CACHE / "pyc")
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(CACHE / "pyc")


def _place() -> tuple[Path, str]:
    inside = CACHE / "t"
    if len(str(inside / "r12345678")) <= LONGEST_RUN_PATH:
        inside.mkdir(exist_ok=True)
        return inside, "r"
    return Path("/tmp"), "quire-"


def _hold(path: Path) -> IO[str]:
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def _sweep() -> None:
    parent, prefix = _place()
    for path in parent.glob(f"{prefix}*/alive"):
        if path.stat().st_uid != os.getuid() or path.read_text() != str(ROOT):
            continue
        try:
            lock = _hold(path)
        except BlockingIOError:
            continue
        with lock:
            _remove(path.parent)


def _remove(folder: Path) -> None:
    for pid_file in folder.glob("*/postmaster.pid"):
        # A server that died with its machine has left the file: there is nothing to stop.
        with suppress(RuntimeError):
            postgres.Server(pid_file.parent).stop("immediate")
    for known in folder.glob("*/epmd.pid"):
        brokers.end_rabbit(known.parent)
    shutil.rmtree(folder, ignore_errors=True)
