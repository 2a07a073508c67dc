"""A job's counters, state and progress, kept by one UPDATE per job and batch.

Whoever moves tasks adds up what moved and calls `bump` in the same transaction. The job's own
state follows from its counters; `doctor` compares them with the tasks themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, tasks

#: States in which a task's cost is no longer outstanding; of a part of a job, `_GIVEN_UP` too.
_COUNTED = (TaskState.DONE.value, TaskState.SKIPPED.value)
_GIVEN_UP = (TaskState.FAILED.value, TaskState.LOST.value)
_PLACE = {state.value: at for at, state in enumerate(TaskState)}
_EXTRAS = {
    "cost_total": "float",
    "cost_done": "float",
    "retry_count": "int",
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

    __slots__ = ("cost_done", "cost_total", "error", "moved", "result", "retry_count", "worker_id")

    def __init__(self) -> None:
        self.moved = [0] * len(_PLACE)
        self.cost_total = self.cost_done = 0.0
        self.retry_count = 0
        self.worker_id: str | None = None
        self.error: str | None = None
        self.result: str | None = None

    def move(self, source: str | None, target: str | None, count: int = 1) -> None:
        """Count tasks that left one state and entered another."""
        if source is not None:
            self.moved[_PLACE[source]] -= count
        if target is not None:
            self.moved[_PLACE[target]] += count

    def leave(self, source: str, row: Any) -> None:
        """Count a task that left a state (state, cost, parent_id, document_id)."""
        self.move(source, row.state)
        if is_over(row.state, row.parent_id, row.document_id):
            self.cost_done += row.cost

    def gained(self, state: str) -> int:
        """Return by how many tasks a state has grown."""
        return self.moved[_PLACE[state]]


def is_over(state: str, parent_id: int | None, document_id: int | None) -> bool:
    """Tell whether a task's cost counts as done: a file that failed is not waited for any more.

    A task that stands for no file and no part of one is its job: its failure is no progress.
    """
    is_part = parent_id is not None or document_id is not None
    return state in _COUNTED or (is_part and state in _GIVEN_UP)


def over() -> sa.ColumnElement[bool]:
    """Say the same of a task's row."""
    t = tasks.c
    is_part = sa.or_(t.parent_id.is_not(None), t.document_id.is_not(None))
    return sa.or_(is_state(t.state, *_COUNTED), sa.and_(is_part, is_state(t.state, *_GIVEN_UP)))


class Deltas(dict[int, Delta]):
    """The changes of one transaction, by job."""

    def __missing__(self, job_id: int) -> Delta:
        self[job_id] = delta = Delta()
        return delta


def bump(
    conn: sa.Connection, deltas: Mapping[int, Delta], *, now: Instant, are_locked: bool = False
) -> list[Touched]:
    """Apply the changes and let each job's state follow; returns the jobs touched."""
    if not deltas:
        return []
    ids = sorted(deltas)
    if not are_locked:
        dialect.lock_rows(conn, jobs, ids)
    changes = [deltas[job_id] for job_id in ids]
    # Only what changed is sent: most batches move tasks between two states and nothing else.
    places = [at for at in _PLACE.values() if any(d.moved[at] for d in changes)]
    extras = [name for name in _EXTRAS if any(getattr(d, name) for d in changes)]
    values = [
        [i, *[d.moved[at] for at in places], *[getattr(d, name) for name in extras]]
        for i, d in zip(ids, changes, strict=True)
    ]
    key = ("bump", tuple(places), tuple(extras))
    statement = dialect.cached(conn, key, lambda: _bumping(conn, places, extras))
    found = conn.execute(statement, {"delta": dialect.encode_rows(values), "wall": now.wall}).all()
    return [Touched(*row) for row in found]


def start(conn: sa.Connection, claimed: Mapping[int, int], worker_id: str, *, now: Instant) -> None:
    """Count tasks of locked, active jobs as running: the short form of `bump` for a claim."""
    if not claimed:
        return
    statement = dialect.cached(conn, "start", lambda: _starting(conn))
    values = {"begun": dialect.encode_rows(sorted(claimed.items())), "wall": now.wall}
    conn.execute(statement, {**values, "worker": worker_id})


def _starting(conn: sa.Connection) -> sa.Update:
    b = dialect.json_rows(conn, "begun", {"id": "int", "count": "int"})
    j = jobs.c
    return (
        sa.update(jobs)
        .where(j.id == b.c.id)
        .values(
            tasks_ready=j.tasks_ready - b.c.count,
            tasks_running=j.tasks_running + b.c.count,
            state=JobState.RUNNING.value,
            started_at=sa.func.coalesce(j.started_at, sa.bindparam("wall", type_=sa.Double)),
            worker_id=sa.bindparam("worker", type_=sa.Text),
        )
    )


def _bumping(conn: sa.Connection, places: Sequence[int], extras: Sequence[str]) -> sa.Update:
    states = [state for state, at in _PLACE.items() if at in places]
    d = dialect.json_rows(
        conn,
        "delta",
        {"id": "int", **{f"tasks_{s}": "int" for s in states}, **{n: _EXTRAS[n] for n in extras}},
    )
    j = jobs.c
    wall = sa.bindparam("wall", type_=sa.Double)
    after: dict[str, Any] = {s: j[f"tasks_{s}"] for s in _PLACE}
    after.update({s: j[f"tasks_{s}"] + d.c[f"tasks_{s}"] for s in states})
    is_open = after["blocked"] + after["ready"] + after["running"] > 0
    is_active = is_state(j.state, *JOB_ACTIVE)
    ends = sa.and_(is_active, sa.not_(is_open))
    spoilt = after["failed"] + after["lost"] + after["cancelled"]
    succeeded = sa.and_(ends, spoilt == 0)
    done = j.cost_done + d.c.cost_done if "cost_done" in extras else j.cost_done
    total = j.cost_total + d.c.cost_total if "cost_total" in extras else j.cost_total
    fraction = sa.case(
        (j.is_growing, 0.0), (sa.or_(total <= 0, done > total), 1.0), else_=done / total
    )
    error = sa.func.coalesce(d.c.error, j.error) if "error" in extras else j.error
    values: dict[str, Any] = {f"tasks_{s}": after[s] for s in states}
    values.update(
        state=sa.case(
            (sa.not_(is_active), j.state),
            (sa.and_(is_open, after["running"] > 0), JobState.RUNNING.value),
            (is_open, j.state),
            (after["failed"] + after["lost"] > 0, JobState.FAILED.value),
            (after["cancelled"] > 0, JobState.CANCELLED.value),
            else_=JobState.COMPLETED.value,
        ),
        progress=sa.case((succeeded, 1.0), else_=dialect.greatest(conn, j.progress, fraction)),
        error=sa.case((succeeded, sa.null()), else_=error),
        finished_at=sa.case((ends, wall), else_=j.finished_at),
    )
    for name in extras:
        if name in ("cost_done", "cost_total", "retry_count"):
            values[name] = j[name] + d.c[name]
        elif name != "error":
            values[name] = sa.func.coalesce(d.c[name], j[name])
    if "running" in states:
        first = sa.and_(j.started_at.is_(None), after["running"] > 0)
        values["started_at"] = sa.case((first, wall), else_=j.started_at)
    is_ended = (j.finished_at == wall).label("ended")
    return (
        sa.update(jobs)
        .where(j.id == d.c.id)
        .values(**values)
        .returning(j.id, j.state, is_ended, j.owner_id, j.exclusive_key, j.has_successors, j.error)
    )


def ended(touched: Iterable[Touched]) -> list[Touched]:
    """Pick the jobs that ended."""
    return [job for job in touched if job.ended]
