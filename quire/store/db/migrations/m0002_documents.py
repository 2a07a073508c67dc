"""Creates the tables of documents and the full-text index over chunks."""

import sqlalchemy as sa

from quire.errors import Refused
from quire.store.db import dialect
from quire.store.db.schema.documents import TABLES
from quire.store.db.schema.queue import metadata


def up(conn: sa.Connection) -> None:
    """Create tables and index."""
    if dialect.is_sqlite(conn):
        metadata.create_all(conn, tables=list(TABLES))
        dialect.create_words_table(conn, "default")
        return
    found = conn.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
    if found.first() is None:
        raise Refused(
            "database: PostgreSQL has no pgvector. Install the extension (Debian: "
            "postgresql-NN-pgvector), then run `quire migrate` again. Nothing was changed."
        )
    conn.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
    metadata.create_all(conn, tables=list(TABLES))
    conn.exec_driver_sql("ALTER TABLE chunks ADD COLUMN words tsvector")
    conn.exec_driver_sql("CREATE INDEX ix_chunks_words ON chunks USING gin (words)")
