"""Creates the tables of the queue."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import ENGINE, events, metadata


def up(conn: sa.Connection) -> None:
    """Create the tables."""
    metadata.create_all(conn, tables=list(ENGINE))
    dialect.record_xids(conn, events)
