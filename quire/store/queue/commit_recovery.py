"""Finds out whether a COMMIT whose reply was lost has happened."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.outcomes import Key, Settlement
from quire.model.states import TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import attempts, is_state, tasks

t = tasks.c


def recorded(conn: sa.Connection, settlements: Sequence[Settlement]) -> set[Key]:
    """Return (task, fence) of the runs that are already settled exactly as given."""
    ids = [one.task_id for one in settlements]
    # The lost COMMIT may still be in progress: wait for its locks.
    dialect.lock_rows(conn, tasks, ids)
    found = conn.execute(_recorded(conn), {"ids": dialect.encode_ids(conn, ids)})
    there = {(row.task_id, row.fence): (row.worker_id, row.outcome) for row in found}
    return {one.key for one in settlements if there.get(one.key) == (one.worker_id, one.outcome)}


def outcome_of(conn: sa.Connection, task_id: int, fence: int) -> str | None:
    """Return how this very run ended, if it did."""
    dialect.lock_rows(conn, tasks, [task_id])
    a = attempts.c
    outcome: str | None = conn.scalar(
        sa.select(a.outcome).where(a.task_id == task_id, a.fence == fence)
    )
    return outcome


@dialect.statement
def _recorded(conn: sa.Connection) -> sa.Select[Any]:
    a = attempts.c
    query = sa.select(a.task_id, a.fence, a.worker_id, a.outcome)
    return query.where(dialect.id_in(conn, a.task_id, "ids"))


_HELD = sa.select(t.id.label("task_id"), t.fence, t.job_id, t.begin_at).where(
    is_state(t.state, TaskState.RUNNING), t.worker_id == sa.bindparam("worker")
)


class HeldTask(NamedTuple):
    """A running task of a worker, as the database has it."""

    task_id: int
    fence: int
    job_id: int
    begin_at: float


def held_by(conn: sa.Connection, worker_id: str) -> list[HeldTask]:
    """List the tasks that a worker holds according to the database."""
    return [HeldTask(*row) for row in conn.execute(_HELD, {"worker": worker_id})]
