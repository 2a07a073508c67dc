"""The append-only log of what happened to jobs."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant, iso
from quire.store.db import bulk, dialect
from quire.store.db.schema.queue import events
from quire.store.queue.owners import jobs_of_tenant
from quire.url_secrets import masked_json

#: How many events of a job are shown.
SHOWN = 3000
_COLUMNS = ("at", "job_id", "task_id", "name", "detail", "tenant")


class Event(NamedTuple):
    """An event of a job or a task."""

    job_id: int | None
    name: str
    task_id: int | None = None
    detail: dict[str, Any] | None = None
    #: The tenant, for events without a job.
    tenant: str | None = None


def record(conn: sa.Connection, happened: Iterable[Event], *, now: Instant) -> None:
    """Append events, in order."""
    rows = [
        [
            *(now.wall, e.job_id, e.task_id, e.name),
            json.dumps(e.detail) if e.detail else None,
            e.tenant,
        ]
        for e in happened
    ]
    bulk.bulk_insert(conn, events, _COLUMNS, rows)


def tail(
    conn: sa.Connection, tenant: str, job_id: int, *, after_id: int = 0, limit: int = 3000
) -> list[dict[str, Any]]:
    """Return the last events of a job after `after_id`, oldest first; none of another tenant."""
    if not jobs_of_tenant(conn, tenant, [job_id]):
        return []
    found = conn.execute(
        sa.select(events)
        .where(events.c.job_id == job_id, events.c.id > after_id)
        .order_by(events.c.id.desc())
        .limit(limit)
    ).all()
    return [shape(row) for row in reversed(found)]


def page(
    conn: sa.Connection, tenant: str, job_id: int, *, cursor: int | None, limit: int
) -> dict[str, Any]:
    """List a page of events of a job, oldest first; without a cursor, of the last 3,000."""
    e = events.c
    if not jobs_of_tenant(conn, tenant, [job_id]):
        return {"items": [], "next": None}
    of_job = sa.select(events).where(e.job_id == job_id)
    if cursor is None:
        last = of_job.with_only_columns(e.id).order_by(e.id.desc()).limit(SHOWN)
        cursor = min(conn.scalars(last), default=1) - 1
    rows = conn.execute(of_job.where(e.id > cursor).order_by(e.id).limit(limit + 1)).all()
    items = [{**shape(row), "at": iso(row.at)} for row in rows[:limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > limit else None}


def shape(row: Any) -> dict[str, Any]:
    """Return an event as its readers get it."""
    return {
        "id": row.id,
        "at": row.at,
        "job_id": row.job_id,
        "task_id": row.task_id,
        "name": row.name,
        **(masked_json(row.detail) or {}),
    }


def adopt_restored(conn: sa.Connection) -> None:
    """Put events that a dump has brought from another cluster before all events of this one.

    They keep their own order; `tail.local` finds the place of a cursor from the other cluster.
    """
    dialect.adopt_foreign_xids(conn, events)


def prune(conn: sa.Connection, *, before: float, limit: int) -> int:
    """Delete old events of ended jobs; returns how many."""
    from quire.store.db.schema.queue import jobs

    adopt_restored(conn)
    old = (
        sa.select(events.c.id)
        .join(jobs, jobs.c.id == events.c.job_id, isouter=True)
        .where(
            events.c.at < before,
            sa.or_(jobs.c.id.is_(None), jobs.c.finished_at < before),
            # SQLite would reuse the id of the last row, and readers are already past it.
            events.c.id < sa.select(sa.func.max(events.c.id)).scalar_subquery(),
        )
        .order_by(events.c.id)
        .limit(limit)
    )
    return conn.execute(sa.delete(events).where(events.c.id.in_(old))).rowcount
