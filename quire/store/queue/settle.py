"""Renews leases and ends runs of tasks. Every write names (task, fence): a zombie's matches no row.

The holder settles what it ran (`settle`) and renews what it still runs (`renew`). Anyone else can
only revoke or reap, and both raise the fence.
"""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import LeaseLost
from quire.model.outcomes import Key, Settlement
from quire.model.retry import MAX_CRASHES, delay_after_death
from quire.model.states import JOB_ACTIVE, TASK_MOVES, JobState, TaskState
from quire.store.db import dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import is_state, jobs, tasks
from quire.store.queue import job_transition
from quire.store.queue.transition import Transition

t = tasks.c
RUNNING = TaskState.RUNNING
_HELD = {"id": "int", "fence": "int"}
_RUNNING = sa.select(t.id, t.fence, t.job_id, t.worker_id, t.crashes, t.at_most_once).where(
    is_state(t.state, RUNNING)
)
#: Moves of a run after which its document may have failed.
_UNSUCCESSFUL = ("fail", "lose", "give_up")
_STOPPED_ONCE = "it was stopped while it ran, and it must not run twice"


def renew(conn: sa.Connection, held: Sequence[Key], *, now: Instant, ttl: float) -> set[Key]:
    """Extend the leases (task, fence); returns those that are still held.

    Locked rows are skipped: the child is about to end its task, and if it hangs in that
    transaction, the worker must not lose its other leases.
    """
    if not held:
        return set()
    free = dialect.try_lock_rows(conn, tasks, [task_id for task_id, _ in held])
    h = dialect.json_rows(conn, "held", _HELD)
    kept = conn.execute(
        sa.update(tasks)
        .where(t.id == h.c.id, t.fence == h.c.fence, is_state(t.state, RUNNING))
        .values(expires_at=now.lease + ttl)
        .returning(t.id, t.fence),
        {"held": dialect.encode_rows([lease for lease in held if lease[0] in free])},
    )
    busy = [lease for lease in held if lease[0] not in free]
    return {*map(tuple, kept), *(still_held(conn, busy) if busy else ())}


def still_held(conn: sa.Connection, held: Sequence[Key]) -> set[Key]:
    """Return which of the leases (task, fence) have not been revoked or lost."""
    rows = conn.execute(_still_held(conn), {"held": dialect.encode_rows(held)}).all()
    return set(map(tuple, rows))


@dialect.statement
def _still_held(conn: sa.Connection) -> sa.Select[Any]:
    h = dialect.json_rows(conn, "held", _HELD)
    same = sa.and_(h.c.id == t.id, h.c.fence == t.fence)
    # The lease of a run that is inside a transaction outlives the stop of its job.
    is_active = is_state(jobs.c.state, *JOB_ACTIVE)
    held = sa.select(t.id, t.fence).join(h, same).join(jobs, jobs.c.id == t.job_id)
    return held.where(is_state(t.state, RUNNING), is_active)


def hold(conn: sa.Connection, task_id: int, fence: int) -> Any:
    """Lock a running task for a fenced write, or raise LeaseLost.

    The job is not locked: nobody but this task waits for the handler. Whoever calls this ends the
    transaction by `settle` or `require_active`, which find a stop that was made meanwhile.
    """
    row = conn.execute(_hold(conn), {"task": task_id, "held": fence}).one_or_none()
    if row is None:
        raise _lease_lost(task_id, fence)
    return row


def require_active(conn: sa.Connection, held: Any) -> None:
    """Lock the job of a task that `hold` returned; raise LeaseLost if it was stopped."""
    if job_transition.lock_inactive(conn, [held.job_id]):
        raise _lease_lost(held.id, held.fence)


def _lease_lost(task_id: int, fence: int) -> LeaseLost:
    return LeaseLost(
        f"task {task_id}: the lease with fence {fence} was ended by a stop, a cancel or a new "
        "holder. This transaction was rolled back."
    )


@dialect.statement
def _hold(_: sa.Connection) -> sa.Select[Any]:
    is_mine = t.id == sa.bindparam("task"), t.fence == sa.bindparam("held")
    return (
        sa.select(t.id, t.fence, t.job_id, t.owner_id, jobs.c.priority)
        .join(jobs, jobs.c.id == t.job_id)
        .where(*is_mine, is_state(t.state, RUNNING), is_state(jobs.c.state, *JOB_ACTIVE))
        .with_for_update(key_share=True, of=tasks)
    )


