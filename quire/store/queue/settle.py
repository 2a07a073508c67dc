"""Ends runs of tasks. Every write here names (task, fence): a zombie's matches no row.

The holder settles what it ran (`settle`) and renews what it still runs (`renew`). Anyone else
may only revoke or reap, and both raise the fence in the same statement.
"""

import functools
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import LeaseLost
from quire.model.records import EndedTask, Ending
from quire.model.retry import MAX_CRASHES, delay_after_death
from quire.model.states import JOB_ACTIVE, TASK_FINAL, TASK_MOVES, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import attempts, is_state, jobs, tasks
from quire.store.queue import attempts as history
from quire.store.queue import dependencies, events
from quire.store.queue.counters import Deltas, Touched, bump, ended, is_over

t = tasks.c
RUNNING = TaskState.RUNNING
_HELD = {"id": "int", "fence": "int"}
#: Seconds until a task may run again, by the deaths it has suffered before this one.
_DELAYS = {n: wait for n in range(MAX_CRASHES) if (wait := delay_after_death(n + 1))}
_SEEN = (
    t.id, t.job_id, t.fence, t.attempt, t.begin_at, t.state, t.at_most_once, t.cost, t.parent_id,
    t.document_id,
)  # fmt: skip
_STOPPED_ONCE = "it was stopped while it ran, and it must not run twice"


def renew(
    conn: sa.Connection, held: Sequence[tuple[int, int]], *, now: Instant, ttl: float
) -> set[int]:
    """Extend the leases (task, fence); returns the tasks that are still held.

    One whose row is locked is not waited for: its own child is about to end it, and one that
    stays in that transaction must not cost this worker its other leases.
    """
    if not held:
        return set()
    free = dialect.try_lock_rows(conn, tasks, [task_id for task_id, _ in held])
    h = dialect.json_rows(conn, "held", _HELD)
    kept = conn.scalars(
        sa.update(tasks)
        .where(t.id == h.c.id, t.fence == h.c.fence, is_state(t.state, RUNNING))
        .values(expires_at=now.lease + ttl)
        .returning(t.id),
        {"held": dialect.encode_rows([lease for lease in held if lease[0] in free])},
    )
    busy = [lease for lease in held if lease[0] not in free]
    return {*kept, *(still_held(conn, busy) if busy else ())}


def still_held(conn: sa.Connection, held: Sequence[tuple[int, int]]) -> set[int]:
    """Return which of the leases (task, fence) have not been revoked or lost."""
    statement = dialect.cached(conn, "still held", lambda: _still_holding(conn))
    return set(conn.scalars(statement, {"held": dialect.encode_rows(held)}))


def _still_holding(conn: sa.Connection) -> sa.Select[Any]:
    h = dialect.json_rows(conn, "held", _HELD)
    same = sa.and_(h.c.id == t.id, h.c.fence == t.fence)
    return sa.select(t.id).join(h, same).where(is_state(t.state, RUNNING))


def hold(conn: sa.Connection, task_id: int, fence: int) -> Any:
    """Lock a running task and its job for a fenced write, or raise LeaseLost."""
    statement = dialect.cached(conn, "hold", _holding)
    row = conn.execute(statement, {"task": task_id, "held": fence}).one_or_none()
    if row is not None and not _stopped_jobs(conn, [row.job_id]):
        return row
    raise LeaseLost(
        f"task {task_id}: the lease with fence {fence} was ended by a stop, a cancel or a new "
        "holder. Nothing of this transaction is written."
    )


def _holding() -> sa.Select[Any]:
    return (
        sa.select(t.id, t.job_id, t.owner_id, t.queue, t.attempt, t.fence, jobs.c.priority)
        .join(jobs, jobs.c.id == t.job_id)
        .where(
            t.id == sa.bindparam("task"),
            t.fence == sa.bindparam("held"),
            is_state(t.state, RUNNING),
        )
        .with_for_update(key_share=True, of=tasks)
    )


