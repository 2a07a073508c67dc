"""The engine's tables."""

import sqlalchemy as sa

from quire.store import dialect
from quire.store.tables import ENGINE, events, metadata


def up(conn: sa.Connection) -> None:
    """Create them."""
    metadata.create_all(conn, tables=list(ENGINE))
    dialect.stamp_transactions(conn, events)
