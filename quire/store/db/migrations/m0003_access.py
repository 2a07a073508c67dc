"""Creates the tables of access: users, tokens, sessions, links, audit log."""

import sqlalchemy as sa

from quire.store.db.schema.access import TABLES
from quire.store.db.schema.queue import metadata


def up(conn: sa.Connection) -> None:
    """Create the tables."""
    metadata.create_all(conn, tables=list(TABLES))