def settle(conn: sa.Connection, endings: Sequence[Ending], *, now: Instant) -> set[int]:
    """Make the fenced moves; returns the tasks settled. Those lost or stopped are left out."""
    if not endings:
        return set()
    dialect.lock_rows(conn, tasks, [e.task_id for e in endings])
    gone = _stopped_jobs(conn, sorted({e.job_id for e in endings}))
    by_run = {(e.task_id, e.fence): _storable(e) for e in endings if e.job_id not in gone}
    if gone:
        late = [(e.task_id, e.fence) for e in endings if e.job_id in gone]
        revoke(conn, late, now=now)
    rows = _end(conn, list(by_run.values()), now)
    if not rows:
        return set()
    deltas, lines = _tally(rows, by_run, now)
    history.write(conn, lines)
    of_documents = [_ended(row, by_run[row.id, row.fence]) for row in rows if row.document_id]
    if of_documents:
        on_ended(conn).tasks_ended(conn, of_documents, now=now)
    _tell_of_trouble(conn, by_run, rows, now)
    finish_jobs(conn, bump(conn, deltas, now=now, are_locked=True), now=now)
    dependencies.satisfy_tasks(
        conn, {r.id: r.state for r in rows if r.has_successors and r.state in TASK_FINAL}, now=now
    )
    return {row.id for row in rows}


def _tally(
    rows: Sequence[Any], by_run: dict[tuple[int, int], Ending], now: Instant
) -> tuple[Deltas, list[tuple[Any, ...]]]:
    """Add up what the endings change about jobs, and the history row of each."""
    deltas = Deltas()
    lines: list[tuple[Any, ...]] = []
    # Unpacked by position: this loop runs for every task there is, inside the transaction.
    for task_id, job_id, fence, attempt, state, cost, parent_id, begin_at, about, *_ in rows:
        one = by_run[task_id, fence]
        delta = deltas[job_id]
        delta.move(RUNNING, state)
        if is_over(state, parent_id, about):
            delta.cost_done += 0.0 if one.move == "split" else cost
        elif state == TaskState.BLOCKED:
            delta.retry_count += 1
        if one.error is not None:
            delta.error = one.error
        if one.result is not None and parent_id is None:
            delta.result = one.result
        lines.append(
            (task_id, fence, attempt + one.give_back, one.began_at or begin_at, now.wall,
             one.duration, one.outcome, one.error, one.traceback, one.peak_rss, one.worker_id)
        )  # fmt: skip
    return deltas, lines


def _ended(row: Any, ending: Ending | None = None) -> EndedTask:
    about = row.id, row.state, row.document_id, row.generation, row.from_page, row.error
    if ending is None:
        return EndedTask(row.id, "lose", *about[1:])
    run = ending.outcome, ending.duration, ending.peak_rss
    return EndedTask(row.id, ending.move, *about[1:], *run)


def _tell_of_trouble(
    conn: sa.Connection,
    by_run: dict[tuple[int, int], Ending],
    rows: Sequence[Any],
    now: Instant,
) -> None:
    """Record the runs that did not succeed; a success is told by its job's end."""
    told = []
    if all(ending.error is None for ending in by_run.values()):
        return
    for row in rows:
        ending = by_run[row.id, row.fence]
        if ending.error is not None:
            again = {"again_in": round(ending.due_in, 1)} if ending.due_in else {}
            detail = {"outcome": ending.outcome, "error": ending.error, "attempt": row.attempt}
            told.append(
                events.Event(row.job_id, f"task.{ending.move}", row.id, {**detail, **again})
            )
    events.record(conn, told, now=now)


def finish_jobs(conn: sa.Connection, touched: Sequence[Touched], *, now: Instant) -> None:
    """Record the jobs that ended and let go of what waited for them."""
    over = ended(touched)
    if not over:
        return
    events.record(
        conn,
        [
            events.Event(j.id, f"job.{j.state}", None, {"error": j.error} if j.error else None)
            for j in over
        ],
        now=now,
    )
    dependencies.satisfy_jobs(conn, {j.id: j.state for j in over if j.has_successors}, now=now)
    dependencies.let_next_job_go(conn, {j.owner_id for j in over if j.exclusive_key}, now=now)


def was_settled(conn: sa.Connection, task_id: int, fence: int) -> str | None:
    """Return how this very run ended, if it did: the judge after a COMMIT whose reply was lost."""
    # That COMMIT may still be under way: the lock waits for it.
    dialect.lock_rows(conn, tasks, [task_id])
    found: str | None = conn.scalar(
        sa.select(attempts.c.outcome).where(
            attempts.c.task_id == task_id, attempts.c.fence == fence
        )
    )
    return found


