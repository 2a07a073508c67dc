"""What hinders tasks at the moment, read from their rows: queues in use, and what was away.

Nothing here writes, and every look is bounded: pages ask for it whenever they are shown.
"""

from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import Reason, TaskState
from quire.store.db.schema.queue import attempts, is_state, owners, tasks

t, a = tasks.c, attempts.c
#: Seconds for which a run that met an outage tells of one: longer than the wait and a next try.
RECENT = 60.0
#: Seconds that a task may wait for its next try after an outage.
AHEAD = 8.0
LOOKED_AT = 500
QUEUES = 100
SHOWN = 3


class Outage(NamedTuple):
    """What tasks found away, and when one last did."""

    error: str
    at: float


def queues_in_use(conn: sa.Connection, tenant: str | None) -> list[str]:
    """List the queues in which tasks of a tenant, or of anybody, are ready."""
    found: list[str] = []
    # One look-up in the order's index for each queue: DISTINCT would read all ready tasks.
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
    """List what tasks found away in their last run, if they have not got further since."""
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
    # A claim added one to the fence of the run that met it.
    tries = (
        sa.select(t.id, (t.fence - 1).label("fence"), t.owner_id)
        .where(is_state(t.state, TaskState.RUNNING))
        .limit(LOOKED_AT)
    )
    runs = sa.union_all(waits.subquery().select(), tries.subquery().select())
    return _met(conn, runs, tenant, now)


def _met(
    conn: sa.Connection, runs: sa.CompoundSelect[Any], tenant: str | None, now: Instant
) -> list[Outage]:
    run = runs.subquery("run")
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
    return [Outage(row[0] or "", row[1]) for row in conn.execute(query)]
