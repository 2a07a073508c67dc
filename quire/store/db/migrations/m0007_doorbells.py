"""Adds doorbells sent through a broker, and the broker's health."""

import sqlalchemy as sa

from quire.store.db.schema.queue import doorbells, workers


def up(conn: sa.Connection) -> None:
    """Add the columns and the table."""
    there = {each["name"] for each in sa.inspect(conn).get_columns(workers.name)}
    for column in (workers.c.broker, workers.c.alone_since):
        if column.name not in there:
            kind = column.type.compile(conn.dialect)
            conn.exec_driver_sql(f"ALTER TABLE {workers.name} ADD COLUMN {column.name} {kind}")
    doorbells.create(conn, checkfirst=True)
