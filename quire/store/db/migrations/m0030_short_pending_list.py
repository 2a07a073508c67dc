"""Keeps the pending list of the index of documents short: every lookup reads the whole list."""

import sqlalchemy as sa

from quire.store.db import document_entries

OLDEST = 19


def up(conn: sa.Connection) -> None:
    """Shorten the list, and empty it."""
    document_entries.shorten_pending_list(conn)
