"""The oldest active jobs of an owner are read along an index."""

import sqlalchemy as sa

from quire.store.db.schema.queue import JOBS_ACTIVE


def up(conn: sa.Connection) -> None:
    """Put it in the place of one that had the owner alone."""
    conn.exec_driver_sql("DROP INDEX IF EXISTS ix_jobs_active_owner")
    JOBS_ACTIVE.create(conn, checkfirst=True)
