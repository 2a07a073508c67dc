"""The engine's tables."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import ENGINE, events, metadata


def up(conn: sa.Connection) -> None:
    """Create them."""
    metadata.create_all(conn, tables=list(ENGINE))
    dialect.record_xids(conn, events)
