"""Counters of rare events that leave no row of their own; they only grow."""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.queue import meta

_PREFIX = "tally."


def add(conn: sa.Connection, name: str, count: int) -> None:
    """Add to a counter; last in a transaction, because others wait for its row."""
    if count:
        key, value = _PREFIX + name, sa.cast(meta.c.value, sa.BigInteger)
        dialect.upsert(conn, meta, {"key": key, "value": "0"}, ["key"], [])
        more = sa.cast(value + count, sa.Text)
        conn.execute(sa.update(meta).where(meta.c.key == key).values(value=more))


def read(conn: sa.Connection) -> dict[str, int]:
    """Return all counters by name."""
    rows = conn.execute(sa.select(meta).where(meta.c.key.startswith(_PREFIX)))
    return {row.key.removeprefix(_PREFIX): int(row.value) for row in rows}