def settle(conn: sa.Connection, settlements: Sequence[Settlement], *, now: Instant) -> set[Key]:
    """Make the moves of lease holders; returns the runs settled, without those lost or stopped."""
    if not settlements:
        return set()
    if foreign := {e.move for e in settlements if not TASK_MOVES[e.move].fenced}:
        raise AssertionError(f"task: {sorted(foreign)} are no moves of a lease holder")
    if dialect.has_row_locks(conn):
        # The task of a zombie may be in the queue again: it is locked after its job, not here.
        ids = {"ids": dialect.encode_ids(conn, [e.task_id for e in settlements])}
        running = set(conn.scalars(_lock_running(conn), ids).all())
        settlements = [e for e in settlements if e.task_id in running]
    if bad := [e.task_id for e in settlements if e.move in _UNSUCCESSFUL]:
        on_ended(conn).lock(conn, bad)
    stopped = job_transition.lock_inactive(conn, sorted({e.job_id for e in settlements}))
    if stopped:
        refused = [e for e in settlements if e.job_id in stopped]
        unbegun = {e.key for e in refused if e.move == "return"}
        revoke(conn, [e.key for e in refused], now=now, unbegun=unbegun)
    moves = Transition(conn, now, are_active=True)
    done = moves.end([_storable(e) for e in settlements if e.job_id not in stopped])
    moves.conclude()
    return done


@dialect.statement
def _lock_running(conn: sa.Connection) -> sa.Select[Any]:
    running = sa.select(t.id).where(dialect.id_in(conn, t.id, "ids"), is_state(t.state, RUNNING))
    return running.order_by(t.id).with_for_update(key_share=True)


def revoke(
    conn: sa.Connection,
    held: Sequence[Key],
    *,
    now: Instant,
    outcome: str = "stopped",
    unbegun: Collection[Key] = (),
) -> list[int]:
    """End the leases (task, fence) of jobs that were stopped or cancelled; the attempt is returned.

    A task that must not run twice is lost, unless its run is known not to have begun.
    """
    rows = _held(conn, held)
    states = job_transition.lock_states(conn, sorted({row.job_id for row in rows}))
    settlements = []
    for row in rows:
        run = row.id, row.fence
        is_lost = row.at_most_once and run not in unbegun
        move = "give_up" if is_lost else "stop"
        settlements.append(
            Settlement(
                *run,
                row.job_id,
                "cancel" if states[row.job_id] == JobState.CANCELLED else move,
                outcome,
                error=_STOPPED_ONCE if is_lost else None,
                refund_attempt=not is_lost,
                worker_id=row.worker_id,
            )
        )
    return _end(conn, settlements, now)


def reap(
    conn: sa.Connection, *, now: Instant, dead: Sequence[str] = (), limit: int = 500
) -> list[int]:
    """Take back the tasks of dead workers and those whose lease has expired."""
    expired = t.expires_at < now.lease
    gone = sa.or_(expired, t.worker_id.in_(list(dead))) if dead else expired
    rows = conn.execute(
        _RUNNING.where(gone)
        .order_by(t.id)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    ).all()
    reaped = [_reaped(row) for row in rows]
    if bad := [e.task_id for e in reaped if e.move in _UNSUCCESSFUL]:
        on_ended(conn).lock(conn, bad)
    stopped = job_transition.lock_inactive(conn, sorted({row.job_id for row in rows}))
    revoke(conn, [(r.id, r.fence) for r in rows if r.job_id in stopped], now=now, outcome="died")
    return _end(conn, [one for one in reaped if one.job_id not in stopped], now)


def _reaped(row: Any) -> Settlement:
    """Decide what becomes of a task whose worker died."""
    crashes, error = row.crashes + 1, "the worker died or its lease ended"
    is_lost = row.at_most_once or crashes >= MAX_CRASHES
    wait = delay_after_death(crashes)
    move = "reap_later" if wait else "reap"
    if is_lost:
        move, error = "give_up", f"its worker died {MAX_CRASHES} times while it ran"
    if row.at_most_once:
        error = "its worker died while it ran, and it must not run twice"
    return Settlement(
        row.id, row.fence, row.job_id, move, "died", error=error, due_in=wait or None,
        refund_attempt=not is_lost, crashed=True, worker_id=row.worker_id,
    )  # fmt: skip


def _end(conn: sa.Connection, settlements: Sequence[Settlement], now: Instant) -> list[int]:
    moves = Transition(conn, now)
    done = moves.end(settlements)
    moves.conclude()
    return sorted(task_id for task_id, _ in done)


def _held(conn: sa.Connection, held: Sequence[Key]) -> list[Any]:
    """Read what is still held of the leases (task, fence); the caller has locked the rows."""
    if not held:
        return []
    wanted = set(held)
    rows = conn.execute(_RUNNING.where(t.id.in_(sorted({i for i, _ in held}))).order_by(t.id))
    return [row for row in rows if (row.id, row.fence) in wanted]


def _storable(settlement: Settlement) -> Settlement:
    """Clean the texts that a handler chose, so that one of them cannot fail a whole batch."""
    if settlement.error is None and settlement.traceback is None and settlement.result is None:
        return settlement
    error, traceback, result = (
        None if text is None else dialect.sanitize_text(text)
        for text in (settlement.error, settlement.traceback, settlement.result)
    )
    return settlement._replace(error=error, traceback=traceback, result=result)
