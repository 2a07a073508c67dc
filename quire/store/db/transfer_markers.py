"""State of a transfer from SQLite to PostgreSQL, stored in `meta` of both databases."""

import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Refused
from quire.store.db import dialect
from quire.store.db.schema.queue import meta

PREFIX = "move."  # the stored name; databases transferred by earlier releases have it
#: In the source: its permanent identity, and the target after the transfer.
_IDENTITY, _TO = PREFIX + "identity", PREFIX + "to"
#: In the target: the source, and one checkpoint per table.
_FROM, _TABLE = PREFIX + "from", PREFIX + "table."


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
    if (name := transferred_to(conn)) is not None:
        raise Refused(
            f"database: transferred to {name}. Set QUIRE_DATABASE_URL to it, with its password. "
            "Nothing was changed."
        )
    found = origin(conn)
    if found is not None and not found.is_done:
        raise Refused(
            "database: a transfer into it is not finished. Wait for `quire transfer`, or run it "
            "again if it was interrupted. Nothing was changed."
        )


def source_identity(conn: sa.Connection, fresh: str) -> str:
    """Return the identity of a source; sets it to `fresh` if it has none."""
    found = _read(conn, _IDENTITY)
    if found is None:
        _write(conn, _IDENTITY, fresh)
    return str(found or fresh)


def transferred_to(conn: sa.Connection) -> str | None:
    """Return the target that this database was transferred to, or None."""
    found = _read(conn, _TO)
    return None if found is None else str(found)


def set_transferred_to(conn: sa.Connection, name: str) -> None:
    """Record that the database was transferred."""
    _write(conn, _TO, name)


def origin(conn: sa.Connection) -> Origin | None:
    """Return the source that this database is copied from, or None."""
    found = _read(conn, _FROM)
    return None if found is None else Origin(*found)


def set_origin(conn: sa.Connection, origin: Origin) -> None:
    """Record the source that this database is copied from."""
    _write(conn, _FROM, origin)


def checkpoint(conn: sa.Connection, table: sa.Table) -> Checkpoint:
    """Return the checkpoint of a table."""
    found = _read(conn, _TABLE + table.name)
    return Checkpoint() if found is None else Checkpoint(*found)


def set_checkpoint(conn: sa.Connection, table: sa.Table, value: Checkpoint) -> None:
    """Record the checkpoint of a table."""
    _write(conn, _TABLE + table.name, value)


def clear_checkpoints(conn: sa.Connection) -> None:
    """Delete all checkpoints."""
    conn.execute(sa.delete(meta).where(meta.c.key.startswith(_TABLE, autoescape=True)))


def _read(conn: sa.Connection, key: str) -> Any:
    found = conn.scalar(sa.select(meta.c.value).where(meta.c.key == key))
    return None if found is None else json.loads(found)


def _write(conn: sa.Connection, key: str, value: Any) -> None:
    dialect.upsert(conn, meta, {"key": key, "value": json.dumps(value)}, ["key"], ["value"])
