"""Adds indexes for job lists by kind, platform or account."""

import sqlalchemy as sa

from quire.store.db.schema.queue import JOB_LISTS


def up(conn: sa.Connection) -> None:
    """Create the missing indexes."""
    for index in JOB_LISTS:
        index.create(conn, checkfirst=True)
