"""Creates the tables of documents and the full-text index over chunks."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import TABLES, chunks
from quire.store.db.schema.queue import metadata


def up(conn: sa.Connection) -> None:
    """Create tables and index."""
    dialect.create_vector_extension(conn)
    metadata.create_all(conn, tables=list(TABLES))
    dialect.create_text_index(conn, chunks)
