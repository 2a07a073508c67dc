"""Queries of `explain`: what a job or a task waits for. Nothing here writes.

Every count is bounded, so an explanation costs the same with ten queued tasks and a million.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import API, LOCAL
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store.db.schema.queue import (
    attempts,
    edges,
    is_state,
    jobs,
    kinds,
    owners,
    tasks,
    workers,
)
from quire.store.queue import owners as owner_rows
from quire.store.queue import workers as worker_rows
from quire.store.queue.order import takes_turn
from quire.store.reports.tasks import by_state

t, j = tasks.c, jobs.c
#: Counting stops here; reported as "more than".
MOST = 10_000


class Before(NamedTuple):
    """A predecessor that has not ended."""

    noun: str  # job or task
    id: int
    state: str | None  # None if it was deleted
    progress: float
    on_failure: str


class Ahead(NamedTuple):
    """What is ahead of a ready task in its queue."""

    tasks: int
    owners: int


class WorkerAbilities(NamedTuple):
    """A worker that can claim tasks, with its queues and kinds."""

    id: str
    queues: frozenset[str]
    kinds: frozenset[str]
    concurrency: int


def task(conn: sa.Connection, tenant: str, task_id: int) -> Any | None:
    """Return a task of the tenant with its job, kind and owner, or None."""
    if not 0 < task_id < 2**63:
        return None
    return conn.execute(_tasks().where(t.id == task_id, owners.c.tenant == tenant)).one_or_none()


def tasks_of(conn: sa.Connection, job_id: int, states: Sequence[str], *, limit: int) -> list[Any]:
    """List tasks of a job, state by state in the order given, each oldest first."""
    return by_state(conn, _tasks().where(t.job_id == job_id), states, limit=limit)


def count_reasons(conn: sa.Connection, job_id: int) -> dict[str, int]:
    """Count the blocked tasks of a job by reason, among the first of them."""
    first = (
        sa.select(t.reason)
        .where(t.job_id == job_id, is_state(t.state, TaskState.BLOCKED))
        .order_by(t.id)
        .limit(MOST)
        .subquery()
    )
    rows = conn.execute(sa.select(first.c.reason, sa.func.count()).group_by(first.c.reason))
    return dict(rows.all())


def predecessors(conn: sa.Connection, task_id: int, *, limit: int) -> list[Before]:
    """List what a task still waits for, oldest first."""
    e = edges.c
    before = tasks.alias("before")
    rows = conn.execute(
        sa.select(
            e.before_job_id,
            e.before_task_id,
            e.on_failure,
            sa.func.coalesce(j.state, before.c.state).label("state"),
            sa.func.coalesce(j.progress, before.c.progress, 0.0).label("progress"),
        )
        .join(jobs, j.id == e.before_job_id, isouter=True)
        .join(before, before.c.id == e.before_task_id, isouter=True)
        .where(e.task_id == task_id, e.satisfied_at.is_(None))
        .order_by(e.id)
        .limit(limit)
    )
    return [
        Before("job", r.before_job_id, r.state, r.progress, r.on_failure)
        if r.before_job_id is not None
        else Before("task", r.before_task_id, r.state, r.progress, r.on_failure)
        for r in rows
    ]


def user_job_first(conn: sa.Connection, row: Any) -> Any | None:
    """Return the other job of the same user that runs before this task's job."""
    return conn.execute(
        sa.select(j.id, j.state, j.progress)
        .where(
            j.owner_id == row.owner_id,
            j.exclusive_key == row.job_exclusive_key,
            is_state(j.state, *JOB_ACTIVE),
            sa.or_(
                sa.and_(j.id < row.job_id, takes_turn(jobs)), is_state(j.state, JobState.RUNNING)
            ),
            j.id != row.job_id,
        )
        # A running job comes first.
        .order_by(j.state.desc(), j.id)
        .limit(1)
    ).one_or_none()


def ahead(conn: sa.Connection, row: Any) -> Ahead:
    """Count the ready tasks ahead of this one and their owners, up to `MOST` + 1 tasks."""
    front = (
        sa.select(t.owner_id)
        .where(
            is_state(t.state, TaskState.READY),
            t.queue == row.queue,
            sa.tuple_(t.priority, t.fair_tag, t.id)
            < sa.tuple_(sa.literal(row.priority), sa.literal(row.fair_tag), sa.literal(row.id)),
        )
        .limit(MOST + 1)
        .subquery()
    )
    count = sa.func.count
    return Ahead(*conn.execute(sa.select(count(), count(front.c.owner_id.distinct()))).one())


def running_of(conn: sa.Connection, owner_id: int) -> int:
    """Count the tasks that an owner runs."""
    return conn.execute(
        sa.select(sa.func.count()).where(
            is_state(t.state, TaskState.RUNNING), t.owner_id == owner_id
        )
    ).scalar_one()


def is_kept_from(conn: sa.Connection, row: Any, able: Sequence[WorkerAbilities]) -> bool:
    """Tell whether the children that are free for a task are kept for other tenants.

    Each worker keeps its last free child, if it runs a task of the tenant already.
    """
    if row.origin == LOCAL or not owner_rows.has_several_tenants(conn):
        return False
    is_own = sa.and_(owners.c.tenant == row.tenant, sa.func.coalesce(j.origin, API) != LOCAL)
    counted = conn.execute(
        sa.select(t.worker_id, sa.func.count(), sa.func.count(sa.case((is_own, 1))))
        .join(jobs, j.id == t.job_id)
        .join(owners, owners.c.id == t.owner_id)
        .where(is_state(t.state, TaskState.RUNNING), t.worker_id.in_([each.id for each in able]))
        .group_by(t.worker_id)
    )
    running = {worker_id: (many, own) for worker_id, many, own in counted}
    free = {each: each.concurrency - running.get(each.id, (0, 0))[0] for each in able}
    having = [each for each, many in free.items() if many > 0]
    return bool(having) and all(
        each.concurrency > 1 and free[each] == 1 and running[each.id][1] > 0 for each in having
    )


def live_workers(conn: sa.Connection, *, now: Instant, max_silence: float) -> list[WorkerAbilities]:
    """List the workers that claim tasks: not draining, with a recent heartbeat."""
    return [
        WorkerAbilities(
            worker.id, frozenset(worker.queues.split(",")), frozenset(known), worker.concurrency
        )
        for worker, known in worker_rows.kinds_served(conn)
        if worker.state == "running" and worker.heartbeat_at >= now.wall - max_silence
    ]


def holder(conn: sa.Connection, worker_id: str) -> Any | None:
    """Return the worker of that id, alive or not."""
    return conn.execute(sa.select(workers).where(workers.c.id == worker_id)).one_or_none()


def last_attempts(conn: sa.Connection, task_id: int, *, limit: int) -> Sequence[Any]:
    """List the last attempts of a task, latest first."""
    a = attempts.c
    query = sa.select(attempts).where(a.task_id == task_id).order_by(a.fence.desc())
    return conn.execute(query.limit(limit)).all()


def _tasks() -> sa.Select[Any]:
    return (
        sa.select(
            tasks,
            j.state.label("job_state"),
            j.error.label("job_error"),
            j.finished_at.label("job_finished_at"),
            j.stopped_by,
            j.stopped_why,
            j.exclusive_key.label("job_exclusive_key"),
            kinds.c.paused_at,
            owners.c.user_name,
            owners.c.tenant,
            owners.c.max_running,
            j.origin,
        )
        .join(jobs, j.id == t.job_id)
        .join(owners, owners.c.id == j.owner_id)
        .join(kinds, kinds.c.name == t.kind, isouter=True)
    )
