"""What a move leaves in `meta`: whose copy this is, how far it is, and where a database went."""

import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Refused
from quire.store.db import dialect
from quire.store.db.schema.queue import meta

PREFIX = "move."
#: In the source: its name for ever, and where it went.
_IDENTITY, _TO = PREFIX + "identity", PREFIX + "to"
#: In the target: the source, and one mark for each table.
_FROM, _TABLE = PREFIX + "from", PREFIX + "table."


class Origin(NamedTuple):
    """Which source a target is a copy of."""

    source: str
    #: When the copy began: leases of running tasks end then.
    at: float
    is_done: bool = False
    #: It was compared with the source and is not the same.
    is_spoilt: bool = False


class Checkpoint(NamedTuple):
    """How far a table is copied: its last key, its rows so far, and the sum of their hashes."""

    last: list[Any] | None = None
    rows: int = 0
    checksum: int = 0


def refuse_unusable(conn: sa.Connection) -> None:
    """Refuse a database that was moved away, and a copy that is not finished."""
    if (name := transferred_to(conn)) is not None:
        raise Refused(
            f"database: it was moved to {name}. Set QUIRE_DATABASE_URL to that, with its password; "
            "nothing was changed."
        )
    found = origin(conn)
    if found is not None and not found.is_done:
        raise Refused(
            "database: an embedded installation is being copied into it. Wait for `quire "
            "transfer`, or run it again if it was interrupted. Nothing was changed."
        )


def source_identity(conn: sa.Connection, fresh: str) -> str:
    """Return the name of a source, which is `fresh` where it has none yet."""
    found = _read(conn, _IDENTITY)
    if found is None:
        _write(conn, _IDENTITY, fresh)
    return str(found or fresh)


def transferred_to(conn: sa.Connection) -> str | None:
    """Return where the database went, or None."""
    found = _read(conn, _TO)
    return None if found is None else str(found)


def set_transferred_to(conn: sa.Connection, name: str) -> None:
    """Write down that the database is elsewhere from now on."""
    _write(conn, _TO, name)


def origin(conn: sa.Connection) -> Origin | None:
    """Return whose copy the database is, or None."""
    found = _read(conn, _FROM)
    return None if found is None else Origin(*found)


def set_origin(conn: sa.Connection, origin: Origin) -> None:
    """Write down whose copy the database is."""
    _write(conn, _FROM, origin)


def checkpoint(conn: sa.Connection, table: sa.Table) -> Checkpoint:
    """Return how far a table is copied."""
    found = _read(conn, _TABLE + table.name)
    return Checkpoint() if found is None else Checkpoint(*found)


def set_checkpoint(conn: sa.Connection, table: sa.Table, value: Checkpoint) -> None:
    """Write down how far a table is copied."""
    _write(conn, _TABLE + table.name, value)


def clear_checkpoints(conn: sa.Connection) -> None:
    """Delete the marks of all tables."""
    conn.execute(sa.delete(meta).where(meta.c.key.startswith(_TABLE, autoescape=True)))


def _read(conn: sa.Connection, key: str) -> Any:
    found = conn.scalar(sa.select(meta.c.value).where(meta.c.key == key))
    return None if found is None else json.loads(found)


def _write(conn: sa.Connection, key: str, value: Any) -> None:
    dialect.upsert(conn, meta, {"key": key, "value": json.dumps(value)}, ["key"], ["value"])
