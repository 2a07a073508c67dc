"""Adds an index for the oldest active jobs of an owner."""

import sqlalchemy as sa

from quire.store.db.schema.queue import JOBS_ACTIVE


def up(conn: sa.Connection) -> None:
    """Replace the index on the owner alone."""
    conn.exec_driver_sql("DROP INDEX IF EXISTS ix_jobs_active_owner")
    JOBS_ACTIVE.create(conn, checkfirst=True)
