"""Workers: one row per worker process, kept for a while after its end."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import WORKER_LIVE as LIVE
from quire.model.records import WorkerRow
from quire.store.db import dialect
from quire.store.db.schema.queue import workers

_COLUMNS = [workers.c[name] for name in WorkerRow._fields]


def register(conn: sa.Connection, row: WorkerRow, kinds: Sequence[str], *, now: Instant) -> None:
    """Insert a worker that starts; may be called again after a lost COMMIT."""
    values = {**row._asdict(), "kinds": json.dumps(sorted(kinds))}
    values.update(started_at=now.wall, heartbeat_at=now.wall)
    dialect.upsert(conn, workers, values, ["id"], ["heartbeat_at"])


def heartbeat(
    conn: sa.Connection, worker_id: str, *, now: Instant, alone_since: float | None = None
) -> bool:
    """Record a heartbeat; returns False if the worker was declared dead."""
    done = conn.execute(
        sa.update(workers)
        .where(workers.c.id == worker_id, workers.c.state.in_(LIVE))
        .values(heartbeat_at=now.wall, alone_since=alone_since)
    )
    return done.rowcount > 0


def revive(conn: sa.Connection, worker_id: str, *, now: Instant) -> None:
    """Mark a worker as running again that was wrongly declared dead."""
    conn.execute(
        sa.update(workers)
        .where(workers.c.id == worker_id)
        .values(state="running", heartbeat_at=now.wall, stopped_at=None)
    )


def set_state(conn: sa.Connection, ids: Sequence[str], state: str, *, now: Instant) -> None:
    """Mark workers as draining, stopped or dead."""
    values: dict[str, Any] = {"state": state}
    if state not in LIVE:
        values["stopped_at"] = now.wall
    conn.execute(
        sa.update(workers)
        .where(workers.c.id.in_(list(ids)), workers.c.state.in_(LIVE))
        .values(**values)
    )


def live(conn: sa.Connection) -> list[WorkerRow]:
    """List workers that are not known to have ended."""
    rows = conn.execute(
        sa.select(*_COLUMNS).where(workers.c.state.in_(LIVE)).order_by(workers.c.started_at)
    )
    return [WorkerRow(*row) for row in rows]


def kinds_served(conn: sa.Connection) -> list[tuple[WorkerRow, set[str]]]:
    """List live workers with the kinds that they can run."""
    rows = conn.execute(
        sa.select(*_COLUMNS, workers.c.kinds).where(workers.c.state.in_(LIVE))
    ).all()
    return [(WorkerRow(*row[:-1]), set(json.loads(row[-1]))) for row in rows]


def kinds_elsewhere(conn: sa.Connection, own_id: str, *, since: float) -> dict[str, set[str]]:
    """Return the kinds that other workers, with a heartbeat since then, run in each queue."""
    found: dict[str, set[str]] = {}
    for row, kinds in kinds_served(conn):
        if row.id != own_id and row.state == "running" and row.heartbeat_at >= since:
            for queue in row.queues.split(","):
                found.setdefault(queue, set()).update(kinds)
    return found


def prune(conn: sa.Connection, *, before: float) -> int:
    """Delete workers that ended long ago."""
    return conn.execute(sa.delete(workers).where(workers.c.stopped_at < before)).rowcount
