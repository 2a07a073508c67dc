"""Makes tasks ready, or says what still blocks them; gives them their place in the fair order.

`ready` means claimable now. Every way out of `blocked` leads through `release`, which looks at
all reasons anew, so that no caller has to know the others.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model import fair
from quire.model.states import JOB_ACTIVE, TASK_OPEN, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import bands, is_state, jobs, kinds, owners, tasks
from quire.store.queue.counters import Deltas, bump

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
_DUE = (
    sa.select(tasks.c.id)
    .where(is_state(tasks.c.state, BLOCKED), tasks.c.due_at <= sa.bindparam("wall"))
    .order_by(tasks.c.due_at)
    .limit(sa.bindparam("limit"))
)
_NEXT_DUE = (
    sa.select(tasks.c.due_at)
    .where(is_state(tasks.c.state, BLOCKED), tasks.c.due_at.is_not(None))
    .order_by(tasks.c.due_at)
    .limit(1)
)


def last_tags(
    conn: sa.Connection, bands_of: Iterable[tuple[int, str, int]]
) -> dict[tuple[int, str, int], float]:
    """Return for each (owner, queue, priority) the tag that the next task's is added to."""
    found = {}
    for owner_id, queue, priority in sorted(set(bands_of)):
        band = {"owner": owner_id, "queue": queue, "priority": priority}
        own, claimed = conn.execute(_LAST_TAGS, band).one()
        found[owner_id, queue, priority] = fair.start(own, claimed)
    return found


def release(
    conn: sa.Connection, ids: Sequence[int], *, now: Instant, lock_owners: bool = True
) -> int:
    """Move blocked tasks to ready, or to the next reason that holds them; returns how many.

    A caller that already holds task rows passes `lock_owners=False`: owners come first in the
    lock order, and two equal tags only cost a little fairness.
    """
    if not ids:
        return 0
    if lock_owners:
        _lock_owners_of(conn, ids)
    dialect.lock_rows(conn, tasks, ids)
    rows = _candidates(conn, ids)
    if not rows:
        return 0
    placed = _placed(conn, rows, now)
    deltas = Deltas()
    for row in rows:
        if placed[row.id][0] == READY:
            deltas[row.job_id].move(BLOCKED, READY)
    _write(conn, placed)
    bump(conn, deltas, now=now)
    return sum(delta.gained(READY) for delta in deltas.values())


