"""A database with a clock that the test moves, and short names for what tests do to it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import FakeClock, Instant
from quire.control import doctor
from quire.control import jobs as verbs
from quire.control.caller import Caller
from quire.model.contracts import JobKind
from quire.model.outcomes import Lease, Settlement
from quire.model.records import Submission, WorkerRow
from quire.model.states import TaskState
from quire.store.db.engine import Database
from quire.store.db.schema import queue as tables
from quire.store.queue import claim, kinds, owners, progress, release, settle, workers

TTL = 60.0


def _nothing(ctx: Any, **payload: Any) -> None:
    """Stand for a handler: nothing runs in these tests."""


KINDS = {
    kind.name: kind
    for kind in (
        JobKind("noop", _nothing),
        JobKind("once", _nothing, max_attempts=1, at_most_once=True, reason="it pays"),
        JobKind("other", _nothing),
        JobKind("slow", _nothing, queue="slow"),
    )
}


def ending(lease: Lease, move: str = "finish", outcome: str = "done", **more: Any) -> Settlement:
    """Say how a run ended, as its holder would."""
    return Settlement(lease.task_id, lease.fence, lease.job_id, move, outcome, **more)


class Stage:
    """One database under test."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.clock = FakeClock()
        db.clock = self.clock
        self._workers: set[str] = set()
        with db.begin() as conn:
            kinds.announce(conn, KINDS.values())

    @property
    def is_postgres(self) -> bool:
        return self.db.path is None

    def now(self) -> Instant:
        at = self.clock.now()
        return Instant(at.wall, at.wall) if self.is_postgres else at

    def caller(self, user: str = "ada", policy: str = "all", tenant: str = "default") -> Caller:
        return Caller(self.db, tenant=tenant, user=user, policy=policy, known=lambda: KINDS)

    def submit(self, *wishes: Submission, **whose: Any) -> list[int]:
        return verbs.submit(self.caller(**whose), wishes)

    def one(
        self, kind: str = "noop", *, user: str = "ada", policy: str = "all", **wish: Any
    ) -> int:
        [job_id] = self.submit(Submission(kind, **wish), user=user, policy=policy)
        return job_id

    def many(self, count: int, *, user: str = "ada", policy: str = "all", **wish: Any) -> list[int]:
        return self.submit(*[Submission("noop", **wish)] * count, user=user, policy=policy)

    def claim(
        self,
        worker: str = "w1",
        limit: int = 1,
        *,
        queue: str = "default",
        known: Collection[str] = tuple(KINDS),
        ttl: float = TTL,
        **how: Any,
    ) -> list[Lease]:
        def act(conn: sa.Connection, now: Instant) -> list[Lease]:
            if worker not in self._workers:
                row = WorkerRow(worker, "h", 1, "b", "s", "l", queue, 1, "running", 0.0, 0.0, None)
                workers.register(conn, row, list(known), now=now)
            return claim.claim(conn, worker, queue, known, now=now, ttl=ttl, limit=limit, **how)

        leases = self.db.write(act)
        self._workers.add(worker)
        self.db.write(lambda conn, now: claim.advance(conn, leases))
        return leases

    def run(self, limit: int = 1000, **how: Any) -> list[int]:
        """Claim and finish; returns the jobs in the order of the claim."""
        leases = self.claim(limit=limit, **how)
        self.settle(*(ending(lease) for lease in leases))
        return [lease.job_id for lease in leases]

    def settle(self, *endings: Settlement) -> set[int]:
        done = self.db.write(lambda conn, now: settle.settle(conn, endings, now=now))
        return {task_id for task_id, _ in done}

    def renew(self, *leases: Lease, ttl: float = TTL) -> set[int]:
        held = [(lease.task_id, lease.fence) for lease in leases]
        kept = self.db.write(lambda conn, now: settle.renew(conn, held, now=now, ttl=ttl))
        return {task_id for task_id, _ in kept}

    def report(self, lease: Lease, fraction: float | None, message: str | None = None) -> set[int]:
        told = [(lease.task_id, lease.fence, fraction, message)]
        return self.db.write(lambda conn, now: progress.report(conn, told, now=now))

    def reap(self, *dead: str) -> list[int]:
        return self.db.write(lambda conn, now: settle.reap(conn, now=now, dead=dead))

    def move_due(self) -> int:
        return self.db.write(lambda conn, now: release.release_due(conn, now=now))

    def wait_until_one_waits(self, thread: threading.Thread | None = None) -> None:
        """Return as soon as a session of this PostgreSQL database waits for a lock.

        If the thread that should wait has ended, it never will.
        """
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        waiting = 0
        while not waiting and (thread is None or thread.is_alive()):
            with self.db.read() as conn:
                waiting = conn.exec_driver_sql(query).scalar_one()

    def set_owner(self, user: str, **values: Any) -> None:
        with self.db.begin() as conn:
            owner = owners.lock_or_create(conn, "default", user)
            owners.change(conn, owner.id, **values)

    def rows(self, table: str, **where: Any) -> Sequence[Any]:
        columns = tables.metadata.tables[table]
        query = sa.select(columns).where(*(columns.c[k] == v for k, v in where.items()))
        with self.db.read() as conn:
            return conn.execute(query.order_by(*columns.primary_key)).all()

    def count(self, table: str) -> int:
        return len(self.rows(table))

    def job(self, job_id: int) -> Any:
        [row] = self.rows("jobs", id=job_id)
        return row

    def task(self, job_id: int) -> Any:
        [row] = self.rows("tasks", job_id=job_id)
        return row

    def events(self, job_id: int) -> list[str]:
        return [row.name for row in self.rows("events", job_id=job_id)]

    def outcomes(self, job_id: int) -> list[str]:
        task = self.task(job_id)
        return [row.outcome for row in self.rows("attempts", task_id=task.id)]

    def inspect(self) -> None:
        """Check what must be true after any step: counters equal counts, nothing waits for ever."""
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for task in self.rows("tasks"):
            counts[task.job_id][task.state] += 1
        for job in self.rows("jobs"):
            kept = {s.value: getattr(job, f"tasks_{s}") for s in TaskState}
            counted = {s.value: counts[job.id][s] for s in TaskState}
            assert kept == counted, f"job {job.id}: counters {kept}, counts {counted}"
        # No test sweeps at intervals: what a sweep would mend is not held against them.
        report = doctor.examine(self.db, sweep_interval=1e9)
        assert report.violations == [], report.violations
