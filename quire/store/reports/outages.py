"""Queues in use and services that were unavailable, as recorded by tasks.

Nothing here writes, and every query is bounded, because pages run them often.
"""

from typing import NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import Reason, TaskState
from quire.store.db.schema.queue import attempts, is_state, owners, tasks
from quire.store.reports import status

t, a = tasks.c, attempts.c
#: Longer than the wait and the next try.
RECENT = status.OUTAGE_RECENT
AHEAD = status.OUTAGE_AHEAD
LOOKED_AT = 500
QUEUES = 100
SHOWN = 3


class Outage(NamedTuple):
    """An unavailable service, and when a task last failed to reach it."""

    error: str
    at: float


def queues_in_use(conn: sa.Connection, tenant: str | None) -> list[str]:
    """List the queues in which tasks of a tenant, or of anybody, are ready."""
    found: list[str] = []
    # One index lookup per queue; DISTINCT would read all ready tasks.
    last = ""
    while len(found) < QUEUES:
        queue = conn.scalar(
            sa.select(t.queue)
            .where(is_state(t.state, TaskState.READY), t.queue > last)
            .order_by(t.queue)
            .limit(1)
        )
        if queue is None:
            break
        found, last = [*found, queue], queue
    return [queue for queue in found if tenant is None or _has_ready(conn, tenant, queue)]


def _has_ready(conn: sa.Connection, tenant: str, queue: str) -> bool:
    ready = sa.exists().where(
        is_state(t.state, TaskState.READY), t.owner_id == owners.c.id, t.queue == queue
    )
    return bool(conn.scalar(sa.select(sa.exists().where(owners.c.tenant == tenant, ready))))


def outages(conn: sa.Connection, tenant: str | None, *, now: Instant) -> list[Outage]:
    """List services that were unavailable in the last attempt of tasks that still wait."""
    waits = (
        sa.select(t.id, t.fence, t.owner_id)
        .where(
            is_state(t.state, TaskState.BLOCKED),
            t.due_at.between(now.wall - RECENT, now.wall + AHEAD),
            t.reason == Reason.BACKOFF.value,
        )
        .order_by(t.due_at.desc())
        .limit(LOOKED_AT)
    )
    # The fence of the attempt that met the outage is one less.
    tries = (
        sa.select(t.id, (t.fence - 1).label("fence"), t.owner_id)
        .where(is_state(t.state, TaskState.RUNNING))
        .limit(LOOKED_AT)
    )
    run = sa.union_all(waits.subquery().select(), tries.subquery().select()).subquery("run")
    latest = sa.func.max(a.finished_at)
    query = (
        sa.select(a.error, latest)
        .join(run, sa.and_(run.c.id == a.task_id, run.c.fence == a.fence))
        .where(a.outcome == "outage", a.finished_at >= now.wall - RECENT)
        .group_by(a.error)
        .order_by(latest.desc())
        .limit(SHOWN)
    )
    if tenant is not None:
        query = query.join(owners, owners.c.id == run.c.owner_id).where(owners.c.tenant == tenant)
    return [Outage(error or "", last_at) for error, last_at in conn.execute(query)]
