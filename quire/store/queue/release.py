"""Releases blocked tasks: those that are due, and those whose cap or pause was lifted."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JOB_ACTIVE, Reason, TaskState
from quire.store.db.schema.queue import attempts, is_state, jobs, kinds, owners, tasks
from quire.store.queue.order import blocked_by, next_in_turn
from quire.store.queue.transition import release

BLOCKED, READY = TaskState.BLOCKED, TaskState.READY
#: How long a task waits for the holder of its exclusive key before it tries again.
KEY_SECONDS = 15.0
_DUE = (
    sa.select(tasks.c.id)
    .where(is_state(tasks.c.state, BLOCKED), tasks.c.due_at <= sa.bindparam("wall"))
    .order_by(tasks.c.due_at)
    .limit(sa.bindparam("limit"))
)
NEXT_DUE = (
    sa.select(tasks.c.due_at)
    .where(is_state(tasks.c.state, BLOCKED), tasks.c.due_at.is_not(None))
    .order_by(tasks.c.due_at)
    .limit(1)
)


def release_due(conn: sa.Connection, *, now: Instant, limit: int = 500) -> int:
    """Release tasks whose time has come; returns how many became ready."""
    due = conn.scalars(_DUE, {"wall": now.wall, "limit": limit}).all()
    return release(conn, due, now=now)


def correct_due_times(conn: sa.Connection, *, now: Instant, limit: int = 500) -> int:
    """Shorten waits that began in the future: the clock was set back since. Returns how many.

    `run_at` is a time that somebody chose, and stays.
    """
    t, a = tasks.c, attempts.c
    # The fence was raised at once where the run was not ended by its holder.
    last_run = sa.and_(a.task_id == t.id, a.fence.in_([t.fence, t.fence - 1]))
    began = sa.select(sa.func.max(a.finished_at)).where(last_run).scalar_subquery()
    is_locked = t.reason == Reason.LOCK_HELD.value
    seconds = sa.case((is_locked, KEY_SECONDS), else_=t.due_at - began)
    is_ahead = sa.and_(began > now.wall, t.due_at >= began)
    is_wrong = sa.case((is_locked, t.due_at > now.wall + KEY_SECONDS), else_=is_ahead)
    wrong = (
        sa.select(t.id)
        .where(
            is_state(t.state, BLOCKED),
            t.due_at > now.wall,
            t.reason.in_([Reason.BACKOFF.value, Reason.LOCK_HELD.value]),
            is_wrong,
        )
        .limit(limit)
        .with_for_update(key_share=True, skip_locked=True)
    )
    ids = conn.scalars(wrong).all()
    conn.execute(sa.update(tasks).where(t.id.in_(ids)).values(due_at=now.wall + seconds))
    return len(ids)


def next_due_at(conn: sa.Connection) -> float | None:
    """Return when the next blocked task is due."""
    found: float | None = conn.scalar(NEXT_DUE)
    return found


def blocked_for(
    conn: sa.Connection, reason: str, *, kinds_in: Sequence[str] = (), limit: int = 500
) -> list[int]:
    """List blocked tasks that wait for one reason, oldest first."""
    query = _blocked_by(reason)
    if kinds_in:
        query = query.where(tasks.c.kind.in_(kinds_in))
    return list(conn.scalars(query.limit(limit)))


def release_capped(conn: sa.Connection, queue: str, room: dict[int, int], *, now: Instant) -> None:
    """Release tasks of capped owners in `queue` until their free slots are filled.

    Only this queue counts: what is ready in a queue that nobody serves must not use up a slot.
    """
    for owner_id, free in sorted(room.items()):
        if free <= 0:
            continue
        own = sa.select(tasks.c.id).where(tasks.c.owner_id == owner_id, tasks.c.queue == queue)
        queued = conn.scalars(own.where(is_state(tasks.c.state, READY)).limit(free)).all()
        held = own.where(*blocked_by(Reason.CAP)).order_by(tasks.c.priority, tasks.c.id)
        ids = conn.scalars(held.limit(free - len(queued))).all() if len(queued) < free else ()
        release(conn, ids, now=now)


def release_overlooked(
    conn: sa.Connection, known: Sequence[str], *, now: Instant, limit: int = 500
) -> int:
    """Release tasks that waited for a worker of the `known` kinds, or whose release was missed."""
    paused = _blocked_by(Reason.PAUSED).join(kinds, kinds.c.name == tasks.c.kind)
    capped = _blocked_by(Reason.CAP).join(owners, owners.c.id == tasks.c.owner_id)
    busy = sa.select(tasks.c.owner_id).distinct().where(*blocked_by(Reason.USER_BUSY))
    ids = {
        *blocked_for(conn, Reason.NO_WORKER, kinds_in=known, limit=limit),
        *conn.scalars(paused.where(kinds.c.paused_at.is_(None)).limit(limit)),
        *conn.scalars(capped.where(owners.c.max_running.is_(None)).limit(limit)),
        *next_in_turn(conn, conn.scalars(busy).all(), limit),
    }
    return release(conn, sorted(ids), now=now)


def release_stuck(conn: sa.Connection, *, now: Instant, limit: int = 500) -> int:
    """Release stopped tasks of jobs that are active and not being resumed; returns how many.

    No transaction leaves any; they may come from an older version.
    """
    ids = conn.scalars(stuck().order_by(tasks.c.id).limit(limit)).all()
    release(conn, ids, now=now)
    return len(ids)


def stuck() -> sa.Select[Any]:
    """Select stopped tasks of jobs that are active and not being resumed."""
    j = jobs.c
    is_going_on = is_state(j.state, *JOB_ACTIVE), j.tasks_blocked > 0, sa.not_(j.is_reviving)
    is_stopped = is_state(tasks.c.state, BLOCKED), tasks.c.reason == Reason.STOPPED.value
    return sa.select(tasks.c.id).join(jobs, j.id == tasks.c.job_id).where(*is_going_on, *is_stopped)


def _blocked_by(reason: str) -> sa.Select[Any]:
    return sa.select(tasks.c.id).where(*blocked_by(reason)).order_by(tasks.c.id)
