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
from quire.model.records import API
from quire.model.states import JOB_ACTIVE, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, kinds, owners, tasks
from quire.store.queue import job_transition, order, release, transition
from quire.store.queue.transition import Transition

t = tasks.c
_ACTIVE = frozenset(state.value for state in JOB_ACTIVE)


class Ready(NamedTuple):
    """A ready task; its names are columns. Rows of SQLAlchemy are much slower to read by name."""

    id: int
    job_id: int
    owner_id: int
    kind: str
    #: The task's own, or its job's.
    payload: str
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
    #: None if another transaction holds the job.
    job_state: str | None = None
    job_key: str | None = None
    job_origin: str | None = None


class Limits(NamedTuple):
    """What keeps tasks from being claimed, read once for all queues of a claim."""

    #: The owners with a cap: (id, how many may run).
    capped: list[tuple[int, int]]
    paused: set[str]
    #: When the next blocked task is due.
    next_due_at: float | None


_TASK_COLUMNS = tuple(name for name in Ready._fields if name in t)
HEAD = (
    sa.select(*(t[name] for name in _TASK_COLUMNS))
    .where(is_state(t.state, TaskState.READY), t.queue == sa.bindparam("queue"))
    .order_by(t.queue, t.priority, t.fair_tag, t.id)
    .limit(sa.bindparam("limit"))
)
_a = tasks.alias().c
#: The same without the kinds that other workers run, which it neither locks nor moves.
_HEAD_AROUND = HEAD.where(
    t.kind.not_in(sa.bindparam("elsewhere", expanding=True)),
    t.id.in_(
        sa.select(_a.id)
        .where(is_state(_a.state, TaskState.READY), _a.queue == sa.bindparam("queue"))
        .order_by(_a.queue, _a.priority, _a.fair_tag, _a.id)
        .limit(sa.bindparam("ahead"))
    ),
)
#: The owners with ready tasks, each found by one look into an index.
_READY_OWNERS = (
    sa.select(sa.func.min(t.owner_id).label("id"))
    .where(is_state(t.state, TaskState.READY))
    .cte("ready_owners", recursive=True)
)
_READY_OWNERS = _READY_OWNERS.union_all(
    sa.select(
        sa.select(sa.func.min(_a.owner_id))
        .where(is_state(_a.state, TaskState.READY), _a.owner_id > _READY_OWNERS.c.id)
        .scalar_subquery()
    ).where(_READY_OWNERS.c.id.is_not(None))
)
#: The first ready task of each owner, without the tenants that are passed over: however many tasks
#: those have, and whatever priority, they are not read.
_FIRST_OF_OTHERS = (
    sa.select(
        sa.select(_a.id)
        .where(
            is_state(_a.state, TaskState.READY),
            _a.owner_id == owners.c.id,
            _a.queue == sa.bindparam("queue"),
            _a.kind.not_in(sa.bindparam("elsewhere", expanding=True)),
        )
        .order_by(_a.owner_id, _a.queue, _a.priority, _a.fair_tag)
        .limit(1)
        .scalar_subquery()
    )
    .join(_READY_OWNERS, _READY_OWNERS.c.id == owners.c.id)
    .where(owners.c.tenant.not_in(sa.bindparam("without", expanding=True)))
)
_CAPPED = sa.select(owners.c.id, owners.c.max_running).where(owners.c.max_running.is_not(None))
_no_id, _no_count = sa.cast(sa.null(), sa.BigInteger), sa.cast(sa.null(), sa.Integer)
_no_kind, _no_time = sa.cast(sa.null(), sa.Text), sa.cast(sa.null(), sa.Double)
_LIMITS = sa.union_all(
    _CAPPED.add_columns(_no_kind, _no_time.label("due_at")),
    sa.select(_no_id, _no_count, kinds.c.name, _no_time).where(kinds.c.paused_at.is_not(None)),
    sa.select(_no_id, _no_count, _no_kind, release.NEXT_DUE.scalar_subquery()),
)
#: A claim that met only tasks that may not run looks again, this far ahead and this often.
LOOK_AHEAD, MAX_ROUNDS = 500, 4
#: How far a claim looks now and then past the kinds that other workers run.
DEEP_LOOK = 100_000
#: How often a task waits for the running task with its exclusive key.
KEY_TRIES = 10


