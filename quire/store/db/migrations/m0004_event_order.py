"""Events can be read in the order of commits, and name their tenant where no job does."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import events


def up(conn: sa.Connection) -> None:
    """Add what a database of an earlier Quire lacks."""
    if "tenant" not in {each["name"] for each in sa.inspect(conn).get_columns(events.name)}:
        conn.exec_driver_sql(f"ALTER TABLE {events.name} ADD COLUMN tenant TEXT")
    dialect.index_xids(conn, events)
