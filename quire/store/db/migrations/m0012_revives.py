"""Records in a job which of its tasks a resume or retry has yet to revive."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import jobs


def up(conn: sa.Connection) -> None:
    """Add the column."""
    dialect.add_columns(conn, jobs.c.revives)
