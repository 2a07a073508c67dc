"""Stores a list of synonyms with a corpus. An older Quire searches without it."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import corpora

OLDEST = 29


def up(conn: sa.Connection) -> None:
    """Add the column."""
    dialect.add_columns(conn, corpora.c.synonyms)
