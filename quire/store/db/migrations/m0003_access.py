"""The tables of access: users, tokens, sessions, links and the audit."""

import sqlalchemy as sa

from quire.store.db.schema.access import TABLES
from quire.store.db.schema.queue import metadata


def up(conn: sa.Connection) -> None:
    """Create them."""
    metadata.create_all(conn, tables=list(TABLES))
