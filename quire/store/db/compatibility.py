"""Which releases may run on a schema version during a rolling upgrade.

A release is identified by its last migration. A migration's `OLDEST` is the last migration that a
release must have to keep running after it (default: the migration itself, so older releases must
stop). This requirement is announced in `meta` before the migration. Workers read it at each
heartbeat and stop if they are too old; the migration waits for them. A worker that sent a
heartbeat after the announcement and still runs may stay.
"""

from types import ModuleType
from typing import Protocol

import sqlalchemy as sa

from quire.model.records import WORKER_LIVE, WorkerRow
from quire.store.db import dialect
from quire.store.db.schema.queue import meta, workers

#: Key prefix in `meta`, followed by a version; the value is the required migration.
PREFIX = "schema_oldest."


class Alive(Protocol):
    """Tells whether a worker is alive; on its own machine more is known than its heartbeat."""

    def __call__(self, row: WorkerRow, /, *, now: float, lease: float) -> bool:
        """Check one worker."""
        ...


def has_heartbeat(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    """Tell whether a worker sent a heartbeat within a lease."""
    return now - row.heartbeat_at <= lease


def recorded(conn: sa.Connection) -> dict[int, int]:
    """Return the migration required for each version that was applied or announced."""
    rows = conn.execute(
        sa.select(meta.c.key, meta.c.value).where(meta.c.key.startswith(PREFIX, autoescape=True))
    )
    return {int(key.removeprefix(PREFIX)): int(value) for key, value in rows}


def requirement_of(module: ModuleType, step: int) -> int:
    """Return the migration required to run after this one."""
    return int(getattr(module, "OLDEST", step))


def record(conn: sa.Connection, version: int, least: int) -> None:
    """Record the migration required for a version."""
    values = {"key": f"{PREFIX}{version}", "value": str(least)}
    dialect.upsert(conn, meta, values, ["key"], ["value"])


def blocking_workers(
    conn: sa.Connection, *, since: float, lease: float, now: float, alive: Alive = has_heartbeat
) -> list[str]:
    """List live workers without a heartbeat since the announcement."""
    columns = [workers.c[name] for name in WorkerRow._fields]
    live = conn.execute(sa.select(*columns).where(workers.c.state.in_(WORKER_LIVE)))
    return [
        row.id
        for row in map(WorkerRow._make, live)
        if not (row.state == "running" and row.heartbeat_at > since)
        and alive(row, now=now, lease=lease)
    ]
