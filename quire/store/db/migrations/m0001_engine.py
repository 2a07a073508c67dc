"""Creates the tables of the queue."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import ENGINE, metadata


def up(conn: sa.Connection) -> None:
    """Create the tables."""
    metadata.create_all(conn, tables=list(ENGINE))
    if not dialect.is_sqlite(conn):
        conn.exec_driver_sql(
            "ALTER TABLE events ALTER COLUMN xid SET DEFAULT (pg_current_xact_id()::text::bigint)"
        )
