"""Runs that made no progress are called `stalled`; they were `wedged`."""

import sqlalchemy as sa

from quire.store.db.schema.documents import generation_pages
from quire.store.db.schema.queue import attempts


def up(conn: sa.Connection) -> None:
    """Rename the outcome in the history of tasks and on quarantined pages."""
    conn.execute(
        sa.update(attempts).where(attempts.c.outcome == "wedged").values(outcome="stalled")
    )
    old, new = '"kind": "wedged"', '"kind": "stalled"'
    error = generation_pages.c.error
    conn.execute(
        sa.update(generation_pages)
        .where(error.is_not(None), error.contains(old, autoescape=True))
        .values(error=sa.func.replace(error, old, new))
    )
