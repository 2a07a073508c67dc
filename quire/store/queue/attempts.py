"""The history of runs: one row per attempt, written when the run ends."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.store.db import bulk
from quire.store.db.schema.queue import attempts

_COLUMNS = (
    "task_id", "fence", "attempt", "began_at", "finished_at", "duration", "outcome", "error",
    "traceback", "peak_rss", "worker_id",
)  # fmt: skip


def write(conn: sa.Connection, lines: Sequence[Sequence[Any]]) -> None:
    """Insert rows in the order of the columns above."""
    bulk.bulk_insert(conn, attempts, _COLUMNS, lines)
