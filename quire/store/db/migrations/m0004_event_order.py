"""Lets events be read in commit order, and adds the tenant of events without a job."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import events


def up(conn: sa.Connection) -> None:
    """Add the column and the index: on PostgreSQL, ids may commit out of order."""
    dialect.add_columns(conn, events.c.tenant)
    if not dialect.is_sqlite(conn):
        conn.exec_driver_sql("CREATE INDEX IF NOT EXISTS ix_events_order ON events (xid, id)")
