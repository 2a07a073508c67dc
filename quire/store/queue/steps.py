"""Durable steps of a task: a result that a retry finds instead of computing it again."""

import sqlalchemy as sa

from quire.clock import Instant
from quire.store.db.schema.queue import steps


def found(conn: sa.Connection, task_id: int, name: str) -> tuple[bool, str | None]:
    """Return whether the step was made, and its result as JSON."""
    row = conn.execute(
        sa.select(steps.c.result).where(steps.c.task_id == task_id, steps.c.name == name)
    ).one_or_none()
    return (False, None) if row is None else (True, row.result)


def store(
    conn: sa.Connection, task_id: int, name: str, fence: int, result: str | None, *, now: Instant
) -> None:
    """Keep a step's result; the caller holds the task."""
    row = {"task_id": task_id, "name": name, "fence": fence, "result": result, "at": now.wall}
    conn.execute(sa.insert(steps).values(**row))
