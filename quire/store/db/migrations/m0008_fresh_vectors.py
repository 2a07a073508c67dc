"""On PostgreSQL vectors get into their graph behind the commit, and words lie beside their text."""

import sqlalchemy as sa

from quire.store.search import hnsw, sampled_gin


def up(conn: sa.Connection) -> None:
    """Add what a database of an earlier Quire lacks."""
    hnsw.separate_fresh(conn)
    sampled_gin.add_samples(conn)
