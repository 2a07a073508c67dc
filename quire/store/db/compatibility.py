"""Which Quires may work on a schema: written beside its version, and before it is changed.

A Quire is known by the last migration that it has. A migration says by `OLDEST` the last one that
a Quire must have to go on working beside it; without it, its own number: older ones must leave.
That is announced first. Workers read it when they beat, leave where they are too old, and the
migration waits for them. Who has beaten since the announcement, and still runs, may stay.
"""

from types import ModuleType
from typing import Protocol

import sqlalchemy as sa

from quire.model.records import WORKER_LIVE, WorkerRow
from quire.store.db import dialect
from quire.store.db.schema.queue import meta, workers

#: The key of a version's row in `meta`; its value is the last migration one must know.
PREFIX = "schema_oldest."


class Alive(Protocol):
    """Tells whether a worker lives; who is on its machine knows more than its heartbeat tells."""

    def __call__(self, row: WorkerRow, /, *, now: float, lease: float) -> bool:
        """Tell it of one worker."""
        ...


def has_heartbeat(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    """Tell whether a worker has beaten within a lease."""
    return now - row.heartbeat_at <= lease


def required_migration(conn: sa.Connection, version: int) -> int:
    """Return the last migration that a Quire must know to work on this schema, or on the next."""
    known = _recorded(conn)
    return max(n for at, n in {version: version, **known}.items() if at >= version)


def recorded_requirement(conn: sa.Connection, version: int) -> int:
    """Return the same for this schema alone, whatever is announced."""
    return _recorded(conn).get(version, version)


def is_announced(conn: sa.Connection, version: int) -> bool:
    """Tell whether a version has its row, be it made or about to be."""
    return version in _recorded(conn)


def _recorded(conn: sa.Connection) -> dict[int, int]:
    rows = conn.execute(
        sa.select(meta.c.key, meta.c.value).where(meta.c.key.startswith(PREFIX, autoescape=True))
    )
    return {int(key.removeprefix(PREFIX)): int(value) for key, value in rows}


def requirement_of(module: ModuleType, step: int) -> int:
    """Return the last migration that a Quire must know to work beside this one."""
    return int(getattr(module, "OLDEST", step))


def record(conn: sa.Connection, version: int, least: int) -> None:
    """Write down who may work on a version."""
    values = {"key": f"{PREFIX}{version}", "value": str(least)}
    dialect.upsert(conn, meta, values, ["key"], ["value"])


def withdraw(conn: sa.Connection, version: int) -> None:
    """Take an announcement back: the migration is not made now."""
    conn.execute(sa.delete(meta).where(meta.c.key == f"{PREFIX}{version}"))


def blocking_workers(
    conn: sa.Connection, *, since: float, lease: float, now: float, alive: Alive = has_heartbeat
) -> list[str]:
    """List workers that live and have not said, by a heartbeat since then, that they may stay."""
    columns = [workers.c[name] for name in WorkerRow._fields]
    live = conn.execute(sa.select(*columns).where(workers.c.state.in_(WORKER_LIVE)))
    return [
        row.id
        for row in map(WorkerRow._make, live)
        if not (row.state == "running" and row.heartbeat_at > since)
        and alive(row, now=now, lease=lease)
    ]
