"""Claims tasks: the head of a queue's order becomes leased to a worker.

The fence grows by one at each claim. A claim that meets a task which may not run after all
(job stopped, kind paused, owner at its cap, kind unknown to this worker) moves it out of the way.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.outcomes import Lease
from quire.model.states import JOB_ACTIVE, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, kinds, owners, tasks
from quire.store.queue import exclusive, job_transition, order, release, transition
from quire.store.queue.transition import Transition

t = tasks.c
_ACTIVE = frozenset(state.value for state in JOB_ACTIVE)
# Rows are read by position below: these loops run for every task there is, under the lock.
_HEAD = (
    sa.select(
        t.id,
        t.job_id,
        t.owner_id,
        t.kind,
        t.payload,
        t.attempt,
        t.max_attempts,
        t.crashes,
        t.fence,
        t.priority,
        t.fair_tag,
        t.at_most_once,
        t.from_page,
        t.to_page,
        t.exclusive_key,
    )
    .where(is_state(t.state, TaskState.READY), t.queue == sa.bindparam("queue"))
    .order_by(t.queue, t.priority, t.fair_tag, t.id)
    .limit(sa.bindparam("limit"))
    .with_for_update(skip_locked=True)
)
_CAPPED = (
    sa.select(owners.c.id, owners.c.max_running)
    .where(owners.c.max_running.is_not(None))
    .order_by(owners.c.id)
    .with_for_update()
)
#: A claim that met nothing but tasks that may not run looks on, this far and this often.
AHEAD, ROUNDS = 500, 4
_PAUSED = sa.select(kinds.c.name).where(kinds.c.paused_at.is_not(None))


class Claimed(NamedTuple):
    """What a claim took: made into leases after the commit, so that the write lock ends sooner."""

    rows: list[Any]
    found_jobs: dict[int, Any]
    queue: str
    at: float

    def leases(self) -> list[Lease]:
        """Return one lease per task, most urgent first."""
        return [_lease(row, self.found_jobs[row[1]][2], self.queue, self.at) for row in self.rows]


def claim(
    conn: sa.Connection,
    worker_id: str,
    queue: str,
    known: Collection[str],
    *,
    now: Instant,
    ttl: float,
    limit: int = 1,
    alone: int | None = None,
) -> list[Lease]:
    """Lease up to `limit` tasks at the head of `queue` to `worker_id`, most urgent first."""
    return take(conn, worker_id, queue, known, now=now, ttl=ttl, limit=limit, alone=alone).leases()


def take(
    conn: sa.Connection,
    worker_id: str,
    queue: str,
    known: Collection[str],
    *,
    now: Instant,
    ttl: float,
    limit: int = 1,
    alone: int | None = None,
) -> Claimed:
    """Claim, and leave the making of leases for after the commit.

    Of those that must run alone (a crash behind them, or at most once) take at most `alone`: a
    claim ahead of time would cost an innocent one dearly if this worker died.
    """
    room = _room(conn)
    release.release_capped(conn, room, now=now)
    alone = limit if alone is None else alone
    for length in (limit, *[max(limit, AHEAD)] * ROUNDS):
        head = conn.execute(_HEAD, {"queue": queue, "limit": length}).all()
        if not head:
            break
        found_jobs = _jobs_of(conn, head)
        taken, aside = _sorted_out(conn, head, found_jobs, known, room, limit, alone)
        if taken:
            transition.claim(conn, [row[0] for row in taken], worker_id, now=now, ttl=ttl)
            job_transition.start(conn, Counter([row[1] for row in taken]), worker_id, now=now)
        if aside:
            _set_aside(conn, aside, now)
        if taken or not aside:
            return Claimed(taken, found_jobs, queue, now.wall)
    return Claimed([], {}, queue, now.wall)


def _sorted_out(
    conn: sa.Connection,
    head: Sequence[Any],
    found_jobs: dict[int, Any],
    known: Collection[str],
    room: dict[int, int],
    limit: int,
    alone: int,
) -> tuple[list[Any], list[tuple[Any, str]]]:
    """Pick the rows to take, and those that may not run with the reason why."""
    paused = set(conn.scalars(_PAUSED))
    behind = _behind(conn, found_jobs)
    locked = exclusive.running_keys(conn, head)
    taken: list[Any] = []
    aside: list[tuple[Any, str]] = []
    for row in head:
        if len(taken) == limit:
            break
        why = _obstacle(row, found_jobs[row[1]][1], paused, behind, known, room, locked)
        if why is not None:
            aside.append((row, why))
            continue
        if row[7] or row[11]:  # crashes, at_most_once
            if alone <= 0:
                continue
            alone -= 1
        taken.append(row)
        locked.add(row[14])
        if room and row.owner_id in room:
            room[row.owner_id] -= 1
    return taken, aside


def advance(conn: sa.Connection, leases: Sequence[Lease]) -> None:
    """Write how far the fair order has got, from the leases of a claim; may lag behind it."""
    furthest: dict[tuple[str, int], float] = {}
    for lease in leases:
        key = lease.queue, lease.priority
        furthest[key] = max(furthest.get(key, 0.0), lease.fair_tag)
    for (queue, priority), tag in sorted(furthest.items()):
        order.advance_band(conn, queue, priority, tag)


def _room(conn: sa.Connection) -> dict[int, int]:
    """Return how many more tasks each capped owner may run; locks these owners."""
    capped = conn.execute(_CAPPED).all()
    if not capped:
        return {}
    running: dict[int, int] = {
        row[0]: row[1]
        for row in conn.execute(
            sa.select(t.owner_id, sa.func.count())
            .where(is_state(t.state, TaskState.RUNNING))
            .group_by(t.owner_id)
        )
    }
    return {owner: most - running.get(owner, 0) for owner, most in capped}


def _jobs_of(conn: sa.Connection, head: Sequence[Any]) -> dict[int, Any]:
    """Read the jobs of the head, locked after their tasks, so that a stop cannot slip between."""
    statement = dialect.cached(conn, "jobs_of", lambda: _job_query(conn))
    wanted = dialect.encode_ids(conn, sorted({row[1] for row in head}))
    return {row[0]: row for row in conn.execute(statement, {"wanted": wanted})}


def _job_query(conn: sa.Connection) -> sa.Select[Any]:
    j = jobs.c
    return (
        sa.select(j.id, j.state, j.payload, j.exclusive_key)
        .where(dialect.id_in(conn, j.id, "wanted"))
        .order_by(j.id)
        .with_for_update(key_share=True)
    )


def _behind(conn: sa.Connection, found_jobs: dict[int, Any]) -> set[int]:
    """Return the jobs whose owner has another one that goes first."""
    keyed = [job_id for job_id, job in found_jobs.items() if job[3] is not None]
    if not keyed:
        return set()
    return set(
        conn.scalars(sa.select(jobs.c.id).where(jobs.c.id.in_(keyed), order.is_behind(jobs)))
    )


def _obstacle(
    row: Any,
    job_state: str,
    paused: set[str],
    behind: set[int],
    known: Collection[str],
    room: dict[int, int],
    locked: set[str | None],
) -> str | None:
    if job_state not in _ACTIVE:
        is_cancelled = job_state == JobState.CANCELLED
        return TaskState.CANCELLED if is_cancelled else Reason.STOPPED
    if row[3] in paused:
        return Reason.PAUSED
    if row[1] in behind:
        return Reason.USER_BUSY
    if row[3] not in known:
        return Reason.NO_WORKER
    if room and room.get(row[2], 1) <= 0:
        return Reason.CAP
    return Reason.LOCK_HELD if row[14] is not None and row[14] in locked else None


def _set_aside(conn: sa.Connection, aside: Sequence[tuple[Any, str]], now: Instant) -> None:
    """Move tasks out of the way that may not run, by the reason why."""
    moves = Transition(conn, now)
    for why in sorted({why for _, why in aside}):
        ids = [row.id for row, each in aside if each == why]
        rows = [(task_id,) for task_id in ids]
        if why == Reason.LOCK_HELD:
            exclusive.put_off(conn, ids, moves, now=now)
        elif why == TaskState.CANCELLED:
            moves.apply(rows, "cancel", source=TaskState.READY)
        else:
            moves.apply(rows, "hold", source=TaskState.READY, reason=why)
    moves.conclude()


def _lease(row: Any, job_payload: str, queue: str, at: float) -> Lease:
    (task_id, job_id, _, kind, payload, attempt, max_attempts, crashes, fence, priority,
     tag, at_most_once, from_page, to_page, _) = row  # fmt: skip
    return Lease(
        task_id, fence + 1, job_id, kind, job_payload if payload is None else payload,
        attempt + 1, max_attempts, crashes, queue, priority, tag, at,
        bool(crashes or at_most_once), from_page, to_page,
    )  # fmt: skip
