"""On PostgreSQL vectors get into their graph behind the commit, and words lie beside their text."""

import sqlalchemy as sa

from quire.store import text_levels, vector_index


def up(conn: sa.Connection) -> None:
    """Add what a database of an earlier Quire lacks."""
    vector_index.prepare(conn)
    text_levels.prepare(conn)
