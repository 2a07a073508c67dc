"""State of a transfer from SQLite to PostgreSQL, stored in `meta` of both databases.

A process that has one of the two open does not notice a transfer: it asks only now and then. So
triggers refuse its writes: to the source from the end of the transfer on, to the target until then.
Other databases have no trigger, and their writes cost nothing more.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Transferred
from quire.store.db import dialect
from quire.store.db.schema.queue import meta

PREFIX = "move."  # the stored name; databases transferred by earlier releases have it
#: In the source: its permanent identity, and the target after the transfer.
IDENTITY, TO = PREFIX + "identity", PREFIX + "to"
#: In the target: the source, and one checkpoint per table.
FROM, TABLE = PREFIX + "from", PREFIX + "table."
_REFUSAL = (
    "database: transferred to {}. Set QUIRE_DATABASE_URL to it, with its password. "
    "Nothing was changed."
)
_UNFINISHED = (
    "database: a transfer into it is not finished. Wait for `quire transfer`, or run it again if "
    "it was interrupted. Nothing was changed."
)
# SQLSTATE 55000: the object is not in the state that this needs.
_GUARD = f"""
CREATE FUNCTION quire_transfer_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('quire.transfer', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '{_UNFINISHED}' USING ERRCODE = '55000';
END $$
"""


class Origin(NamedTuple):
    """The source that a target is copied from."""

    source: str
    #: When the transfer began: leases of running tasks expire then.
    at: float
    is_done: bool = False
    #: The comparison with the source failed.
    is_corrupt: bool = False


class Checkpoint(NamedTuple):
    """Progress of one table: last key, number of rows, and the sum of their hashes."""

    last: list[Any] | None = None
    rows: int = 0
    checksum: int = 0


def refuse_unusable(conn: sa.Connection) -> None:
    """Refuse a database that was transferred, and the target of an unfinished transfer."""
    query = sa.select(meta.c.key, meta.c.value).where(meta.c.key.in_((TO, FROM)))
    found = {key: json.loads(value) for key, value in conn.execute(query)}
    if TO in found:
        raise Transferred(_REFUSAL.format(found[TO]))
    if FROM in found and not Origin(*found[FROM]).is_done:
        raise Transferred(_UNFINISHED)


def give_up_source(conn: sa.Connection, name: str, tables: Sequence[sa.Table]) -> None:
    """Record that this SQLite database was transferred, and refuse writes from now on."""
    write(conn, TO, name)
    text = _REFUSAL.format(name).replace("'", "''")
    for table in tables:
        for verb in ("INSERT", "UPDATE", "DELETE"):
            conn.exec_driver_sql(
                f"CREATE TRIGGER transferred_{table.name}_{verb} BEFORE {verb} ON {table.name} "
                f"BEGIN SELECT RAISE(ABORT, '{text}'); END"
            )


def close_target(conn: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Refuse the writes of other sessions to this PostgreSQL database; waits for open ones."""
    open_target(conn)
    conn.exec_driver_sql(_GUARD)
    for table in tables:
        conn.exec_driver_sql(
            f"CREATE TRIGGER transferring BEFORE INSERT OR UPDATE OR DELETE ON {table.name} "
            "EXECUTE FUNCTION quire_transfer_guard()"
        )


def open_target(conn: sa.Connection) -> None:
    """Allow the writes of all sessions again."""
    conn.exec_driver_sql("DROP FUNCTION IF EXISTS quire_transfer_guard() CASCADE")


def pass_guard(driver: Any, _: Any) -> None:
    """Let a new session write to a target that is closed for others."""
    driver.execute("SET quire.transfer = 'on'")
    driver.commit()


def refused_write(error: sa.exc.DBAPIError) -> Transferred | None:
    """Return the error for a write that the triggers of a source or target refused."""
    text = str(error.orig).partition("\n")[0]
    known = (_REFUSAL.partition("{")[0], _UNFINISHED)
    return Transferred(text) if text.startswith(known) else None


def transferred_to(conn: sa.Connection) -> str | None:
    """Return the target that this database was transferred to, or None."""
    found: str | None = read(conn, TO)
    return found


def origin(conn: sa.Connection) -> Origin | None:
    """Return the source that this database is copied from, or None."""
    found = read(conn, FROM)
    return None if found is None else Origin(*found)


def checkpoint(conn: sa.Connection, table: sa.Table) -> Checkpoint:
    """Return the checkpoint of a table."""
    return Checkpoint(*(read(conn, TABLE + table.name) or ()))


def read(conn: sa.Connection, key: str) -> Any:
    """Return a marker, or None."""
    found = conn.scalar(sa.select(meta.c.value).where(meta.c.key == key))
    return None if found is None else json.loads(found)


def write(conn: sa.Connection, key: str, value: Any) -> None:
    """Set a marker."""
    dialect.upsert(conn, meta, {"key": key, "value": json.dumps(value)}, ["key"], ["value"])
