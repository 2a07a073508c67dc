"""Keeps the id of a deleted last row, instead of a counter that each insert writes (SQLite).

Older releases read the counter alone, so they have to stop.
"""

import sqlalchemy as sa

from quire.store.db import dialect, last_ids


def up(conn: sa.Connection) -> None:
    """Create a trigger for each table whose ids are reserved; PostgreSQL has sequences."""
    if dialect.is_sqlite(conn):
        for table in ("jobs", "tasks", "documents"):
            last_ids.keep_last_id(conn, table)
