"""A job's counters, state and progress, kept by one UPDATE per job and batch.

Whoever moves tasks adds up what moved and calls `bump` in the same transaction. The job's own
state follows from its counters; `doctor` compares them with the tasks themselves.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store import dialect
from quire.store.tables import is_state, jobs

_COUNTERS = {f"tasks_{state}": "int" for state in TaskState}
_COLUMNS = {
    "id": "int",
    **_COUNTERS,
    "cost_total": "float",
    "cost_done": "float",
    "retries": "int",
    "worker_id": "text",
    "error": "text",
    "result": "text",
}


class Touched(NamedTuple):
    """A job after a bump; `ended` where this bump ended it."""

    id: int
    state: str
    ended: bool
    owner_id: int
    exclusive_key: str | None
    has_successors: bool
    error: str | None


class Delta:
    """What a transaction changes about one job."""

    __slots__ = ("cost_done", "cost_total", "error", "moved", "result", "retries", "worker_id")

    def __init__(self) -> None:
        self.moved: dict[str, int] = dict.fromkeys(TaskState, 0)
        self.cost_total = self.cost_done = 0.0
        self.retries = 0
        self.worker_id: str | None = None
        self.error: str | None = None
        self.result: str | None = None

    def move(self, source: str | None, target: str | None, count: int = 1) -> None:
        """Count tasks that left one state and entered another."""
        if source is not None:
            self.moved[source] -= count
        if target is not None:
            self.moved[target] += count


class Deltas(dict[int, Delta]):
    """The changes of one transaction, by job."""

    def __missing__(self, job_id: int) -> Delta:
        self[job_id] = delta = Delta()
        return delta


def bump(conn: sa.Connection, deltas: Mapping[int, Delta], *, now: Instant) -> list[Touched]:
    """Apply the changes and let each job's state follow; returns the jobs touched."""
    if not deltas:
        return []
    ids = sorted(deltas)
    dialect.lock_rows(conn, jobs, ids)
    values = [
        [
            job_id,
            *(d := deltas[job_id]).moved.values(),
            d.cost_total,
            d.cost_done,
            d.retries,
            d.worker_id,
            d.error,
            d.result,
        ]
        for job_id in ids
    ]
    found = conn.execute(
        _statement(conn), {"delta": dialect.packed(values), "wall": now.wall}
    ).all()
    return [
        Touched(r.id, r.state, r.ended, r.owner_id, r.exclusive_key, r.has_successors, r.error)
        for r in found
    ]


_compiled: dict[bool, sa.Update] = {}


def _statement(conn: sa.Connection) -> sa.Update:
    # Built once: the expression tree is large, and this runs with every claim and settle.
    embedded = dialect.is_sqlite(conn)
    if embedded not in _compiled:
        _compiled[embedded] = _build(conn)
    return _compiled[embedded]


def _build(conn: sa.Connection) -> sa.Update:
    d = dialect.rows(conn, "delta", _COLUMNS)
    j = jobs.c
    wall = sa.bindparam("wall", type_=sa.Double)
    after = {state: j[f"tasks_{state}"] + d.c[f"tasks_{state}"] for state in TaskState}
    is_open = after["blocked"] + after["ready"] + after["running"] > 0
    is_active = is_state(j.state, *JOB_ACTIVE)
    ends = sa.and_(is_active, sa.not_(is_open))
    done = j.cost_done + d.c.cost_done
    total = j.cost_total + d.c.cost_total
    state = sa.case(
        (sa.not_(is_active), j.state),
        (sa.and_(is_open, after["running"] > 0), JobState.RUNNING.value),
        (is_open, j.state),
        (after["failed"] + after["lost"] > 0, JobState.FAILED.value),
        (after["cancelled"] > 0, JobState.CANCELLED.value),
        else_=JobState.COMPLETED.value,
    )
    succeeded = sa.and_(ends, after["failed"] + after["lost"] + after["cancelled"] == 0)
    fraction = sa.case((total > 0, done / total), else_=0.0)
    smaller = sa.case((fraction > 1, 1.0), else_=fraction)
    return (
        sa.update(jobs)
        .where(j.id == d.c.id)
        .values(
            **{f"tasks_{state}": value for state, value in after.items()},
            state=state,
            cost_total=total,
            cost_done=done,
            progress=sa.case((succeeded, 1.0), else_=dialect.greatest(conn, j.progress, smaller)),
            retry_count=j.retry_count + d.c.retries,
            worker_id=sa.func.coalesce(d.c.worker_id, j.worker_id),
            error=sa.case((succeeded, sa.null()), else_=sa.func.coalesce(d.c.error, j.error)),
            result=sa.func.coalesce(d.c.result, j.result),
            started_at=sa.case(
                (sa.and_(j.started_at.is_(None), after["running"] > 0), wall), else_=j.started_at
            ),
            finished_at=sa.case((ends, wall), else_=j.finished_at),
        )
        .returning(
            j.id,
            j.state,
            (j.finished_at == wall).label("ended"),
            j.owner_id,
            j.exclusive_key,
            j.has_successors,
            j.error,
        )
    )


def ended(touched: Iterable[Touched]) -> list[Touched]:
    """Pick the jobs that ended."""
    return [job for job in touched if job.ended]
