"""The rows of the comparison: which queues, how each is set up, and how its workers are started."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from quire.errors import BadInput, Refused

#: Worker processes of every queue: what Quire's default is, too.
PROCESSES = max(os.cpu_count() or 1, 2)
_APPS = "benchmarks.queue.peers.apps"
_FSYNC, _LATER = "yes", "1 s later"

#: Arguments for the interpreter, a list for each program to start. Told whether it is a crash test.
Commands = Callable[[bool], list[list[str]]]


class Row(NamedTuple):
    """A queue to measure."""

    name: str
    title: str
    #: Module in `apps`.
    app: str
    #: What keeps its jobs: sqlite, postgres or redis. Rows with the same are compared first.
    storage: str
    #: Number of jobs that it drains in some seconds.
    jobs: int
    #: Whether a submitted job is on disk when the call returns.
    durable: str
    #: How it is set up, for the report.
    setup: str
    commands: Commands
    #: Distributions whose versions the report names. Without the first, the row is skipped.
    packages: tuple[str, ...] = ()
    has_bulk: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether it is Quire."""
        return self.app == "quire"

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue, and not a loop that shows what the database allows."""
        return self.app != "bare"

    @property
    def servers(self) -> set[str]:
        """The servers it needs."""
        needed = {self.storage} - {"sqlite"}
        return needed | {"postgres"} if self.is_ours and self.storage == "redis" else needed


def _own(app: str, programs: int = PROCESSES) -> Commands:
    return lambda _: [["-m", f"{_APPS}.{app}"]] * programs


def _quire(_: bool) -> list[list[str]]:
    return [["-m", "quire", "up", "--no-api"]]


def _celery(_: bool) -> list[list[str]]:
    command = ["-m", "celery", "-A", f"{_APPS}.celery:app", "worker", "--loglevel", "ERROR"]
    return [[*command, "--concurrency", str(PROCESSES)]]


def _huey(_: bool) -> list[list[str]]:
    command = ["-m", "huey.bin.huey_consumer", f"{_APPS}.huey.app", "--quiet"]
    return [[*command, "--worker-type", "process", "--workers", str(PROCESSES)]]


def _dramatiq(is_crash: bool) -> list[list[str]]:
    command = ["-m", "dramatiq", f"{_APPS}.dramatiq", "--processes", str(PROCESSES)]
    return [[*command, "--threads", "1"] if is_crash else command]


_UP = "as `quire up` runs by default"
ROWS = (
    Row(
        "quire-sqlite", "Quire, SQLite", "quire", "sqlite", 60_000, _FSYNC, _UP, _quire,
        has_bulk=True,
    ),
    Row(
        "quire-postgres", "Quire, PostgreSQL", "quire", "postgres", 60_000, _FSYNC, _UP, _quire,
        has_bulk=True,
    ),
    Row(
        "quire-celery", "Quire through Celery (PostgreSQL)", "quire", "redis", 40_000, _FSYNC,
        f"{_UP} with a broker; its jobs are in PostgreSQL", _quire, has_bulk=True,
    ),
    Row(
        "pgqueuer", "PgQueuer, PostgreSQL", "pgqueuer", "postgres", 30_000, _FSYNC,
        "defaults; in the crash test one job at a time, heartbeat timeout 10 s instead of 30",
        _own("pgqueuer"), ("pgqueuer", "asyncpg"), has_bulk=True,
    ),
    Row(
        "procrastinate", "Procrastinate, PostgreSQL", "procrastinate", "postgres", 1_500, _FSYNC,
        "defaults; in the crash test with the periodic task of its manual, every 5 s, for jobs "
        "without a heartbeat for 15 s",
        _own("procrastinate"), ("procrastinate", "psycopg"), has_bulk=True,
    ),
    Row(
        "huey", "Huey, SQLite", "huey", "sqlite", 12_000, _FSYNC,
        "defaults, worker type process; it has no setting that runs a killed job again",
        _huey, ("huey",),
    ),
    Row(
        "celery", "Celery, Redis", "celery", "redis", 3_000, _LATER,
        "late acks, reject on worker lost, prefetch 1; visibility timeout 3,600 s, its default",
        _celery, ("celery", "kombu", "redis"),
    ),
    Row(
        "dramatiq", "Dramatiq, Redis", "dramatiq", "redis", 15_000, _LATER,
        "defaults, 8 threads a process; in the crash test one thread, heartbeat timeout 10 s "
        "instead of 60, 50 times as much maintenance",
        _dramatiq, ("dramatiq", "redis"),
    ),
    Row(
        "bare-sqlite", "bare SQL loop, SQLite", "bare", "sqlite", 10_000, _FSYNC,
        "WAL, synchronous=FULL, two commits a job, one process: a second would wait for the first",
        _own("bare", 1), has_bulk=True,
    ),
    Row(
        "bare-postgres", "bare SQL loop, PostgreSQL", "bare", "postgres", 8_000, _FSYNC,
        "FOR UPDATE SKIP LOCKED, two commits a job", _own("bare"), has_bulk=True,
    ),
)  # fmt: skip


def selected(wanted: Sequence[str] | None) -> list[Row]:
    """Parse --rows; without it, all rows are selected."""
    names = [part for text in wanted or () for part in text.split(",") if part]
    known = [row.name for row in ROWS]
    if unknown := [name for name in names if name not in known]:
        raise BadInput(f"--rows {unknown[0]}: there is no such row. Known: {', '.join(known)}.")
    return [row for row in ROWS if not names or row.name in names]


def versions(python: str, packages: Collection[str]) -> dict[str, str]:
    """Return the versions of those distributions that an interpreter has."""
    program = (
        "import importlib.metadata as m, json, sys\n"
        "have = {d.name.lower(): d.version for d in m.distributions() if d.name}\n"
        "print(json.dumps({p: have[p] for p in sys.argv[1:] if p in have}))"
    )
    command = [python, "-P", "-c", program, *packages]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)  # noqa: S603
    except OSError as error:
        raise Refused(f"--peers {python}: cannot be run: {error}") from error
    if ended.returncode:
        raise Refused(f"--peers {python}: {ended.stderr[-500:]}")
    found: dict[str, str] = json.loads(ended.stdout)
    return found


class Interpreters:
    """Finds for each row the interpreter that has its packages: the named one, else this one."""

    def __init__(self, named: str | None) -> None:
        packages = {package for row in ROWS for package in row.packages}
        pythons = dict.fromkeys((named or sys.executable, sys.executable))
        self._found = {python: versions(python, sorted(packages)) for python in pythons}

    def of(self, row: Row) -> str | None:
        """Return the interpreter for a row; None if none has its packages."""
        if not row.packages:
            return sys.executable
        return next((p for p, found in self._found.items() if row.packages[0] in found), None)

    def versions(self, row: Row) -> str:
        """Name the versions of a row's packages."""
        found = self._found.get(self.of(row) or "", {})
        return ", ".join(f"{name} {found[name]}" for name in row.packages if name in found)
