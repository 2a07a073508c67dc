"""Claims tasks: leases those at the head of a queue to a worker and raises their fence.

A claim that meets a task which may not run (its job is stopped, its kind paused or unknown to this
worker, its owner at the cap, its exclusive key held) moves it out of the way.
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
from quire.store.queue import job_transition, order, release, transition
from quire.store.queue.transition import Transition

t = tasks.c
_ACTIVE = frozenset(state.value for state in JOB_ACTIVE)


class _Ready(NamedTuple):
    """A ready task; its names are columns. Rows of SQLAlchemy are much slower to read by name."""

    id: int
    job_id: int
    owner_id: int
    kind: str
    payload: str | None
    attempt: int
    max_attempts: int
    crashes: int
    fence: int
    priority: int
    fair_tag: float
    at_most_once: bool
    from_page: int | None
    to_page: int | None
    exclusive_key: str | None


class _Job(NamedTuple):
    """The job of a ready task."""

    id: int
    state: str
    payload: str
    exclusive_key: str | None


_HEAD = (
    sa.select(*(t[name] for name in _Ready._fields))
    .where(is_state(t.state, TaskState.READY), t.queue == sa.bindparam("queue"))
    .order_by(t.queue, t.priority, t.fair_tag, t.id)
    .limit(sa.bindparam("limit"))
)
_a = tasks.alias().c
#: The same without the kinds that other workers run, which it neither locks nor moves.
_HEAD_AROUND = _HEAD.where(
    t.kind.not_in(sa.bindparam("elsewhere", expanding=True)),
    t.id.in_(
        sa.select(_a.id)
        .where(is_state(_a.state, TaskState.READY), _a.queue == sa.bindparam("queue"))
        .order_by(_a.queue, _a.priority, _a.fair_tag, _a.id)
        .limit(sa.bindparam("ahead"))
    ),
)
_FREE_HEAD, _FREE_HEAD_AROUND = (
    head.with_for_update(skip_locked=True, of=tasks) for head in (_HEAD, _HEAD_AROUND)
)
_CAPPED = sa.select(owners.c.id, owners.c.max_running).where(owners.c.max_running.is_not(None))
#: A claim that met only tasks that may not run looks again, this far ahead and this often.
LOOK_AHEAD, MAX_ROUNDS = 500, 4
#: How far a claim looks now and then past the kinds that other workers run.
DEEP_LOOK = 100_000
#: How often a task waits for the running task with its exclusive key.
KEY_TRIES = 10
_PAUSED = sa.select(kinds.c.name).where(kinds.c.paused_at.is_not(None))


class Claimed(NamedTuple):
    """Claimed rows; leases are made after the commit, so that the write lock ends sooner."""

    rows: list[_Ready]
    found_jobs: dict[int, _Job]
    queue: str
    at: float
    #: Some tasks were left because another transaction holds their job or their owner.
    was_contended: bool = False

    def leases(self) -> list[Lease]:
        """Return one lease per task, most urgent first."""
        return [
            Lease(
                row.id, row.fence + 1, row.job_id, row.kind,
                self.found_jobs[row.job_id].payload if row.payload is None else row.payload,
                row.attempt + 1, row.max_attempts, row.crashes, self.queue, row.priority,
                row.fair_tag, self.at, bool(row.crashes or row.at_most_once), row.from_page,
                row.to_page,
            )
            for row in self.rows
        ]  # fmt: skip


def claim(
    conn: sa.Connection, worker_id: str, queue: str, known: Collection[str], **how: Any
) -> list[Lease]:
    """Lease tasks as `claim_rows` does, but wait for their jobs if there is nothing else.

    Returns the leases, most urgent first.
    """
    with conn.begin_nested() as attempt:
        claimed = claim_rows(conn, worker_id, queue, known, **how)
        if not claimed.rows and claimed.was_contended:
            attempt.rollback()
    if not claimed.rows and claimed.was_contended:
        claimed = claim_rows(conn, worker_id, queue, known, wait=True, **how)
    return claimed.leases()


def claim_rows(
    conn: sa.Connection,
    worker_id: str,
    queue: str,
    known: Collection[str],
    *,
    now: Instant,
    ttl: float,
    limit: int = 1,
    alone: int | None = None,
    elsewhere: Collection[str] = (),
    look_ahead: int = LOOK_AHEAD,
    wait: bool = False,
) -> Claimed:
    """Lease up to `limit` tasks of the `known` kinds at the head of `queue` to a worker.

    At most `alone` of them must be the only task of their child (they crashed before, or run at
    most once): if this worker died, a task claimed ahead of time would be blamed for it. Of the
    kinds that run `elsewhere`, up to `look_ahead` tasks are passed over; those of other unknown
    kinds are set aside.

    Tasks, jobs and owners that another transaction holds are left; a transaction that has locked
    no job yet can `wait` for the first of them.
    """
    if wait and not job_transition.holds_jobs(conn):
        _wait_for_head(conn, queue, limit, elsewhere, look_ahead)
    free_slots, busy_owners = _free_slots(conn)
    release.release_capped(conn, queue, free_slots, now=now)
    alone = limit if alone is None else alone
    is_contended = False
    for length in (limit, *[max(limit, LOOK_AHEAD)] * MAX_ROUNDS):
        rows = _head(conn, queue, length, elsewhere, look_ahead)
        if not rows:
            break
        found_jobs = _jobs_of(conn, rows)
        head = [r for r in rows if r.job_id in found_jobs and r.owner_id not in busy_owners]
        is_contended = len(head) < len(rows)
        taken, blocked = _select(conn, head, found_jobs, known, free_slots, limit, alone)
        if taken:
            transition.claim(conn, [row.id for row in taken], worker_id, now=now, ttl=ttl)
            begun = Counter([row.job_id for row in taken])
            job_transition.start(conn, begun, worker_id, now=now)
        if blocked:
            _set_aside(conn, blocked, now)
        is_cut_short = is_contended and len(rows) == length < LOOK_AHEAD
        if taken or not (blocked or is_cut_short):
            return Claimed(taken, found_jobs, queue, now.wall, is_contended)
    return Claimed([], {}, queue, now.wall, is_contended)


def _head(
    conn: sa.Connection,
    queue: str,
    limit: int,
    elsewhere: Collection[str],
    look_ahead: int,
    *,
    is_locking: bool = True,
) -> list[_Ready]:
    wanted = {"queue": queue, "limit": limit}
    plain, around = (_FREE_HEAD, _FREE_HEAD_AROUND) if is_locking else (_HEAD, _HEAD_AROUND)
    if not elsewhere:
        return [_Ready._make(row) for row in conn.execute(plain, wanted)]
    for ahead in sorted({LOOK_AHEAD, look_ahead}):
        given = wanted | {"elsewhere": sorted(elsewhere), "ahead": ahead}
        if found := [_Ready._make(row) for row in conn.execute(around, given)]:
            return found
    return []


def _select(
    conn: sa.Connection,
    head: Sequence[_Ready],
    found_jobs: dict[int, _Job],
    known: Collection[str],
    free_slots: dict[int, int],
    limit: int,
    alone: int,
) -> tuple[list[_Ready], list[tuple[_Ready, str]]]:
    """Return the rows to take, and those that may not run with the reason."""
    paused = set(conn.scalars(_PAUSED))
    behind = _jobs_behind(conn, found_jobs)
    locked = _running_keys(conn, head)
    taken: list[_Ready] = []
    blocked: list[tuple[_Ready, str]] = []
    for row in head:
        if len(taken) == limit:
            break
        job_state = found_jobs[row.job_id].state
        why = _blocking_reason(row, job_state, paused, behind, known, free_slots, locked)
        if why is not None:
            blocked.append((row, why))
            continue
        if row.crashes or row.at_most_once:
            if alone <= 0:
                continue
            alone -= 1
        taken.append(row)
        locked.add(row.exclusive_key)
        if row.owner_id in free_slots:
            free_slots[row.owner_id] -= 1
    return taken, blocked


def advance(conn: sa.Connection, leases: Sequence[Lease]) -> None:
    """Record how far the fair order has got, from the leases of a claim; it may lag behind."""
    furthest: dict[tuple[str, int], float] = {}
    for lease in leases:
        key = lease.queue, lease.priority
        furthest[key] = max(furthest.get(key, 0.0), lease.fair_tag)
    for (queue, priority), tag in sorted(furthest.items()):
        order.advance_band(conn, queue, priority, tag)


def _wait_for_head(
    conn: sa.Connection, queue: str, limit: int, elsewhere: Collection[str], look_ahead: int
) -> None:
    """Wait for what another claim of the same tasks may hold, in the lock order."""
    dialect.lock_rows(conn, owners, [row.id for row in conn.execute(_CAPPED)])
    head = _head(conn, queue, limit, elsewhere, look_ahead, is_locking=False)
    job_transition.lock(conn, {row.job_id for row in head})


def _free_slots(conn: sa.Connection) -> tuple[dict[int, int], set[int]]:
    """Return how many more tasks each capped owner may run, and the owners that others hold."""
    capped = conn.execute(_CAPPED).all()
    if not capped:
        return {}, set()
    locked = dialect.try_lock_rows(conn, owners, [row.id for row in capped])
    counted = conn.execute(
        sa.select(t.owner_id, sa.func.count().label("running"))
        .where(is_state(t.state, TaskState.RUNNING))
        .group_by(t.owner_id)
    )
    running: dict[int, int] = {row.owner_id: row.running for row in counted}
    slots = {row.id: row.max_running - running.get(row.id, 0) for row in capped}
    return {i: slots[i] for i in locked}, set(slots) - locked


def _jobs_of(conn: sa.Connection, head: Sequence[_Ready]) -> dict[int, _Job]:
    """Lock and read the jobs of tasks, those that are free."""
    wanted = dialect.encode_ids(conn, sorted({row.job_id for row in head}))
    found = {row.id: _Job._make(row) for row in conn.execute(_lock_jobs(conn), {"wanted": wanted})}
    job_transition.note_locked(conn, set(found))
    return found


@dialect.statement
def _lock_jobs(conn: sa.Connection) -> sa.Select[Any]:
    j = jobs.c
    return (
        sa.select(*(j[name] for name in _Job._fields))
        .where(dialect.id_in(conn, j.id, "wanted"))
        .with_for_update(key_share=True, skip_locked=True)
    )


def _jobs_behind(conn: sa.Connection, found_jobs: dict[int, _Job]) -> set[int]:
    """Return the jobs whose owner has another one that goes first."""
    keyed = [job_id for job_id, job in found_jobs.items() if job.exclusive_key is not None]
    if not keyed:
        return set()
    return set(
        conn.scalars(sa.select(jobs.c.id).where(jobs.c.id.in_(keyed), order.is_behind(jobs)))
    )


def _blocking_reason(
    row: _Ready,
    job_state: str,
    paused: set[str],
    behind: set[int],
    known: Collection[str],
    free_slots: dict[int, int],
    locked: set[str | None],
) -> str | None:
    if job_state not in _ACTIVE:
        is_cancelled = job_state == JobState.CANCELLED
        return TaskState.CANCELLED if is_cancelled else Reason.STOPPED
    if row.kind in paused:
        return Reason.PAUSED
    if row.job_id in behind:
        return Reason.USER_BUSY
    if row.kind not in known:
        return Reason.NO_WORKER
    if free_slots and free_slots.get(row.owner_id, 1) <= 0:
        return Reason.CAP
    is_locked = row.exclusive_key is not None and row.exclusive_key in locked
    return Reason.LOCK_HELD if is_locked else None


def _set_aside(conn: sa.Connection, blocked: Sequence[tuple[_Ready, str]], now: Instant) -> None:
    """Move tasks that may not run out of the queue, by the reason."""
    moves = Transition(conn, now)
    for why in sorted({why for _, why in blocked}):
        ids = [row.id for row, each in blocked if each == why]
        rows = [(task_id,) for task_id in ids]
        if why == Reason.LOCK_HELD:
            _wait_for_key(conn, ids, moves, now)
        elif why == TaskState.CANCELLED:
            moves.apply(rows, "cancel", source=TaskState.READY)
        else:
            moves.apply(rows, "hold", source=TaskState.READY, reason=why)
    moves.conclude()


def _running_keys(conn: sa.Connection, head: Sequence[_Ready]) -> set[str | None]:
    """Return the exclusive keys of these tasks that a running task holds.

    A unique index over running tasks keeps the promise; this keeps claims from violating it.
    """
    keys = {row.exclusive_key for row in head if row.exclusive_key is not None}
    if not keys:
        return set()
    wanted = {"keys": dialect.encode_rows([[key] for key in sorted(keys)])}
    return set(conn.scalars(_running(conn), wanted))


@dialect.statement
def _running(conn: sa.Connection) -> sa.Select[Any]:
    wanted = dialect.json_rows(conn, "keys", {"key": "text"})
    return (
        sa.select(t.exclusive_key)
        .join(wanted, wanted.c.key == t.exclusive_key)
        .where(is_state(t.state, TaskState.RUNNING))
    )


def _wait_for_key(conn: sa.Connection, ids: Sequence[int], moves: Transition, now: Instant) -> None:
    """Make ready tasks wait for the holder of their key, or fail them after ten tries."""
    # Every tenth time, because a revived task has ten tries again.
    rows = conn.execute(sa.select(t.id, t.lock_tries + 1).where(t.id.in_(sorted(ids)))).all()
    waiting = [(task_id, tries) for task_id, tries in rows if tries % KEY_TRIES]
    locked_out = [(task_id, tries) for task_id, tries in rows if tries % KEY_TRIES == 0]
    why = f"another task of the same document was running at each of {KEY_TRIES} tries"
    held = {"reason": Reason.LOCK_HELD.value, "due_at": now.wall + release.KEY_SECONDS}
    tries = ("lock_tries",)
    moves.apply(waiting, "hold", source=TaskState.READY, columns=tries, **held)
    moves.apply(locked_out, "lock_out", source=TaskState.READY, columns=tries, error=why)
