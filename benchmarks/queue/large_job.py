"""Verbs on one job of many tasks: how long each takes, and the longest of its transactions.

Nothing may hold its locks for longer than a second, however large a job is.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.installation import Backend, Installation
from benchmarks.queue.claim import copying
from benchmarks.queue.sizes import Sizes
from quire.control import jobs
from quire.control.caller import Caller
from quire.model.records import Submission
from quire.store.db.engine import Database

Verb = Callable[[Caller, list[int]], object]
#: In an order in which each may follow the one before.
VERBS: tuple[tuple[str, Verb], ...] = (
    ("stop", jobs.stop),
    ("resume", jobs.resume),
    ("reprioritise", lambda caller, ids: jobs.reprioritise(caller, ids, 3)),
    ("cancel", jobs.cancel),
    ("retry", jobs.retry),
    ("cancel again", jobs.cancel),
    ("delete", jobs.delete),
)


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Apply one verb after another to a job of many ready tasks."""
    with backend.installation() as installation:
        job_id = _plant(installation, sizes.large)
        caller = installation.caller("bench")
        for name, act in VERBS:
            with _transactions(installation.app.db) as spans:
                act(caller, [job_id])
            note = f"{len(spans)} transactions"
            total = sum(wall for wall, _ in spans)
            yield Figure(f"{name}, {sizes.large:,} tasks", total, "s", note=note)
            longest, most = (max(each) * 1e3 for each in zip(*spans, strict=True))
            note = f"{most:.0f} ms of CPU time, at most"
            yield Figure(f"{name}, longest transaction", longest, "ms", None, at_most(1_000), note)
        if left := installation.count("tasks"):
            raise AssertionError(f"{left} tasks are left of a deleted job")


def _plant(installation: Installation, count: int) -> int:
    """Submit a job, and copy its task."""
    [job_id] = jobs.submit(installation.caller("bench"), [Submission("bench.noop")])
    changed = {"id": "1000000000 + n", "fair_tag": "n + 1"}
    installation.run(
        copying(installation, "tasks", changed, f"job_id = {job_id}", count - 1),
        f"UPDATE jobs SET tasks_ready = {count}, cost_total = {count} WHERE id = {job_id}",  # noqa: S608
        "ANALYZE",
    )
    return job_id


@contextmanager
def _transactions(db: Database) -> Iterator[list[tuple[float, float]]]:
    """Collect what each write transaction takes with its commit: time, and CPU time.

    The CPU time is that of this process and of its session in the server, if that is here.
    """
    spans: list[tuple[float, float]] = []
    begin = db.begin

    @contextmanager
    def timed(**how: Any) -> Iterator[Any]:
        began = time.perf_counter()
        with begin(**how) as conn:
            session = _session(db, conn)
            busy = _cpu_seconds(session)
            yield conn
        spans.append((time.perf_counter() - began, _cpu_seconds(session) - busy))

    db.begin = timed  # type: ignore[method-assign]
    try:
        yield spans
    finally:
        del db.begin


def _session(db: Database, conn: Any) -> psutil.Process | None:
    """Find the server's process for a connection; it is not here if the server is elsewhere."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        if not db.is_embedded:
            return psutil.Process(conn.connection.driver_connection.info.backend_pid)
    return None


def _cpu_seconds(session: psutil.Process | None) -> float:
    spent = time.process_time()
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        if session is not None:
            times = session.cpu_times()
            spent += float(times.user + times.system)
    return spent
