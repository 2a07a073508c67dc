"""Doorbells: messages of a broker that tell workers to claim.

Nothing here is needed to run a task. A row that is lost or wrong costs one more message.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import WorkerRow
from quire.model.states import TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import doorbells, is_state, tasks
from quire.store.queue import workers as worker_rows

t, d = tasks.c, doorbells.c
_HEAD = (
    sa.select(t.id, t.job_id, t.kind)
    .where(is_state(t.state, TaskState.READY), t.queue == sa.bindparam("queue"))
    .order_by(t.queue, t.priority, t.fair_tag, t.id)
    .limit(sa.bindparam("limit"))
)
_ADVANCE = (
    sa.update(doorbells)
    .where(d.queue == sa.bindparam("of"), d.seq == sa.bindparam("seen"))
    .values(seq=d.seq + sa.bindparam("count"), rung_at=sa.bindparam("at"))
)


class ReadyTask(NamedTuple):
    """A ready task to send a message for; the ids only help people who read the message."""

    task_id: int
    job_id: int
    kind: str


class DoorbellState(NamedTuple):
    """The doorbells of a queue and the state of its broker."""

    queue: str
    seq: int
    broker: str
    rung_at: float | None
    looked_at: float | None
    failing_since: float | None
    error: str | None


_COLUMNS = [d[name] for name in DoorbellState._fields]


def slots(conn: sa.Connection, *, now: Instant, max_silence: float) -> dict[str, int]:
    """Count the children of live workers that use doorbells, by queue."""
    found: dict[str, int] = {}
    for worker in served_workers(conn, now=now, max_silence=max_silence):
        for queue in worker.queues.split(","):
            found[queue] = found.get(queue, 0) + worker.concurrency
    return found


def missed_queues(conn: sa.Connection, *, now: Instant, max_silence: float) -> set[str]:
    """List the queues with a live worker that misses doorbells."""
    served = served_workers(conn, now=now, max_silence=max_silence)
    return {q for each in served if each.alone_since is not None for q in each.queues.split(",")}


def served_workers(conn: sa.Connection, *, now: Instant, max_silence: float) -> list[WorkerRow]:
    """List the live workers that use a broker."""
    return [
        row
        for row in worker_rows.live(conn)
        if row.broker and row.state == "running" and row.heartbeat_at >= now.wall - max_silence
    ]


def head(conn: sa.Connection, queue: str, limit: int) -> list[ReadyTask]:
    """List the ready tasks at the head of a queue."""
    return [ReadyTask(*row) for row in conn.execute(_HEAD, {"queue": queue, "limit": limit})]


def states(conn: sa.Connection) -> dict[str, DoorbellState]:
    """Return the doorbells of all queues."""
    return {row.queue: DoorbellState(*row) for row in conn.execute(sa.select(*_COLUMNS))}


def advance(conn: sa.Connection, queue: str, *, seen: int, count: int, now: Instant) -> bool:
    """Advance the sequence of a queue; returns False if another dispatcher was faster."""
    values: dict[str, Any] = {"of": queue, "seen": seen, "count": count, "at": now.wall}
    return conn.execute(_ADVANCE, values).rowcount > 0


def record_broker(
    conn: sa.Connection, broker: str, queues: Iterable[str], *, now: Instant, error: str | None
) -> None:
    """Record whether the broker responded."""
    for queue in sorted(queues):
        values = {"queue": queue, "broker": broker, "looked_at": now.wall, "error": error}
        names = ["broker", "looked_at", "error"]
        dialect.upsert(conn, doorbells, values, ["queue"], names)
        since = None if error is None else sa.func.coalesce(d.failing_since, now.wall)
        conn.execute(sa.update(doorbells).where(d.queue == queue).values(failing_since=since))
