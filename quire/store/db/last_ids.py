"""Ids on SQLite: the next is above all that a table has or had, so none is used again.

The last id is read from the table. Only the id of a deleted last row is kept in `meta`, by a
trigger: a counter there would cost each insert another page of the log.
"""

import sqlalchemy as sa


def last_id(table: str) -> str:
    """Return the SQL of the highest id that a table has or had."""
    return (
        f"max(coalesce((SELECT max(id) FROM {table}), 0), coalesce((SELECT CAST(value AS INTEGER) "  # noqa: S608
        f"FROM meta WHERE key = 'last_id.{table}'), 0))"
    )


def guarded(table: str) -> sa.ColumnElement[int]:
    """Return the highest id that a table has or had; null without the trigger."""
    query = (
        f"(SELECT {last_id(table)} FROM sqlite_master "  # noqa: S608
        f"WHERE type = 'trigger' AND name = '{table}_last_id')"
    )
    return sa.literal_column(query, sa.BigInteger)


def keep_last_id(conn: sa.Connection, table: str) -> None:
    """Create the trigger that keeps the id of a deleted last row."""
    conn.exec_driver_sql(
        f"CREATE TRIGGER IF NOT EXISTS {table}_last_id BEFORE DELETE ON {table} "  # noqa: S608
        f"WHEN OLD.id = (SELECT max(id) FROM {table}) BEGIN "
        f"INSERT INTO meta (key, value) VALUES ('last_id.{table}', {last_id(table)}) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value; END"
    )
