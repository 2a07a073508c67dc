"""Dependencies: an edge says that a task waits for another task, or for a whole job.

When a predecessor ends, its edges are marked satisfied once, and each successor loses their
count in the same transaction. Two predecessors that end at the same instant meet on the
successor's row lock, so exactly one of them sees the count reach zero.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import EndedTask
from quire.model.states import JOB_ACTIVE, JobState, Reason, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import edges, is_state, jobs, tasks
from quire.store.queue import events, release
from quire.store.queue.counters import Deltas, bump, ended

t = tasks.c
SUCCEEDED = (TaskState.DONE.value, TaskState.SKIPPED.value, JobState.COMPLETED.value)


def add(conn: sa.Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Insert edges (before_job_id, before_task_id, task_id, on_failure)."""
    columns = ("before_job_id", "before_task_id", "task_id", "on_failure")
    bulk.bulk_insert(conn, edges, columns, rows)


def lock_predecessors(conn: sa.Connection, job_ids: Collection[int]) -> dict[int, str]:
    """Mark jobs as having successors; returns the state of each that exists, locked."""
    if not job_ids:
        return {}
    wanted = sorted(job_ids)
    dialect.lock_rows(conn, jobs, wanted)
    found = conn.execute(
        sa.update(jobs)
        .where(jobs.c.id.in_(wanted))
        .values(has_successors=True)
        .returning(jobs.c.id, jobs.c.state)
    )
    return {row.id: row.state for row in found}


def satisfy_tasks(conn: sa.Connection, over: Mapping[int, str], *, now: Instant) -> None:
    """Let go of the successors of tasks that ended, given the state each ended in."""
    _satisfy(conn, edges.c.before_task_id, over, "task", now)


def satisfy_jobs(conn: sa.Connection, over: Mapping[int, str], *, now: Instant) -> None:
    """Let go of the successors of jobs that ended, given the state each ended in."""
    _satisfy(conn, edges.c.before_job_id, over, "job", now)


def _satisfy(
    conn: sa.Connection, before: sa.Column[Any], over: Mapping[int, str], noun: str, now: Instant
) -> None:
    if not over:
        return
    statement = dialect.cached(conn, ("satisfy", before.name), lambda: _satisfying(conn, before))
    values = {"over": dialect.encode_ids(conn, sorted(over)), "wall": now.wall}
    met = conn.execute(statement, values).all()
    doomed = {
        row.task_id: f"{noun} {row.before}, which it waited for, ended {over[row.before]}"
        for row in met
        if row.on_failure == "cancel" and over[row.before] not in SUCCEEDED
    }
    fewer = Counter(row.task_id for row in met)
    free = _lower(conn, fewer)
    release.release(conn, sorted(set(free) - set(doomed)), now=now, lock_owners=False)
    cancel_tasks(conn, doomed, now=now)


def _satisfying(conn: sa.Connection, before: sa.Column[Any]) -> sa.Update:
    return (
        sa.update(edges)
        .where(dialect.id_in(conn, before, "over"), edges.c.satisfied_at.is_(None))
        .values(satisfied_at=sa.bindparam("wall", type_=sa.Double))
        .returning(edges.c.task_id, edges.c.on_failure, before.label("before"))
    )


def _lower(conn: sa.Connection, fewer: Mapping[int, int]) -> list[int]:
    """Take the satisfied edges off each successor's count; returns those that reached zero."""
    if not fewer:
        return []
    dialect.lock_rows(conn, tasks, list(fewer))
    statement = dialect.cached(conn, "edges.lower", lambda: _lowering(conn))
    rows = conn.execute(statement, {"fewer": dialect.encode_rows(sorted(fewer.items()))})
    return [r.id for r in rows if not r.waits and r.reason == Reason.AFTER]


def _lowering(conn: sa.Connection) -> sa.Update:
    f = dialect.json_rows(conn, "fewer", {"id": "int", "count": "int"})
    return (
        sa.update(tasks)
        .where(t.id == f.c.id)
        .values(waits=t.waits - f.c.count)
        .returning(t.id, t.waits, t.state, t.reason)
    )


