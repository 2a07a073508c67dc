"""Job kinds as stored: what workers announced, and which are paused."""

from collections.abc import Iterable

import sqlalchemy as sa

from quire.model.contracts import JobKind
from quire.model.records import KindRow
from quire.store.db import dialect
from quire.store.db.schema.queue import kinds

c = kinds.c
_KINDS = sa.select(*(c[name] for name in KindRow._fields)).order_by(c.name)
_ANNOUNCED = ("queue", "max_attempts", "at_most_once", "is_internal")


def announce(conn: sa.Connection, known: Iterable[JobKind]) -> dict[str, tuple[str, str]]:
    """Store the kinds that a process can run, in sorted order to avoid deadlocks.

    Returns the old and the new queue of kinds that changed their queue.
    """
    queues = {name: row.queue for name, row in by_name(conn).items()}
    moved = {}
    for kind in sorted(known, key=lambda k: k.name):
        row = {
            "name": kind.name,
            "queue": kind.queue,
            "max_attempts": kind.max_attempts,
            "at_most_once": kind.at_most_once,
            "is_internal": kind.is_internal,
        }
        dialect.upsert(conn, kinds, row, ["name"], list(_ANNOUNCED))
        if queues.get(kind.name, kind.queue) != kind.queue:
            moved[kind.name] = queues[kind.name], kind.queue
    return moved


def by_name(conn: sa.Connection) -> dict[str, KindRow]:
    """Return every kind, by name."""
    return {row.name: KindRow(*row) for row in conn.execute(_KINDS)}


def pause(conn: sa.Connection, name: str, at: float | None) -> bool:
    """Stop claims of a kind, or allow them again (None); returns False if that is so already."""
    is_other = c.paused_at.is_not(None) if at is None else c.paused_at.is_(None)
    change = sa.update(kinds).where(c.name == name, is_other).values(paused_at=at)
    return conn.execute(change).rowcount > 0
