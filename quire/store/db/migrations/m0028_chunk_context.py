"""Stores the context of a chunk: words that it is found by and that its text does not have."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import chunks

#: An older Quire stores chunks without context.
OLDEST = 26


def up(conn: sa.Connection) -> None:
    """Add the column."""
    dialect.add_columns(conn, chunks.c.context)
