"""Adds doorbells sent through a broker, and the broker's health."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import doorbells, workers


def up(conn: sa.Connection) -> None:
    """Add the columns and the table."""
    dialect.add_columns(conn, workers.c.broker, workers.c.alone_since)
    doorbells.create(conn, checkfirst=True)
