"""On PostgreSQL: HNSW indexes are filled asynchronously, and GIN indexes are sampled."""

import sqlalchemy as sa

from quire.store.search import hnsw, sampled_gin


def up(conn: sa.Connection) -> None:
    """Add the column and the indexes."""
    hnsw.separate_fresh(conn)
    sampled_gin.add_samples(conn)
