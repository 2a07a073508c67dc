"""Lets events be read in commit order, and adds the tenant of events without a job."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import events


def up(conn: sa.Connection) -> None:
    """Add the column and the index."""
    if "tenant" not in {each["name"] for each in sa.inspect(conn).get_columns(events.name)}:
        conn.exec_driver_sql(f"ALTER TABLE {events.name} ADD COLUMN tenant TEXT")
    dialect.index_xids(conn, events)
