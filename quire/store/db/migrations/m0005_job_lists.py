"""Lists of jobs by kind, platform or account are read along an index."""

import sqlalchemy as sa

from quire.store.db.schema.queue import JOB_LISTS


def up(conn: sa.Connection) -> None:
    """Add what a database of an earlier Quire lacks."""
    for index in JOB_LISTS:
        index.create(conn, checkfirst=True)
