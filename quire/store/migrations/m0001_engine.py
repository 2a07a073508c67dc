"""The engine's tables."""

import sqlalchemy as sa

from quire.store.tables import metadata


def up(conn: sa.Connection) -> None:
    """Create them."""
    metadata.create_all(conn)
