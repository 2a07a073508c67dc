"""The tables of access: users, tokens, sessions, links and the audit."""

import sqlalchemy as sa

from quire.store.access_tables import TABLES
from quire.store.tables import metadata


def up(conn: sa.Connection) -> None:
    """Create them."""
    metadata.create_all(conn, tables=list(TABLES))
