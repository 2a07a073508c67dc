"""What became of a COMMIT whose reply was lost; it may even happen later than we ask."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.model.outcomes import Settlement
from quire.model.states import TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import attempts, is_state, tasks

t = tasks.c


def recorded(conn: sa.Connection, settlements: Sequence[Settlement]) -> set[int]:
    """Return the tasks whose ends are written already, just as their holder reports them."""
    ids = [one.task_id for one in settlements]
    # That COMMIT may still be under way: the lock waits for it.
    dialect.lock_rows(conn, tasks, ids)
    statement = dialect.cached(conn, "recorded", lambda: _recorded(conn))
    found = conn.execute(statement, {"ids": dialect.encode_ids(conn, ids)})
    there = {(row.task_id, row.fence): (row.worker_id, row.outcome) for row in found}
    return {
        one.task_id
        for one in settlements
        if there.get((one.task_id, one.fence)) == (one.worker_id, one.outcome)
    }


def _recorded(conn: sa.Connection) -> sa.Select[Any]:
    a = attempts.c
    query = sa.select(a.task_id, a.fence, a.worker_id, a.outcome)
    return query.where(dialect.id_in(conn, a.task_id, "ids"))


_HELD = sa.select(t.id.label("task_id"), t.fence, t.job_id, t.begin_at).where(
    is_state(t.state, TaskState.RUNNING), t.worker_id == sa.bindparam("worker")
)


def held_by(conn: sa.Connection, worker_id: str) -> list[Any]:
    """List what a worker holds as the database sees it: task_id, fence, job_id, begin_at."""
    return list(conn.execute(_HELD, {"worker": worker_id}))