def revoke(
    conn: sa.Connection, held: Sequence[tuple[int, int]], *, now: Instant, outcome: str = "stopped"
) -> list[int]:
    """End leases because the job was stopped or cancelled: fence + 1, the attempt given back.

    A task that must not run twice is lost: it began, and its end was not seen.
    """
    if not held:
        return []
    holders = history.holders(conn, held)
    h = dialect.json_rows(conn, "held", _HELD)
    is_cancelled = sa.exists().where(
        jobs.c.id == t.job_id, is_state(jobs.c.state, JobState.CANCELLED)
    )
    is_final = sa.or_(is_cancelled, t.at_most_once)
    rows = conn.execute(
        sa.update(tasks)
        .where(t.id == h.c.id, t.fence == h.c.fence, is_state(t.state, RUNNING))
        .values(
            state=sa.case(
                (is_cancelled, TaskState.CANCELLED.value),
                (t.at_most_once, TaskState.LOST.value),
                else_=TaskState.BLOCKED.value,
            ),
            reason=sa.case((is_final, sa.null()), else_=Reason.STOPPED.value),
            error=sa.case((t.at_most_once, _STOPPED_ONCE), else_=t.error),
            finished_at=sa.case((is_final, now.wall), else_=sa.null()),
            fence=t.fence + 1,
            attempt=sa.case((t.at_most_once, t.attempt), else_=t.attempt - 1),
            worker_id=None,
            expires_at=None,
        )
        .returning(*_SEEN),
        {"held": dialect.encode_rows(held)},
    ).all()
    deltas = Deltas()
    for row in rows:
        deltas[row.job_id].leave(RUNNING, row)
    history.remember(conn, rows, holders, outcome, None, now)
    bump(conn, deltas, now=now)
    return [row.id for row in rows]


def reap(
    conn: sa.Connection, *, now: Instant, dead: Sequence[str] = (), limit: int = 500
) -> list[int]:
    """Take back the tasks of dead workers and those whose lease has ended; fence + 1."""
    expired = t.expires_at < now.lease
    gone = sa.or_(expired, t.worker_id.in_(list(dead))) if dead else expired
    held = conn.execute(
        sa.select(t.id, t.fence, t.job_id)
        .where(is_state(t.state, RUNNING), gone)
        .order_by(t.id)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    ).all()
    stopped = _stopped_jobs(conn, sorted({row.job_id for row in held}))
    revoke(conn, [(r.id, r.fence) for r in held if r.job_id in stopped], now=now, outcome="died")
    return _take_back(conn, [(r.id, r.fence) for r in held if r.job_id not in stopped], now)


def _take_back(conn: sa.Connection, held: Sequence[tuple[int, int]], now: Instant) -> list[int]:
    if not held:
        return []
    holders = history.holders(conn, held)
    h = dialect.json_rows(conn, "held", _HELD)
    given_up = sa.or_(t.at_most_once, t.crashes + 1 >= MAX_CRASHES)
    waits = sa.and_(sa.not_(given_up), t.crashes.in_(list(_DELAYS)))
    why = sa.case(
        (t.at_most_once, "its worker died while it ran, and it must not run twice"),
        else_=f"its worker died {MAX_CRASHES} times while it ran",
    )
    rows = conn.execute(
        sa.update(tasks)
        .where(t.id == h.c.id, t.fence == h.c.fence, is_state(t.state, RUNNING))
        .values(
            state=sa.case(
                (given_up, TaskState.LOST.value),
                (t.crashes.in_(list(_DELAYS)), TaskState.BLOCKED.value),
                else_=TaskState.READY.value,
            ),
            reason=sa.case((waits, Reason.BACKOFF.value), else_=sa.null()),
            due_at=sa.case((waits, now.wall + sa.case(_DELAYS, value=t.crashes)), else_=sa.null()),
            error=sa.case((given_up, why), else_=t.error),
            finished_at=sa.case((given_up, now.wall), else_=sa.null()),
            fence=t.fence + 1,
            attempt=sa.case((given_up, t.attempt), else_=t.attempt - 1),
            crashes=t.crashes + 1,
            worker_id=None,
            expires_at=None,
        )
        .returning(*_SEEN, t.error, t.has_successors, t.generation, t.from_page),
        {"held": dialect.encode_rows(held)},
    ).all()
    deltas = Deltas()
    for row in rows:
        deltas[row.job_id].leave(RUNNING, row)
        if row.state == TaskState.LOST:
            deltas[row.job_id].error = row.error
    lost_ones = [row for row in rows if row.state == TaskState.LOST and row.document_id]
    if lost_ones:
        on_ended(conn).tasks_ended(conn, [_ended(row) for row in lost_ones], now=now)
    history.remember(conn, rows, holders, "died", "the worker died or its lease ended", now)
    died = [
        events.Event(r.job_id, "task.died", r.id, {"worker": holders[r.id], "state": r.state})
        for r in rows
    ]
    events.record(conn, died, now=now)
    finish_jobs(conn, bump(conn, deltas, now=now), now=now)
    lost = {r.id: r.state for r in rows if r.has_successors and r.state in TASK_FINAL}
    dependencies.satisfy_tasks(conn, lost, now=now)
    return [row.id for row in rows]


