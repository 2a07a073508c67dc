"""The history of runs: one row per attempt, written when the run ends."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import TaskState
from quire.store.db import bulk
from quire.store.db.schema.queue import attempts, tasks

_COLUMNS = (
    "task_id", "fence", "attempt", "began_at", "finished_at", "duration", "outcome", "error",
    "traceback", "peak_rss", "worker_id",
)  # fmt: skip


def write(conn: sa.Connection, lines: Sequence[Sequence[Any]]) -> None:
    """Insert rows in the order of the columns above."""
    bulk.bulk_insert(conn, attempts, _COLUMNS, lines)


def holders(conn: sa.Connection, held: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Return who holds each of the leases (task, fence)."""
    ids = [task_id for task_id, _ in held]
    found = conn.execute(sa.select(tasks.c.id, tasks.c.worker_id).where(tasks.c.id.in_(ids)))
    return {row.id: row.worker_id for row in found}


def remember(
    conn: sa.Connection,
    rows: Sequence[Any],
    held_by: dict[int, str],
    outcome: str,
    error: str | None,
    now: Instant,
) -> None:
    """Write the history of runs that somebody else ended: under the fence they ran with."""
    lines = []
    for r in rows:
        spent = r.state == TaskState.LOST or r.at_most_once
        lines.append(
            (r.id, r.fence - 1, r.attempt + (not spent), r.begin_at, now.wall,
             now.wall - r.begin_at, outcome, error, None, None, held_by[r.id])
        )  # fmt: skip
    write(conn, lines)
