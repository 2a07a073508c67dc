"""The order of the queue: which tasks may run, and where each stands among those that may.

`ready` means claimable now. A blocked task becomes ready only where no reason is left, so every
release looks at all of them. Nothing here writes a state.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model import fair
from quire.model.states import JOB_ACTIVE, TASK_OPEN, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import bands, is_state, jobs, kinds, owners, tasks

BLOCKED, READY = TaskState.BLOCKED, TaskState.READY
_LAST_TAGS = sa.select(
    sa.select(sa.func.max(tasks.c.fair_tag))
    .where(
        is_state(tasks.c.state, READY),
        tasks.c.owner_id == sa.bindparam("owner"),
        tasks.c.queue == sa.bindparam("queue"),
        tasks.c.priority == sa.bindparam("priority"),
    )
    .scalar_subquery(),
    sa.select(bands.c.claimed_tag)
    .where(bands.c.queue == sa.bindparam("queue"), bands.c.priority == sa.bindparam("priority"))
    .scalar_subquery(),
)


def last_tags(
    conn: sa.Connection, bands_of: Iterable[tuple[int, str, int]]
) -> dict[tuple[int, str, int], float]:
    """Return for each (owner, queue, priority) the tag that the next tag is added to."""
    found = {}
    for owner_id, queue, priority in sorted(set(bands_of)):
        band = {"owner": owner_id, "queue": queue, "priority": priority}
        own, claimed = conn.execute(_LAST_TAGS, band).one()
        found[owner_id, queue, priority] = fair.start(own, claimed)
    return found


def placed(
    conn: sa.Connection, ids: Sequence[int], *, now: Instant
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Sort blocked tasks into those that may run now and those that still wait.

    The first are rows of (id, priority, fair_tag, ready_at), the second of (id, reason, due_at,
    priority).
    """
    wanted = {"wanted": dialect.encode_rows([[i] for i in ids])}
    rows = conn.execute(_candidates(conn), wanted).all()
    reasons = {row.id: blocking_reason(row, now) for row in rows}
    free = [row for row in rows if reasons[row.id][0] is None]
    waiting = [
        [row.id, *reasons[row.id], row.priority] for row in rows if reasons[row.id][0] is not None
    ]
    tags = last_tags(conn, [(r.owner_id, r.queue, r.priority) for r in free])
    ready = []
    for row in free:
        key = row.owner_id, row.queue, row.priority
        tags[key] = fair.next_tag(tags[key], row.cost, row.weight)
        ready.append([row.id, row.priority, tags[key], now.wall])
    return ready, waiting


def blocking_reason(row: Any, now: Instant) -> tuple[str | None, float | None]:
    """Return why a task cannot run now, and until when if known; (None, None) if it can."""
    if row.job_state not in JOB_ACTIVE or row.revives is not None:
        return Reason.STOPPED, None
    if row.waits:
        return Reason.AFTER, None
    if row.run_at is not None and row.run_at > now.wall:
        return Reason.DUE, row.run_at
    if row.paused_at is not None:
        return Reason.PAUSED, None
    if row.is_behind:
        return Reason.USER_BUSY, None
    return None, None


def is_behind(job: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that another job with the same exclusive key goes first."""
    other = jobs.alias("other")
    return sa.and_(
        job.c.exclusive_key.is_not(None),
        job.c.state != JobState.RUNNING,  # else a running job could wait for one that waits for it
        sa.exists().where(
            other.c.owner_id == job.c.owner_id,
            is_state(other.c.state, *JOB_ACTIVE),
            other.c.exclusive_key == job.c.exclusive_key,
            sa.or_(
                sa.and_(other.c.id < job.c.id, takes_turn(other)),
                is_state(other.c.state, JobState.RUNNING),
            ),
            other.c.id != job.c.id,
        ),
    )


def takes_turn(job: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a job has an open task that waits for no predecessor."""
    # A job that waits for a later job of the same user must let it pass, or both wait forever.
    task = tasks.alias("own")
    return sa.exists().where(
        task.c.job_id == job.c.id,
        is_state(task.c.state, *TASK_OPEN),
        sa.or_(task.c.reason.is_(None), task.c.reason != Reason.AFTER.value),
    )


def next_in_turn(conn: sa.Connection, owner_ids: Collection[int], limit: int = 500) -> list[int]:
    """List tasks that waited for another job of their owner and may run now."""
    t = tasks.c
    waiting = (
        sa.select(t.id)
        .join(jobs, jobs.c.id == t.job_id)
        .where(
            *blocked_by(Reason.USER_BUSY),
            jobs.c.owner_id.in_(sorted(owner_ids)),
            sa.not_(is_behind(jobs)),
        )
        .order_by(t.id)
        .limit(limit)
    )
    return list(conn.scalars(waiting))


def blocked_by(reason: str) -> tuple[sa.ColumnElement[bool] | sa.TextClause, ...]:
    """Return the conditions of a task that waits for `reason`."""
    # The planner uses the partial index only where it sees this same condition.
    return (
        is_state(tasks.c.state, BLOCKED),
        tasks.c.reason == sa.literal_column(f"'{reason}'"),
        sa.text("reason NOT IN ('due', 'backoff')"),
    )


def advance_band(conn: sa.Connection, queue: str, priority: int, tag: float) -> None:
    """Record how far the fair order of a queue and priority has got; it only grows."""
    changed = conn.execute(_advance(conn), {"of": queue, "at": priority, "tag": tag})
    if not changed.rowcount:
        row = {"queue": queue, "priority": priority, "claimed_tag": tag}
        dialect.upsert(conn, bands, row, ["queue", "priority"], [])


@dialect.statement
def _advance(conn: sa.Connection) -> sa.Update:
    b, tag = bands.c, sa.bindparam("tag", type_=sa.Double)
    return (
        sa.update(bands)
        .where(b.queue == sa.bindparam("of"), b.priority == sa.bindparam("at"))
        .values(claimed_tag=dialect.greatest(conn, b.claimed_tag, tag))
    )


@dialect.statement
def _candidates(conn: sa.Connection) -> sa.Select[Any]:
    wanted = dialect.json_rows(conn, "wanted", {"id": "int"})
    columns = [tasks.c[c] for c in ("id", "job_id", "owner_id", "queue", "cost", "waits", "run_at")]
    return (
        sa.select(
            *columns,
            jobs.c.priority,
            jobs.c.state.label("job_state"),
            jobs.c.revives,
            kinds.c.paused_at,
            owners.c.weight,
            is_behind(jobs).label("is_behind"),
        )
        .join(wanted, wanted.c.id == tasks.c.id)
        .join(jobs, jobs.c.id == tasks.c.job_id)
        .join(owners, owners.c.id == tasks.c.owner_id)
        .join(kinds, kinds.c.name == tasks.c.kind, isouter=True)
        .where(is_state(tasks.c.state, BLOCKED))
        .order_by(tasks.c.id)
    )
