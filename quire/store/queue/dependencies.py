"""Dependencies: an edge says that a task waits for another task, or for a whole job.

When a predecessor ends, its edges are marked as satisfied once, and the successor's `waits` is
lowered in the same transaction, under the lock of the successor's job: of two predecessors that
end at the same time, exactly one sees the count reach zero.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import TASK_OPEN, JobState, Reason, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.schema.queue import edges, is_state, jobs, tasks
from quire.store.queue import job_transition

t = tasks.c
#: States of a job in which nothing waits for it.
OVER = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
SUCCEEDED = (TaskState.DONE.value, TaskState.SKIPPED.value, JobState.COMPLETED.value)


def add(conn: sa.Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Insert edges (before_job_id, before_task_id, task_id, on_failure)."""
    columns = ("before_job_id", "before_task_id", "task_id", "on_failure")
    bulk.bulk_insert(conn, edges, columns, rows)


def mark_predecessors(conn: sa.Connection, job_ids: Collection[int]) -> dict[int, str]:
    """Mark jobs, whose rows are locked, as having successors; returns the state of each."""
    wanted = sorted(job_ids)
    found = conn.execute(
        sa.update(jobs)
        .where(jobs.c.id.in_(wanted))
        .values(has_successors=True)
        .returning(jobs.c.id, jobs.c.state)
    )
    return {row.id: row.state for row in found}


def satisfy(
    conn: sa.Connection, noun: str, ended: Mapping[int, str | None], *, now: Instant
) -> tuple[list[int], dict[int, str | None]]:
    """Mark the edges of tasks or jobs (`noun`) that ended, given the state each ended in.

    Returns the tasks that wait for nothing any more, and the tasks to cancel with the reason: None
    if the predecessor was cancelled with its job (its state is given as None), of which they are
    too. The successors of a task are in its job, which is locked. Those of a job are in others, of
    which not all can be waited for: the sweep finds what is left (`late_jobs`).
    """
    if not ended:
        return [], {}
    over = dialect.encode_ids(conn, sorted(ended))
    values = {"over": over, "wall": now.wall}
    if noun == "job":
        values["free"] = dialect.encode_ids(conn, _lock_successors(conn, over))
    met = conn.execute(_mark(conn, noun), values).all()
    cancelled = {
        row.task_id: f"{noun} {row.before}, which it waited for, ended {state}" if state else None
        for row in met
        for state in [ended[row.before]]
        if row.on_failure == "cancel" and state not in SUCCEEDED
    }
    fewer = Counter(row.task_id for row in met)
    dialect.lock_rows(conn, tasks, list(fewer))
    rows = conn.execute(_lower(conn), {"fewer": dialect.encode_rows(sorted(fewer.items()))})
    free = {row.id for row in rows if not row.waits and row.reason == Reason.AFTER}
    return sorted(free - set(cancelled)), cancelled


def late_jobs(conn: sa.Connection, limit: int = 200) -> list[int]:
    """List jobs that have ended and that a task still waits for."""
    is_open = edges.c.satisfied_at.is_(None), edges.c.before_job_id.is_not(None)
    over = sa.select(jobs.c.id).join(edges, edges.c.before_job_id == jobs.c.id)
    over = over.where(*is_open, is_state(jobs.c.state, *OVER))
    return list(conn.scalars(over.distinct().limit(limit)))


def _lock_successors(conn: sa.Connection, over: Any) -> list[int]:
    """Lock the jobs of tasks that wait for jobs, if that is possible; returns these tasks."""
    rows = conn.execute(_successors(conn), {"over": over}).all()
    locked = job_transition.lock(conn, {row.job_id for row in rows})
    return [row.id for row in rows if row.job_id in locked]


@dialect.statement
def _successors(conn: sa.Connection) -> sa.Select[Any]:
    return (
        sa.select(t.id, t.job_id)
        .join(edges, edges.c.task_id == t.id)
        .where(dialect.id_in(conn, edges.c.before_job_id, "over"), edges.c.satisfied_at.is_(None))
    )


@dialect.statement
def _mark(conn: sa.Connection, noun: str) -> sa.Update:
    before = edges.c[f"before_{noun}_id"]
    also = [dialect.id_in(conn, edges.c.task_id, "free")] if noun == "job" else []
    return (
        sa.update(edges)
        .where(dialect.id_in(conn, before, "over"), edges.c.satisfied_at.is_(None), *also)
        .values(satisfied_at=sa.bindparam("wall", type_=sa.Double))
        .returning(edges.c.task_id, edges.c.on_failure, before.label("before"))
    )


@dialect.statement
def _lower(conn: sa.Connection) -> sa.Update:
    f = dialect.json_rows(conn, "fewer", {"id": "int", "count": "int"})
    return (
        sa.update(tasks)
        .where(t.id == f.c.id)
        .values(waits=t.waits - f.c.count)
        .returning(t.id, t.waits, t.reason)
    )


def reopen(conn: sa.Connection, task_ids: Sequence[int]) -> None:
    """Make tasks wait again for predecessors that run again."""
    if not task_ids:
        return
    e, before = edges.c, tasks.alias("before")
    mine = {"mine": dialect.encode_ids(conn, task_ids)}
    was_met = sa.and_(
        dialect.id_in(conn, e.task_id, "mine"),
        e.before_task_id.is_not(None),
        e.satisfied_at.is_not(None),
    )
    # Locked before their states are read: one that ends now is not waited for.
    ids = conn.scalars(sa.select(e.before_task_id).where(was_met), mine)
    dialect.lock_rows(conn, tasks, sorted(set(ids)))
    is_open = is_state(before.c.state, *TASK_OPEN)
    still_open = sa.exists().where(before.c.id == e.before_task_id, is_open)
    again = sa.update(edges).where(was_met, still_open).values(satisfied_at=None)
    if more := Counter(conn.scalars(again.returning(e.task_id), mine)):
        m = dialect.json_rows(conn, "more", {"id": "int", "count": "int"})
        conn.execute(
            sa.update(tasks).where(t.id == m.c.id).values(waits=t.waits + m.c.count),
            {"more": dialect.encode_rows(sorted(more.items()))},
        )