def _stopped_jobs(conn: sa.Connection, job_ids: Sequence[int]) -> set[int]:
    """Lock jobs and return those that are no longer active."""
    if not job_ids:
        return set()
    statement = dialect.cached(conn, "job states", lambda: _job_states(conn))
    found = conn.execute(statement, {"wanted": dialect.encode_ids(conn, sorted(job_ids))})
    return {job_id for job_id, state in found if state not in JOB_ACTIVE}


def _job_states(conn: sa.Connection) -> sa.Select[Any]:
    # Who had to wait for the lock is given the state that the other one left.
    return (
        sa.select(jobs.c.id, jobs.c.state)
        .where(dialect.id_in(conn, jobs.c.id, "wanted"))
        .order_by(jobs.c.id)
        .with_for_update(key_share=True)
    )


def _end(conn: sa.Connection, endings: Sequence[Ending], now: Instant) -> list[Any]:
    """Write the endings, those of one shape in one statement; returns the rows that matched."""
    shapes: dict[tuple[Any, ...], list[Ending]] = {}
    for one in endings:
        shape = one.move, one.give_back, one.crashed, one.error is None, one.result is None
        shapes.setdefault(shape, []).append(one)
    rows: list[Any] = []
    for (move, give_back, crashed, no_error, no_result), some in sorted(shapes.items()):
        target = TASK_MOVES[move].target
        if not TASK_MOVES[move].fenced and move != "lose":
            raise AssertionError(f"{move!r} is not a move of the holder")
        told = () if no_error and no_result else ("error", "result")
        waits = target == TaskState.BLOCKED
        statement = dialect.cached(
            conn, ("end", told, waits), functools.partial(_ending, conn, told, waits)
        )
        values = [
            [e.task_id, e.fence, *((e.error, e.result) if told else ()),
             *([now.wall + (e.due_in or 0.0)] if waits else ())]
            for e in some
        ]  # fmt: skip
        fixed = {
            "target": target, "at": now.wall if target in TASK_FINAL else None,
            "given_back": int(give_back), "crashed": int(crashed),
        }  # fmt: skip
        rows += conn.execute(statement, {"ending": dialect.encode_rows(values), **fixed}).all()
    return rows


def _ending(conn: sa.Connection, told: Sequence[str], waits: bool) -> Any:
    columns = {**_HELD, **dict.fromkeys(told, "text"), **({"due_at": "float"} if waits else {})}
    e = dialect.json_rows(conn, "ending", columns)
    return (
        sa.update(tasks)
        .where(t.id == e.c.id, t.fence == e.c.fence, is_state(t.state, RUNNING))
        .values(
            state=sa.bindparam("target", type_=sa.Text),
            reason=Reason.BACKOFF.value if waits else None,
            due_at=e.c.due_at if waits else None,
            finished_at=sa.bindparam("at", type_=sa.Double),
            attempt=t.attempt - sa.bindparam("given_back", type_=sa.Integer),
            crashes=t.crashes + sa.bindparam("crashed", type_=sa.Integer),
            error=e.c.error if told else None,
            result=e.c.result if told else None,
            worker_id=None,
            expires_at=None,
        )
        .returning(
            t.id,
            t.job_id,
            t.fence,
            t.attempt,
            t.state,
            t.cost,
            t.parent_id,
            t.begin_at,
            t.document_id,
            t.has_successors,
            t.generation,
            t.from_page,
            t.error,
        )
    )


def _storable(ending: Ending) -> Ending:
    """Clean the texts that a handler chose, so that one of them cannot fail a whole batch."""
    if ending.error is None and ending.traceback is None and ending.result is None:
        return ending
    error, traceback, result = (
        None if text is None else dialect.sanitize_text(text)
        for text in (ending.error, ending.traceback, ending.result)
    )
    return ending._replace(error=error, traceback=traceback, result=result)