class Claimed(NamedTuple):
    """Claimed rows; leases are made after the commit, so that the write lock ends sooner."""

    rows: list[Ready]
    queue: str
    at: float
    #: Some tasks were left because another transaction holds their job or their owner.
    was_contended: bool = False
    #: Some tasks were moved out of the way, and may be due at another time than before.
    has_set_aside: bool = False

    def leases(self) -> list[Lease]:
        """Return one lease per task, most urgent first."""
        return [
            Lease(
                row.id, row.fence + 1, row.job_id, row.kind, row.payload,
                row.attempt + 1, row.max_attempts, row.crashes, self.queue, row.priority,
                row.fair_tag, self.at, bool(row.crashes or row.at_most_once), row.from_page,
                row.to_page, row.job_origin or API, row.owner_id,
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


def read_limits(conn: sa.Connection) -> Limits:
    """Read what keeps tasks from being claimed, and when the next blocked task is due."""
    *limits, last = conn.execute(_LIMITS).all()
    capped = [(owner_id, most) for owner_id, most, _, _ in limits if owner_id is not None]
    return Limits(capped, {kind for _, _, kind, _ in limits if kind is not None}, last[3])


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
    without: Collection[str] = (),
    wait: bool = False,
    limits: Limits | None = None,
) -> Claimed:
    """Lease up to `limit` tasks of the `known` kinds at the head of `queue` to a worker.

    At most `alone` of them must be the only task of their child (they crashed before, or run at
    most once): if this worker died, a task claimed ahead of time would be blamed for it. Of the
    kinds that run `elsewhere`, up to `look_ahead` tasks are passed over; those of other unknown
    kinds are set aside. Tasks of the tenants `without` are left; of any other owner, only the first
    ready task is looked at then.

    Tasks, jobs and owners that another transaction holds are left; a transaction that has locked
    no job yet can `wait` for the first of them.
    """
    if wait and not job_transition.holds_jobs(conn):
        _wait_for_head(conn, queue, limit, elsewhere, look_ahead, without)
    limits = limits or read_limits(conn)
    free_slots, busy_owners = _free_slots(conn, limits)
    release.release_capped(conn, queue, free_slots, now=now)
    alone = limit if alone is None else alone
    is_contended = has_set_aside = False
    for length in (limit, *[max(limit, LOOK_AHEAD)] * MAX_ROUNDS):
        rows = _head(conn, queue, length, elsewhere, look_ahead, without)
        if not rows:
            break
        job_transition.note_locked(conn, {r.job_id for r in rows if r.job_state is not None})
        head = [r for r in rows if r.job_state is not None and r.owner_id not in busy_owners]
        is_contended = len(head) < len(rows)
        taken, blocked = _select(conn, head, limits.paused, known, free_slots, limit, alone)
        if taken:
            begun = Counter([row.job_id for row in taken])
            transition.claim(conn, [row.id for row in taken], begun, worker_id, now=now, ttl=ttl)
        if blocked:
            _set_aside(conn, blocked, now)
            has_set_aside = True
        is_cut_short = is_contended and len(rows) == length < LOOK_AHEAD
        if taken or not (blocked or is_cut_short):
            return Claimed(taken, queue, now.wall, is_contended, has_set_aside)
    return Claimed([], queue, now.wall, is_contended, has_set_aside)


def _head(
    conn: sa.Connection,
    queue: str,
    limit: int,
    elsewhere: Collection[str],
    look_ahead: int,
    without: Collection[str],
    *,
    is_locking: bool = True,
) -> list[Ready]:
    """Read tasks at the head of the queue with their jobs; locks those of both that are free."""
    wanted = {"queue": queue, "limit": limit}
    if without:
        given = wanted | {"elsewhere": sorted(elsewhere), "without": sorted(without)}
        found = conn.execute(_of_others(conn, is_locking), given).all()
        return list(map(Ready._make, found))
    if not elsewhere:
        found = conn.execute(_with_jobs(conn, False, is_locking), wanted).all()
        return list(map(Ready._make, found))
    for ahead in sorted({LOOK_AHEAD, look_ahead}):
        given = wanted | {"elsewhere": sorted(elsewhere), "ahead": ahead}
        found = conn.execute(_with_jobs(conn, True, is_locking), given).all()
        if found:
            return list(map(Ready._make, found))
    return []


@dialect.statement
def _with_jobs(conn: sa.Connection, is_around: bool, is_locking: bool) -> sa.Select[Any]:
    return _joined(conn, _HEAD_AROUND if is_around else HEAD, is_locking)


@dialect.statement
def _of_others(conn: sa.Connection, is_locking: bool) -> sa.Select[Any]:
    first = _FIRST_OF_OTHERS.scalar_subquery()
    if dialect.has_row_locks(conn):  # an array, see `dialect.id_in`
        return _joined(conn, HEAD.where(t.id == sa.any_(sa.func.array(first))), is_locking)
    return _joined(conn, HEAD.where(t.id.in_(first)), is_locking)


def _joined(conn: sa.Connection, head: sa.Select[Any], is_locking: bool) -> sa.Select[Any]:
    """Select tasks and their jobs in one statement: a claim is mostly round trips."""
    if not (is_locking and dialect.has_row_locks(conn)):
        both = head.join(jobs, jobs.c.id == t.job_id)
        return both.with_only_columns(*columns(t, jobs.c))
    h = head.with_for_update(skip_locked=True, of=tasks).cte("head")
    # An array, see `dialect.id_in`.
    ids = sa.func.array(sa.select(h.c.job_id).scalar_subquery())
    own = [jobs.c[name] for name in ("id", "state", "payload", "exclusive_key", "origin")]
    free = sa.select(*own).where(jobs.c.id == sa.any_(ids))
    f = free.with_for_update(key_share=True, skip_locked=True).cte("free")
    return (
        sa.select(*columns(h.c, f.c))
        .join_from(h, f, f.c.id == h.c.job_id, isouter=True)
        .order_by(h.c.priority, h.c.fair_tag, h.c.id)
    )


def columns(task: Any, job: Any) -> list[Any]:
    payload = sa.func.coalesce(task.payload, job.payload).label("payload")
    own = [payload if name == "payload" else task[name] for name in _TASK_COLUMNS]
    return [*own, job.state, job.exclusive_key, job.origin]


def _select(
    conn: sa.Connection,
    head: Sequence[Ready],
    paused: set[str],
    known: Collection[str],
    free_slots: dict[int, int],
    limit: int,
    alone: int,
) -> tuple[list[Ready], list[tuple[Ready, str]]]:
    """Return the rows to take, and those that may not run with the reason."""
    behind = _jobs_behind(conn, head)
    locked = _running_keys(conn, head)
    taken: list[Ready] = []
    blocked: list[tuple[Ready, str]] = []
    for row in head:
        if len(taken) == limit:
            break
        why = _blocking_reason(row, paused, behind, known, free_slots, locked)
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
    conn: sa.Connection,
    queue: str,
    limit: int,
    elsewhere: Collection[str],
    look_ahead: int,
    without: Collection[str],
) -> None:
    """Wait for what another claim of the same tasks may hold, in the lock order."""
    dialect.lock_rows(conn, owners, [row.id for row in conn.execute(_CAPPED)])
    head = _head(conn, queue, limit, elsewhere, look_ahead, without, is_locking=False)
    job_transition.lock(conn, {row.job_id for row in head})


