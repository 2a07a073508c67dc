"""Records in a job which of its tasks a resume or retry has yet to revive."""

import sqlalchemy as sa

from quire.store.db.schema.queue import jobs


def up(conn: sa.Connection) -> None:
    """Add the column."""
    there = {each["name"] for each in sa.inspect(conn).get_columns(jobs.name)}
    if jobs.c.revives.name not in there:
        conn.exec_driver_sql(f"ALTER TABLE {jobs.name} ADD COLUMN {jobs.c.revives.name} TEXT")