def cancel_tasks(conn: sa.Connection, doomed: Mapping[int, str], *, now: Instant) -> None:
    """Cancel waiting tasks, each with its reason, and whatever waits for them in turn."""
    if not doomed:
        return
    d = dialect.json_rows(conn, "doomed", {"id": "int", "error": "text"})
    rows = conn.execute(
        sa.update(tasks)
        .where(t.id == d.c.id, is_state(t.state, TaskState.BLOCKED))
        .values(
            state=TaskState.CANCELLED.value,
            reason=None,
            due_at=None,
            error=d.c.error,
            finished_at=now.wall,
        )
        .returning(
            t.id, t.job_id, t.has_successors, t.error, t.document_id, t.generation, t.from_page
        ),
        {"doomed": dialect.encode_rows(sorted(doomed.items()))},
    ).all()
    deltas = Deltas()
    for row in rows:
        deltas[row.job_id].move(TaskState.BLOCKED, TaskState.CANCELLED)
        deltas[row.job_id].error = row.error
    cancelled = TaskState.CANCELLED.value
    of_documents = [
        EndedTask(r.id, "cancel", cancelled, r.document_id, r.generation, r.from_page, r.error)
        for r in rows
        if r.document_id is not None
    ]
    if of_documents:
        on_ended(conn).tasks_ended(conn, of_documents, now=now)
    # A job that was itself cancelled in this transaction has told so already.
    active = _active_of(conn, deltas)
    over = [j for j in ended(bump(conn, deltas, now=now)) if j.id in active]
    events.record(
        conn,
        [events.Event(j.id, f"job.{j.state}", None, {"error": j.error}) for j in over],
        now=now,
    )
    # Recursion ends: edges form no cycle, and each is satisfied once.
    satisfy_tasks(conn, {r.id: TaskState.CANCELLED for r in rows if r.has_successors}, now=now)
    satisfy_jobs(conn, {j.id: j.state for j in over if j.has_successors}, now=now)
    let_next_job_go(conn, {j.owner_id for j in over if j.exclusive_key}, now=now)


def _active_of(conn: sa.Connection, job_ids: Collection[int]) -> set[int]:
    j = jobs.c
    query = sa.select(j.id).where(j.id.in_(sorted(job_ids)), is_state(j.state, *JOB_ACTIVE))
    return set(conn.scalars(query))


def reopen(conn: sa.Connection, task_ids: Sequence[int]) -> None:
    """Let tasks that run again wait for those of them that they waited for the first time."""
    back = sa.and_(
        edges.c.task_id.in_(task_ids),
        edges.c.before_task_id.in_(task_ids),
        edges.c.satisfied_at.is_not(None),
    )
    waiting = Counter(
        conn.scalars(
            sa.update(edges).where(back).values(satisfied_at=None).returning(edges.c.task_id)
        )
    )
    for task_id, count in sorted(waiting.items()):
        conn.execute(sa.update(tasks).where(t.id == task_id).values(waits=t.waits + count))


def let_next_job_go(conn: sa.Connection, owner_ids: Collection[int], *, now: Instant) -> int:
    """Release what waited for another job of the same owners to end."""
    if not owner_ids:
        return 0
    waiting = conn.scalars(
        sa.select(t.id)
        .join(jobs, jobs.c.id == t.job_id)
        .where(
            is_state(t.state, TaskState.BLOCKED),
            t.reason == sa.literal_column(f"'{Reason.USER_BUSY.value}'"),
            sa.text("reason NOT IN ('due', 'backoff')"),
            jobs.c.owner_id.in_(sorted(owner_ids)),
            sa.not_(release.is_behind(jobs)),
        )
        .order_by(t.id)
        .limit(500)
    ).all()
    return release.release(conn, waiting, now=now, lock_owners=False)
