"""On PostgreSQL vectors get into their graph behind the commit, and words lie beside their text."""

import sqlalchemy as sa

from quire.store.search import fulltext_levels, hnsw


def up(conn: sa.Connection) -> None:
    """Add what a database of an earlier Quire lacks."""
    hnsw.prepare(conn)
    fulltext_levels.prepare(conn)
