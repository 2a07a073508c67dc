"""Other queues, measured in the same run: their programs are run by an interpreter that has them.

PgQueuer is no dependency of Quire's: `--peers PYTHON` names an interpreter that has it. Celery is
mostly beside Quire itself.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.figures import rate
from benchmarks.queue import peer_celery
from benchmarks.site import PATIENCE, family, kill
from quire.errors import Refused

_LOOK_SECONDS = 0.02
#: Length of a line that a peer's job writes: seconds since 1970 with six places.
_LINE = 18


class Peer(NamedTuple):
    """A queue to hold Quire against: the package it is in, its program, and how many to start."""

    name: str
    package: str
    program: str
    workers: int


PGQUEUER = Peer("PgQueuer", "pgqueuer", "peer_pgqueuer.py", 2)
CELERY = Peer("plain Celery", "celery", "peer_celery.py", 1)
#: How many processes the one worker of plain Celery forks.
CELERY_CHILDREN = peer_celery.PROGRAMS


def interpreter(peer: Peer, wanted: str | None) -> str | None:
    """Return the interpreter that has the peer: the one asked for, else Quire's own; or None."""
    for python in dict.fromkeys((wanted or sys.executable, sys.executable)):
        probe = [python, "-P", "-c", f"import {peer.package}"]
        try:
            ended = subprocess.run(probe, capture_output=True, timeout=60)  # noqa: S603
        except OSError as error:
            raise Refused(f"--peers {python}: it cannot be run: {error}") from error
        if not ended.returncode:
            return python
    return None


def drained(peer: Peer, python: str, url: str, count: int) -> float:
    """Fill the peer's queue and return how fast it is worked off, by the same rule as Quire's."""
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        marks, log = Path(folder, "marks"), Path(folder, "log")
        _run(peer, python, "fill", url, str(count))
        with _working(peer, python, url, marks, log) as workers:
            end = time.monotonic() + PATIENCE * 2
            while _size(marks) < count * _LINE:
                if time.monotonic() > end or not any(one.is_running() for one in workers):
                    raise Refused(f"{peer.name}: it stopped early. Log: {log.read_text()[-2000:]}")
                time.sleep(_LOOK_SECONDS)
        return rate([float(line) for line in marks.read_text().split()])


def _size(marks: Path) -> int:
    return marks.stat().st_size if marks.exists() else 0


def _command(peer: Peer, python: str, *arguments: str) -> list[str]:
    # -P: the folder of these modules has a `queue`, which would hide the standard one.
    return [python, "-P", str(Path(__file__).with_name(peer.program)), *arguments]


def _run(peer: Peer, python: str, *arguments: str) -> None:
    command = _command(peer, python, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if ended.returncode:
        raise Refused(f"{peer.name}: it failed: {ended.stderr[-2000:]}")


@contextmanager
def _working(
    peer: Peer, python: str, url: str, marks: Path, log: Path
) -> Iterator[list[psutil.Popen]]:
    command = _command(peer, python, "work", url, str(marks))
    started: list[psutil.Popen] = []
    try:
        with log.open("wb") as file:
            for _ in range(peer.workers):
                started.append(
                    psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
                )
        yield started
    finally:
        kill([one for worker in started for one in family(worker)])
