"""The append-only record of what happened to jobs."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.store import bulk
from quire.store.tables import events


class Event(NamedTuple):
    """Something that happened."""

    job_id: int | None
    name: str
    task_id: int | None = None
    detail: dict[str, Any] | None = None


def record(conn: sa.Connection, happened: Iterable[Event], *, now: Instant) -> None:
    """Append events, in order."""
    rows = [
        [now.wall, e.job_id, e.task_id, e.name, json.dumps(e.detail) if e.detail else None]
        for e in happened
    ]
    if not rows:
        return
    bulk.bulk_insert(conn, events, ("at", "job_id", "task_id", "name", "detail"), rows)


def tail(
    conn: sa.Connection, job_id: int, *, after_id: int = 0, limit: int = 3000
) -> list[dict[str, Any]]:
    """Return a job's last events, oldest first; those after `after_id` only."""
    found = conn.execute(
        sa.select(events)
        .where(events.c.job_id == job_id, events.c.id > after_id)
        .order_by(events.c.id.desc())
        .limit(limit)
    ).all()
    return [
        {
            "id": row.id,
            "at": row.at,
            "job_id": row.job_id,
            "task_id": row.task_id,
            "name": row.name,
            **(json.loads(row.detail) if row.detail else {}),
        }
        for row in reversed(found)
    ]


def prune(conn: sa.Connection, *, before: float, limit: int) -> int:
    """Delete old events of jobs that are over; returns how many."""
    from quire.store.tables import jobs

    old = (
        sa.select(events.c.id)
        .join(jobs, jobs.c.id == events.c.job_id, isouter=True)
        .where(events.c.at < before, sa.or_(jobs.c.id.is_(None), jobs.c.finished_at < before))
        .order_by(events.c.id)
        .limit(limit)
    )
    return conn.execute(sa.delete(events).where(events.c.id.in_(old))).rowcount