def _free_slots(conn: sa.Connection, limits: Limits) -> tuple[dict[int, int], set[int]]:
    """Return how many more tasks each capped owner may run, and the owners that others hold."""
    if not limits.capped:
        return {}, set()
    locked = dialect.try_lock_rows(conn, owners, [owner_id for owner_id, _ in limits.capped])
    counted = conn.execute(
        sa.select(t.owner_id, sa.func.count().label("running"))
        .where(is_state(t.state, TaskState.RUNNING))
        .group_by(t.owner_id)
    )
    running: dict[int, int] = {row.owner_id: row.running for row in counted}
    slots = {i: max_running - running.get(i, 0) for i, max_running in limits.capped}
    return {i: slots[i] for i in locked}, set(slots) - locked


def _jobs_behind(conn: sa.Connection, head: Sequence[Ready]) -> set[int]:
    """Return the jobs whose owner has another one that goes first."""
    keyed = sorted({row.job_id for row in head if row.job_key is not None})
    if not keyed:
        return set()
    return set(
        conn.scalars(sa.select(jobs.c.id).where(jobs.c.id.in_(keyed), order.is_behind(jobs)))
    )


def _blocking_reason(
    row: Ready,
    paused: set[str],
    behind: set[int],
    known: Collection[str],
    free_slots: dict[int, int],
    locked: set[str | None],
) -> str | None:
    if row.job_state not in _ACTIVE:
        is_cancelled = row.job_state == JobState.CANCELLED
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


def _set_aside(conn: sa.Connection, blocked: Sequence[tuple[Ready, str]], now: Instant) -> None:
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


def _running_keys(conn: sa.Connection, head: Sequence[Ready]) -> set[str | None]:
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
