"""Adds the searchable fields beside chunks: first lines of pages, names and words of documents.

What was indexed before has none of them until it is indexed again, or `quire doctor --repair`
computes them: it is found by its chunks alone. An older Quire may go on working; what it indexes
lacks the fields, too.
"""

import sqlalchemy as sa

from quire.store.db import dialect, document_entries
from quire.store.db.schema.documents import document_words, pages
from quire.store.db.schema.queue import metadata

OLDEST = 19


def up(conn: sa.Connection) -> None:
    """Add the column, the table and its index."""
    dialect.add_columns(conn, pages.c.heads)
    metadata.create_all(conn, tables=[document_words])
    document_entries.create(conn)