def blocking_reason(row: Any, now: Instant) -> tuple[str | None, float | None]:
    """Return why a task cannot run now, and until when if that is known; (None, None) if it can."""
    if row.job_state not in JOB_ACTIVE:
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
    """Tell whether another job with the same exclusive key goes first."""
    other = jobs.alias("other")
    return sa.and_(
        job.c.exclusive_key.is_not(None),
        job.c.state != JobState.RUNNING,  # or a running job could wait for one that waits for it
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
    """Tell whether a job has an open task that waits for no predecessor."""
    # A job that waits for a later one of the same user must let it pass, or both wait for ever.
    task = tasks.alias("own")
    return sa.exists().where(
        task.c.job_id == job.c.id,
        is_state(task.c.state, *TASK_OPEN),
        sa.or_(task.c.reason.is_(None), task.c.reason != Reason.AFTER.value),
    )


def move_due(conn: sa.Connection, *, now: Instant, limit: int = 500) -> int:
    """Move tasks whose time has come; returns how many became ready."""
    due = conn.scalars(_DUE, {"wall": now.wall, "limit": limit}).all()
    return release(conn, due, now=now)


def next_due_at(conn: sa.Connection) -> float | None:
    """Return when the next blocked task falls due."""
    found: float | None = conn.scalar(_NEXT_DUE)
    return found


def blocked_for(
    conn: sa.Connection, reason: str, *, kinds_in: Sequence[str] = (), limit: int = 500
) -> list[int]:
    """List blocked tasks that wait for one reason, oldest first."""
    # The planner uses the partial index only where it sees this same condition.
    query = sa.select(tasks.c.id).where(
        is_state(tasks.c.state, BLOCKED),
        tasks.c.reason == sa.literal_column(f"'{reason}'"),
        sa.text("reason NOT IN ('due', 'backoff')"),
    )
    if kinds_in:
        query = query.where(tasks.c.kind.in_(kinds_in))
    return list(conn.scalars(query.order_by(tasks.c.id).limit(limit)))


def release_capped(conn: sa.Connection, room: dict[int, int], *, now: Instant) -> None:
    """Release as many tasks of capped owners as they have room for, beside those already ready."""
    for owner_id, free in sorted(room.items()):
        queued = sa.select(sa.literal(1)).where(
            is_state(tasks.c.state, READY), tasks.c.owner_id == owner_id
        )
        waiting = (
            conn.scalar(sa.select(sa.func.count()).select_from(queued.limit(free + 1).subquery()))
            if free > 0
            else free
        )
        if free <= 0 or waiting is None or waiting >= free:
            continue
        held = sa.select(tasks.c.id).where(
            is_state(tasks.c.state, BLOCKED),
            tasks.c.reason == sa.literal_column(f"'{Reason.CAP.value}'"),
            sa.text("reason NOT IN ('due', 'backoff')"),
            tasks.c.owner_id == owner_id,
        )
        ids = conn.scalars(held.order_by(tasks.c.priority, tasks.c.id).limit(free - waiting)).all()
        release(conn, ids, now=now, lock_owners=False)


def advance_band(conn: sa.Connection, queue: str, priority: int, tag: float) -> None:
    """Remember how far the fair order of a queue and priority has got; it only grows."""
    statement = dialect.cached(conn, "ready.band", lambda: _advancing(conn))
    changed = conn.execute(statement, {"of": queue, "at": priority, "tag": tag})
    if not changed.rowcount:
        row = {"queue": queue, "priority": priority, "claimed_tag": tag}
        dialect.upsert(conn, bands, row, ["queue", "priority"], [])


def _advancing(conn: sa.Connection) -> sa.Update:
    b, tag = bands.c, sa.bindparam("tag", type_=sa.Double)
    return (
        sa.update(bands)
        .where(b.queue == sa.bindparam("of"), b.priority == sa.bindparam("at"))
        .values(claimed_tag=dialect.greatest(conn, b.claimed_tag, tag))
    )


def _lock_owners_of(conn: sa.Connection, ids: Sequence[int]) -> None:
    if dialect.is_sqlite(conn):
        return
    wanted = conn.scalars(
        sa.select(tasks.c.owner_id).distinct().where(tasks.c.id.in_(list(ids)))
    ).all()
    dialect.lock_rows(conn, owners, wanted)


def _candidates(conn: sa.Connection, ids: Sequence[int]) -> Sequence[Any]:
    statement = dialect.cached(conn, "ready.candidates", lambda: _choosing(conn))
    return conn.execute(statement, {"wanted": dialect.encode_rows([[i] for i in ids])}).all()


def _choosing(conn: sa.Connection) -> sa.Select[Any]:
    wanted = dialect.json_rows(conn, "wanted", {"id": "int"})
    columns = [tasks.c[c] for c in ("id", "job_id", "owner_id", "queue", "cost", "waits", "run_at")]
    return (
        sa.select(
            *columns,
            jobs.c.priority,
            jobs.c.state.label("job_state"),
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


def _placed(conn: sa.Connection, rows: Sequence[Any], now: Instant) -> dict[int, list[Any]]:
    """Give each row [state, reason, due_at, priority, fair_tag, ready_at]."""
    free = [row for row in rows if blocking_reason(row, now)[0] is None]
    tags = last_tags(conn, [(r.owner_id, r.queue, r.priority) for r in free])
    placed: dict[int, list[Any]] = {}
    for row in rows:
        reason, due_at = blocking_reason(row, now)
        if reason is not None:
            placed[row.id] = [BLOCKED, reason, due_at, row.priority, 0.0, None]
            continue
        key = row.owner_id, row.queue, row.priority
        tags[key] = fair.next_tag(tags[key], row.cost, row.weight)
        placed[row.id] = [READY, None, None, row.priority, tags[key], now.wall]
    return placed


def _write(conn: sa.Connection, placed: dict[int, list[Any]]) -> None:
    statement = dialect.cached(conn, "ready.write", lambda: _writing(conn))
    values = [[i, *values] for i, values in placed.items()]
    conn.execute(statement, {"placed": dialect.encode_rows(values)})


def _writing(conn: sa.Connection) -> sa.Update:
    p = dialect.json_rows(
        conn,
        "placed",
        {
            "id": "int",
            "state": "text",
            "reason": "text",
            "due_at": "float",
            "priority": "int",
            "fair_tag": "float",
            "ready_at": "float",
        },
    )
    names = ("state", "reason", "due_at", "priority", "fair_tag", "ready_at")
    return (
        sa.update(tasks)
        .where(tasks.c.id == p.c.id, is_state(tasks.c.state, BLOCKED))
        .values(**{name: p.c[name] for name in names})
    )


def owners_waiting(conn: sa.Connection) -> list[int]:
    """List owners with tasks that wait for another job of theirs."""
    query = (
        sa.select(tasks.c.owner_id)
        .distinct()
        .where(
            is_state(tasks.c.state, BLOCKED),
            tasks.c.reason == sa.literal_column(f"'{Reason.USER_BUSY.value}'"),
            sa.text("reason NOT IN ('due', 'backoff')"),
        )
    )
    return list(conn.scalars(query))


def no_longer_paused(conn: sa.Connection, limit: int = 500) -> list[int]:
    """List tasks that wait for the pause of a kind that is not paused."""
    waiting = _blocked_by(Reason.PAUSED).join(kinds, kinds.c.name == tasks.c.kind)
    return list(conn.scalars(waiting.where(kinds.c.paused_at.is_(None)).limit(limit)))


def no_longer_capped(conn: sa.Connection, limit: int = 500) -> list[int]:
    """List tasks that wait for the cap of an owner who has none."""
    waiting = _blocked_by(Reason.CAP).join(owners, owners.c.id == tasks.c.owner_id)
    return list(conn.scalars(waiting.where(owners.c.max_running.is_(None)).limit(limit)))


def _blocked_by(reason: Reason) -> sa.Select[Any]:
    return (
        sa.select(tasks.c.id)
        .where(
            is_state(tasks.c.state, BLOCKED),
            tasks.c.reason == sa.literal_column(f"'{reason.value}'"),
            sa.text("reason NOT IN ('due', 'backoff')"),
        )
        .order_by(tasks.c.id)
    )
