"""Stores the structure of a page (headings, paragraphs, tables) beside its text.

Pages that were read before have none. They stay searchable, and get it when they are read again.
"""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import pages

#: An older Quire stores pages without blocks.
OLDEST = 26


def up(conn: sa.Connection) -> None:
    """Add the column."""
    dialect.add_columns(conn, pages.c.blocks)
