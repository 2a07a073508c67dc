"""Measures other queues in the same run, as programs for an interpreter that has them.

PgQueuer is not a dependency of Quire: `--peers PYTHON` names an interpreter that has it. Celery is
usually installed with Quire.
"""

import dataclasses
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, at_least, rate
from benchmarks.installation import WAIT_SECONDS, Backend, kill, process_tree
from benchmarks.queue import drain, peer_celery
from benchmarks.queue.sizes import Sizes
from quire.errors import Refused

_LOOK_SECONDS = 0.02
#: Length of the line that each job of a peer writes: seconds since 1970 with six decimals.
_LINE = 18


class Peer(NamedTuple):
    """A queue to compare with: its package, our program for it, and how many to start."""

    name: str
    package: str
    program: str
    workers: int


PGQUEUER = Peer("PgQueuer", "pgqueuer", "peer_pgqueuer.py", 2)
CELERY = Peer("plain Celery", "celery", "peer_celery.py", 1)
#: Processes that the one worker of plain Celery forks.
CELERY_CHILDREN = peer_celery.PROGRAMS


def interpreter(peer: Peer, wanted: str | None) -> str | None:
    """Return an interpreter that has the peer: the named one, else this one; None without any."""
    for python in dict.fromkeys((wanted or sys.executable, sys.executable)):
        probe = [python, "-P", "-c", f"import {peer.package}"]
        try:
            ended = subprocess.run(probe, capture_output=True, timeout=60)  # noqa: S603
        except OSError as error:
            raise Refused(f"--peers {python}: cannot be run: {error}") from error
        if not ended.returncode:
            return python
    return None


def why_no_pgqueuer(sizes: Sizes) -> str | None:
    """Return why PgQueuer cannot be measured; None if it can."""
    if interpreter(PGQUEUER, sizes.peer_python) is not None:
        return None
    whose = sizes.peer_python or "this Python"
    return f"{whose} has no pgqueuer; name an interpreter that has it with --peers PYTHON"


def measure_pgqueuer(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Drain no-op jobs with two processes each, alternating between Quire and PgQueuer."""
    python = interpreter(PGQUEUER, sizes.peer_python)
    if backend.name == "sqlite" or python is None:
        return
    sizes = dataclasses.replace(sizes, drain=sizes.peer_drain)
    ours, theirs = [], []
    for _ in range(sizes.drain_rounds):
        ours.append(drain.drained(backend, sizes, is_mixed=False).rate)
        with backend.database() as url:
            theirs.append(drained(PGQUEUER, python, url, sizes.peer_drain))
    baseline = median(theirs)
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    note = f"{sizes.drain:,} jobs; bare: PgQueuer; {min(ratios):.2f} to {max(ratios):.2f} × it"
    name = "drain, compared with PgQueuer"
    yield Figure(name, median(ours), "jobs/s", baseline, at_least(baseline), note)


def drained(peer: Peer, python: str, url: str, count: int) -> float:
    """Fill the peer's queue and return its rate, computed as for Quire."""
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        marks, log = Path(folder, "marks"), Path(folder, "log")
        _run(peer, python, "fill", url, str(count))
        with _working(peer, python, url, marks, log) as workers:
            end = time.monotonic() + WAIT_SECONDS * 2
            while _size(marks) < count * _LINE:
                if time.monotonic() > end or not any(one.is_running() for one in workers):
                    raise Refused(f"{peer.name}: stopped early. Log: {log.read_text()[-2000:]}")
                time.sleep(_LOOK_SECONDS)
        return rate([float(line) for line in marks.read_text().split()])


def _size(marks: Path) -> int:
    return marks.stat().st_size if marks.exists() else 0


def _command(peer: Peer, python: str, *arguments: str) -> list[str]:
    # -P: without it, this folder would be on sys.path, and its modules hide others.
    return [python, "-P", str(Path(__file__).with_name(peer.program)), *arguments]


def _run(peer: Peer, python: str, *arguments: str) -> None:
    command = _command(peer, python, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if ended.returncode:
        raise Refused(f"{peer.name}: failed: {ended.stderr[-2000:]}")


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
        kill([one for worker in started for one in process_tree(worker)])
