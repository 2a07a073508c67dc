"""Tasks that must not run beside each other: at most one running task has an exclusive key.

A claim that meets a held key puts the task off for a while, and gives it up after some tries.
The unique index over running tasks is what makes it true; this module keeps claims off it.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import EndedTask
from quire.model.states import Reason, TaskState
from quire.store.db import dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import is_state, tasks
from quire.store.queue import dependencies, events
from quire.store.queue.counters import Deltas, bump, ended

t = tasks.c
WAIT_SECONDS = 15.0
MOST_TRIES = 10


def running_keys(conn: sa.Connection, head: Sequence[Any]) -> set[str | None]:
    """Return those exclusive keys of the head that a running task has."""
    keys = {row.exclusive_key for row in head if row.exclusive_key is not None}
    if not keys:
        return set()
    query = dialect.cached(conn, "exclusive.running", lambda: _running(conn))
    return set(conn.scalars(query, {"keys": dialect.encode_rows([[key] for key in sorted(keys)])}))


def _running(conn: sa.Connection) -> sa.Select[Any]:
    wanted = dialect.json_rows(conn, "keys", {"key": "text"})
    return (
        sa.select(t.exclusive_key)
        .join(wanted, wanted.c.key == t.exclusive_key)
        .where(is_state(t.state, TaskState.RUNNING))
    )


def put_off(conn: sa.Connection, ids: Sequence[int], *, now: Instant) -> None:
    """Let ready tasks wait for the holder of their key, or give them up after ten tries."""
    # Every tenth time: a task that is revived after it was given up has ten tries again.
    gives_up = (t.lock_tries + 1) % MOST_TRIES == 0
    why = f"another task of the same document ran each of the {MOST_TRIES} times it was tried"
    rows = conn.execute(
        sa.update(tasks)
        .where(t.id.in_(sorted(ids)), is_state(t.state, TaskState.READY))
        .values(
            state=sa.case(
                (gives_up, TaskState.FAILED.value), else_=TaskState.BLOCKED.value
            ),
            reason=sa.case((gives_up, sa.null()), else_=Reason.LOCK_HELD.value),
            due_at=sa.case((gives_up, sa.null()), else_=now.wall + WAIT_SECONDS),
            error=sa.case((gives_up, why), else_=t.error),
            finished_at=sa.case((gives_up, now.wall), else_=sa.null()),
            lock_tries=t.lock_tries + 1,
        )
        .returning(
            t.id, t.job_id, t.state, t.error, t.has_successors, t.document_id, t.generation,
            t.from_page, t.cost, t.parent_id,
        )
    ).all()  # fmt: skip
    deltas = Deltas()
    for row in rows:
        deltas[row.job_id].leave(TaskState.READY, row)
        deltas[row.job_id].error = row.error if row.state == TaskState.FAILED else None
    lost = [row for row in rows if row.state == TaskState.FAILED]
    of_documents = [
        EndedTask(r.id, "fail", r.state, r.document_id, r.generation, r.from_page, r.error)
        for r in lost
        if r.document_id is not None
    ]
    if of_documents:
        on_ended(conn).tasks_ended(conn, of_documents, now=now)
    over = ended(bump(conn, deltas, now=now))
    events.record(
        conn,
        [events.Event(j.id, f"job.{j.state}", None, {"error": j.error}) for j in over],
        now=now,
    )
    dependencies.satisfy_tasks(conn, {r.id: r.state for r in lost if r.has_successors}, now=now)
    dependencies.satisfy_jobs(conn, {j.id: j.state for j in over if j.has_successors}, now=now)
    dependencies.let_next_job_go(conn, {j.owner_id for j in over if j.exclusive_key}, now=now)
