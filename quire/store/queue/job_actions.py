"""What people do to jobs: stop, resume, cancel, retry, reprioritise, delete; many at a time.

A stop ends the leases of running tasks in the transaction that stops the job. Waiting tasks follow
in bounded batches; a claim that meets one in between moves it itself.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JOB_ACTIVE, JOB_DELETABLE, JOB_MOVES, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.engine import on_ended
from quire.store.db.schema.queue import HALTING, attempts, is_state, jobs, steps, tasks
from quire.store.db.schema.queue import edges as edges_table
from quire.store.db.schema.queue import events as events_table
from quire.store.db.schema.queue import owners as owners_table
from quire.store.queue import dependencies, events, job_transition, settle, transition
from quire.store.queue.transition import Transition

t, j = tasks.c, jobs.c
BATCH = 1000
J_CANCELLED = JobState.CANCELLED.value


def halt(
    conn: sa.Connection,
    job_ids: Sequence[int],
    verb: str,
    why: str | None,
    *,
    by: str | None = None,
    now: Instant,
) -> list[int]:
    """Stop or cancel jobs (`verb`): after this commit their tasks write nothing.

    Returns the jobs that were in a state that allows it.
    """
    target = JOB_MOVES[verb].target
    running = _running(conn, job_ids, skip_locked=False)
    dialect.lock_rows(conn, jobs, job_ids)
    error = sa.func.coalesce(why, j.error)
    done = job_transition.move_jobs(conn, job_ids, verb, now=now, error=error)
    changed = [row.id for row in done]
    # A claim may have committed between the two locks. What is locked now belongs to a claim or
    # settle that waits for the job row; it will find the job halted and revoke its tasks itself.
    running |= _running(conn, changed, skip_locked=True)
    if target == JobState.CANCELLED:
        # Before the tasks end: the documents go back to what they were.
        on_ended(conn).jobs_cancelled(conn, changed, now=now)
    settle.revoke(conn, sorted((i, f) for i, f, job in running if job in set(changed)), now=now)
    detail = {name: text for name, text in (("why", why), ("by", by)) if text}
    told = [events.Event(i, f"job.{target}", None, detail or None) for i in changed]
    events.record(conn, told, now=now)
    if target == JobState.CANCELLED:
        awaited = {row.id: target for row in done if row.has_successors}
        transition.satisfy_jobs(conn, awaited, now=now)
    owner_ids = {row.owner_id for row in done if row.exclusive_key}
    transition.release_next_jobs(conn, owner_ids, now=now)
    return changed


def sweep_halted(
    conn: sa.Connection, job_ids: Sequence[int] = (), *, now: Instant, limit: int = BATCH
) -> int:
    """Move waiting tasks of halted jobs out of the queue; returns how many. Call it until 0."""
    halting = sa.select(j.id).where(sa.text(HALTING)).order_by(j.id).limit(limit)
    if job_ids:
        halting = halting.where(j.id.in_(list(job_ids)))
    query = (
        sa.select(t.id, t.job_id, t.state, j.state.label("job_state"), t.has_successors)
        .join(jobs, j.id == t.job_id)
        .where(
            t.job_id.in_(list(conn.scalars(halting))),
            # Blocked tasks of a stopped job keep their reason: they are not in the queue.
            sa.or_(
                is_state(t.state, TaskState.READY),
                sa.and_(is_state(t.state, TaskState.BLOCKED), is_state(j.state, J_CANCELLED)),
            ),
        )
        .order_by(t.id)
        .limit(limit)
        .with_for_update(of=tasks, skip_locked=True)
    )
    rows = conn.execute(query).all()
    moves = Transition(conn, now)
    for state in (TaskState.READY, TaskState.BLOCKED):
        some = [row for row in rows if row.state == state]
        cancelled = [(row.id,) for row in some if row.job_state == JobState.CANCELLED]
        stopped = [(row.id,) for row in some if row.job_state != JobState.CANCELLED]
        moves.apply(cancelled, "cancel", source=state)
        moves.apply(stopped, "hold", source=state, reason=Reason.STOPPED.value)
    moves.conclude()
    return len(rows)


def revoke_strays(conn: sa.Connection, *, now: Instant) -> list[int]:
    """End leases that a stop has missed: running tasks whose job is not active."""
    rows = conn.execute(
        sa.select(t.id, t.fence)
        .join(jobs, j.id == t.job_id)
        .where(is_state(t.state, TaskState.RUNNING), sa.not_(is_state(j.state, *JOB_ACTIVE)))
        .order_by(t.id)
        .with_for_update(of=tasks, skip_locked=True)
    ).all()
    return settle.revoke(conn, [(r.id, r.fence) for r in rows], now=now)


def revive(
    conn: sa.Connection,
    job_ids: Sequence[int],
    verb: str,
    states: Sequence[str],
    *,
    document_id: int | None = None,
    now: Instant,
) -> list[int]:
    """Resume or retry jobs (`verb`): tasks that ended in `states` get fresh attempts.

    Stopped tasks continue where they were. With a document, only its tasks run again, even if the
    job is still active. Returns the jobs that were in a state that allows it.
    """
    dialect.lock_rows(conn, tasks, _ids_of(conn, job_ids, states))
    dialect.lock_rows(conn, jobs, job_ids)
    again = is_state(t.state, *states)
    if document_id is None:
        done = job_transition.move_jobs(conn, job_ids, verb, now=now, error=None, is_reviving=True)
    else:
        done = job_transition.move_jobs(conn, job_ids, "reopen", now=now, is_reviving=True)
        again = sa.and_(again, t.document_id == document_id)
    changed = [row.id for row in done]
    if verb == "resume":
        # Only an explicit retry runs again what must not run twice.
        again = sa.and_(again, sa.not_(sa.and_(t.at_most_once, is_state(t.state, TaskState.LOST))))
    back = conn.execute(sa.select(t.id, t.state).where(t.job_id.in_(changed), again)).all()
    moves = Transition(conn, now)
    for state in states:
        some = [(row.id,) for row in back if row.state == state]
        moves.apply(some, "revive", source=TaskState(state), reason=Reason.STOPPED.value)
    dependencies.reopen(conn, [row.id for row in back])
    # Progress falls to what is still done: what had ended is outstanding again.
    lowered = [job_id for job_id, delta in moves.deltas.items() if delta.cost_done < 0]
    conn.execute(sa.update(jobs).where(j.id.in_(lowered)).values(progress=0.0))
    events.record(conn, [events.Event(i, f"job.{verb}") for i in changed], now=now)
    moves.touch(changed)  # a job with nothing left to run ends again at once
    moves.conclude()
    return changed


def release_stopped(
    conn: sa.Connection, job_ids: Sequence[int], *, now: Instant, limit: int = BATCH
) -> int:
    """Release stopped tasks of active jobs; returns how many were examined. Call it until 0."""
    ids = conn.scalars(
        sa.select(t.id)
        .join(jobs, j.id == t.job_id)
        .where(
            t.job_id.in_(list(job_ids)),
            is_state(j.state, *JOB_ACTIVE),
            is_state(t.state, TaskState.BLOCKED),
            t.reason == Reason.STOPPED.value,
        )
        .order_by(t.id)
        .limit(limit)
    ).all()
    transition.release(conn, ids, now=now)
    if not ids:
        over = sa.and_(j.id.in_(list(job_ids)), j.is_reviving)
        conn.execute(sa.update(jobs).where(over).values(is_reviving=False))
    return len(ids)


def reviving(conn: sa.Connection, limit: int = 200) -> list[int]:
    """List jobs whose stopped tasks are not all released yet; the process may have died."""
    return list(conn.scalars(sa.select(j.id).where(j.is_reviving).order_by(j.id).limit(limit)))


def reprioritise(
    conn: sa.Connection, job_ids: Sequence[int], priority: int, *, now: Instant
) -> list[int]:
    """Change the priority of jobs; their ready tasks get a new place in the order."""
    held = [TaskState.READY, TaskState.RUNNING]
    dialect.lock_rows(conn, tasks, _ids_of(conn, job_ids, held))
    changed = list(
        conn.scalars(
            sa.update(jobs)
            .where(j.id.in_(sorted(job_ids)), is_state(j.state, *JOB_ACTIVE, JobState.STOPPED))
            .values(priority=priority)
            .returning(j.id)
        )
    )
    ids = _ids_of(conn, changed, [TaskState.READY])
    due: dict[str, Any] = {"reason": Reason.DUE.value, "due_at": now.wall}
    transition.transition(conn, [(i,) for i in ids], "hold", source=TaskState.READY, now=now, **due)
    conn.execute(
        sa.update(tasks)
        # Running tasks too: they may return to the queue.
        .where(t.job_id.in_(changed), is_state(t.state, TaskState.BLOCKED, TaskState.RUNNING))
        .values(priority=priority)
    )
    transition.release(conn, ids, now=now, lock_owners=False)
    events.record(
        conn,
        [events.Event(i, "job.priority", None, {"priority": priority}) for i in changed],
        now=now,
    )
    return changed


def delete(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant) -> list[int]:
    """Delete ended jobs with all their rows; tasks that wait for them are cancelled."""
    dialect.lock_rows(conn, jobs, job_ids)
    gone = conn.execute(
        sa.select(j.id, j.state, j.has_successors).where(
            j.id.in_(sorted(job_ids)), is_state(j.state, *JOB_DELETABLE)
        )
    ).all()
    ids = [row.id for row in gone]
    transition.satisfy_jobs(conn, {r.id: "deleted" for r in gone if r.has_successors}, now=now)
    on_ended(conn).jobs_deleted(conn, ids, now=now)
    own = sa.select(t.id).where(t.job_id.in_(ids))
    conn.execute(sa.delete(attempts).where(attempts.c.task_id.in_(own)))
    conn.execute(sa.delete(steps).where(steps.c.task_id.in_(own)))
    conn.execute(
        sa.delete(edges_table).where(
            sa.or_(edges_table.c.task_id.in_(own), edges_table.c.before_job_id.in_(ids))
        )
    )
    _record_deletion(conn, ids, now)
    conn.execute(sa.delete(events_table).where(events_table.c.job_id.in_(ids)))
    conn.execute(sa.delete(tasks).where(t.job_id.in_(ids)))
    conn.execute(sa.delete(jobs).where(j.id.in_(ids)))
    return ids


def _record_deletion(conn: sa.Connection, job_ids: Sequence[int], now: Instant) -> None:
    """Record the deletion before the events of the jobs are deleted.

    SQLite reuses the id of the last row, and a reader past that id would miss the new event.
    """
    tenants = conn.execute(
        sa.select(j.id, owners_table.c.tenant)
        .join(owners_table, owners_table.c.id == j.owner_id)
        .where(j.id.in_(job_ids))
        .order_by(j.id)
    )
    gone: dict[str, list[int]] = {}
    for job_id, tenant in tenants:
        gone.setdefault(tenant, []).append(job_id)
    told = [events.Event(None, "job.deleted", None, {"jobs": i}, t) for t, i in gone.items()]
    events.record(conn, told, now=now)


def _running(
    conn: sa.Connection, job_ids: Sequence[int], *, skip_locked: bool
) -> set[tuple[int, int, int]]:
    rows = conn.execute(
        sa.select(t.id, t.fence, t.job_id)
        .where(t.job_id.in_(sorted(job_ids)), is_state(t.state, TaskState.RUNNING))
        .order_by(t.id)
        .with_for_update(skip_locked=skip_locked, key_share=True)
    )
    return {(row.id, row.fence, row.job_id) for row in rows}


def _ids_of(conn: sa.Connection, job_ids: Sequence[int], states: Sequence[str]) -> list[int]:
    return list(
        conn.scalars(
            sa.select(t.id)
            .where(t.job_id.in_(sorted(job_ids)), is_state(t.state, *states))
            .order_by(t.id)
        )
    )
