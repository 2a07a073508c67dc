"""What people do to jobs: stop, resume, cancel, retry, reprioritise, delete; many at a time.

A stop ends the leases of running tasks in the transaction that stops the job. Waiting tasks follow
in bounded batches; a claim that meets one in between moves it itself. A resume, a retry, a new
priority and a deletion are recorded in the job's row first, and its tasks follow in batches too:
if the process dies in between, a sweep (`finish`) or the scheduler (`collect`) goes on.

Every function locks the jobs before it looks at a state. A task that is inside a transaction of its
handler is not waited for: that transaction ends by asking for the state of the job.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import (
    JOB_ACTIVE,
    JOB_DELETABLE,
    JOB_MOVES,
    TASK_OPEN,
    JobState,
    Reason,
    TaskState,
)
from quire.store.db import dialect
from quire.store.db.engine import TransactionConflict, on_ended
from quire.store.db.schema.queue import HALTING, attempts, is_state, jobs, steps, tasks
from quire.store.db.schema.queue import edges as edges_table
from quire.store.db.schema.queue import events as events_table
from quire.store.db.schema.queue import owners as owners_table
from quire.store.queue import dependencies, events, job_transition, owners, settle, transition
from quire.store.queue.counters import Deltas, is_over
from quire.store.queue.transition import Transition

t, j = tasks.c, jobs.c
BATCH = 1000
#: How long a worker has to tell whether a run of a stopped job had begun (seconds).
TELL_SECONDS = 2.0
#: Jobs that one batch of `sweep_halted` locks.
HALTING_JOBS = 100
#: What runs again besides stopped tasks, from the least to the most: failed and lost tasks that may
#: run twice; all of them; cancelled tasks too.
REVIVALS = ("resume", "retry_failed", "retry")
#: A join: PostgreSQL would ask a subquery again for each of a million tasks.
_OF_JOB = j.id == t.job_id


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
    if target == JobState.CANCELLED:
        on_ended(conn).lock(conn, _find_tasks(conn, job_ids, TaskState.RUNNING, limit=None))
    job_transition.lock_all(conn, job_ids)
    error = sa.func.coalesce(why, j.error)
    values: dict[str, Any] = {"error": error, "stopped_by": by, "stopped_why": why}
    if target == JobState.CANCELLED:
        values |= {"revives": None, "is_reviving": False}
    done = job_transition.move_jobs(conn, job_ids, verb, now=now, **values)
    changed = [row.id for row in done]
    # What must not run twice is lost if it began. Only its worker knows that, and is asked.
    is_known = sa.true() if target == JobState.CANCELLED else sa.not_(t.at_most_once)
    is_running = t.job_id.in_(changed), is_state(t.state, TaskState.RUNNING), is_known
    free = sa.select(t.id, t.fence).where(*is_running).order_by(t.id)
    rows = conn.execute(free.with_for_update(skip_locked=True, key_share=True)).all()
    settle.revoke(conn, [(row.id, row.fence) for row in rows], now=now)
    detail = {name: text for name, text in (("why", why), ("by", by)) if text}
    recorded = [events.Event(i, f"job.{target}", None, detail or None) for i in changed]
    events.record(conn, recorded, now=now)
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
    halting = sa.select(j.id).where(sa.text(HALTING)).order_by(j.id).limit(HALTING_JOBS)
    if job_ids:
        halting = halting.where(j.id.in_(list(job_ids)))
    ids = list(conn.scalars(halting))
    return _sweep(conn, ids, TaskState.READY, now, limit) or _sweep(
        conn, ids, TaskState.BLOCKED, now, limit
    )


def _sweep(
    conn: sa.Connection, job_ids: Sequence[int], state: TaskState, now: Instant, limit: int
) -> int:
    # Blocked tasks of a stopped job keep their reason: they are not in the queue.
    halted = [JobState.CANCELLED, *([JobState.STOPPED] if state == TaskState.READY else [])]
    query = (
        sa.select(t.id, t.job_id, j.state.label("job_state"))
        .join(jobs, j.id == t.job_id)
        .where(t.job_id.in_(job_ids), is_state(t.state, state), is_state(j.state, *halted))
        # In the order of the index: a large job is not read from its start for each batch.
        .order_by(t.job_id, t.id)
        .limit(limit)
    )
    found = conn.execute(query).all()
    if not found:
        return 0
    doomed = [row.id for row in found if row.job_state == JobState.CANCELLED]
    on_ended(conn).lock(conn, doomed)
    job_transition.lock_all(conn, {row.job_id for row in found})
    # Now the states can be believed: a job may have been resumed in the meantime.
    rows = conn.execute(query.with_for_update(of=tasks, skip_locked=True)).all()
    moves = Transition(conn, now)
    cancelled = [(row.id,) for row in rows if row.job_state == JobState.CANCELLED]
    stopped = [(row.id,) for row in rows if row.job_state != JobState.CANCELLED]
    moves.apply(cancelled, "cancel", source=state)
    moves.apply(stopped, "hold", source=state, reason=Reason.STOPPED.value)
    moves.conclude()
    return len(rows)


def revoke_strays(conn: sa.Connection, *, now: Instant) -> list[int]:
    """End leases that a stop has left: running tasks whose job is not active."""
    is_late = sa.or_(j.finished_at < now.wall - TELL_SECONDS, is_state(j.state, JobState.CANCELLED))
    rows = conn.execute(
        sa.select(t.id, t.fence)
        .join(jobs, j.id == t.job_id)
        .where(
            is_state(t.state, TaskState.RUNNING),
            sa.not_(is_state(j.state, *JOB_ACTIVE)),
            sa.or_(sa.not_(t.at_most_once), is_late),
        )
        .order_by(t.id)
        .with_for_update(of=tasks, skip_locked=True)
    ).all()
    return settle.revoke(conn, [(r.id, r.fence) for r in rows], now=now)


def revive(conn: sa.Connection, job_ids: Sequence[int], revival: str, *, now: Instant) -> list[int]:
    """Make jobs active again; `finish` then runs their stopped tasks and what `revival` says.

    Returns the jobs that were in a state that allows it. Callers hold the owners' rows.
    """
    verb = "resume" if revival == "resume" else "retry"
    # A job that was stopped halfway through a retry still has to do the rest of it.
    stronger = REVIVALS[REVIVALS.index(revival) + 1 :]
    intent = sa.case((j.revives.in_(stronger), j.revives), else_=revival)
    job_transition.lock_all(conn, job_ids)
    values = {"error": None, "revives": intent, "is_reviving": True}
    done = [*job_transition.move_jobs(conn, job_ids, verb, now=now, **values)]
    if verb == "retry":
        failed = j.tasks_failed + j.tasks_lost > 0
        done += job_transition.move_jobs(conn, job_ids, "retry_files", failed, now=now, **values)
    changed = [row.id for row in done]
    events.record(conn, [events.Event(i, f"job.{verb}") for i in changed], now=now)
    return changed


def revive_document(
    conn: sa.Connection, job_ids: Sequence[int], revival: str, document_id: int, *, now: Instant
) -> list[int]:
    """Run the unsuccessful tasks of one document again, even if their job is still active."""
    mine = t.document_id == document_id
    job_transition.lock_all(conn, job_ids)
    for state in revived_states(revival):
        _revive(conn, _lock_tasks(conn, job_ids, state, mine, limit=None), state, now)
    while _revive_cascaded(conn, job_ids, BATCH, now, mine):
        pass
    done = job_transition.move_jobs(conn, job_ids, "reopen", now=now, is_reviving=True)
    changed = [row.id for row in done]
    events.record(conn, [events.Event(i, "job.retry") for i in changed], now=now)
    return changed


def finish(
    conn: sa.Connection, job_ids: Sequence[int], *, now: Instant, limit: int = BATCH
) -> bool:
    """Do the next batch of what resumed or reprioritised jobs still have to do.

    Returns whether there is more. No task of a job is released before all of them are revived: a
    successor must not miss that its predecessor runs again.
    """
    # Locked owners also keep two processes from doing the same batch.
    owners.of_jobs(conn, job_ids, lock=True)
    job_transition.lock_all(conn, job_ids)
    is_due = sa.and_(j.id.in_(sorted(job_ids)), j.is_reviving, is_state(j.state, *JOB_ACTIVE))
    found = conn.execute(sa.select(j.id, j.revives).where(is_due)).all()
    ids = [row.id for row in found]
    for revival in REVIVALS:
        some = [row.id for row in found if row.revives == revival]
        if _revive_tasks(conn, some, revival, limit, now):
            return True
    is_revived = sa.and_(j.id.in_(ids), j.revives.is_not(None))
    conn.execute(sa.update(jobs).where(is_revived).values(revives=None))
    if _release_stopped(conn, ids, limit, now) or _raise_priorities(conn, ids, limit, now):
        return True
    conn.execute(sa.update(jobs).where(j.id.in_(ids)).values(is_reviving=False))
    moves = Transition(conn, now)
    moves.touch(ids)  # a job with nothing left to run ends again
    moves.conclude()
    return False


def unfinished(conn: sa.Connection, limit: int = 200) -> list[int]:
    """List active jobs that `finish` has something to do for; the process may have died."""
    due = sa.select(j.id).where(j.is_reviving, is_state(j.state, *JOB_ACTIVE))
    return list(conn.scalars(due.order_by(j.id).limit(limit)))


def revived_states(revival: str) -> list[TaskState]:
    """Return the states whose tasks a revival runs again, whatever ended them."""
    states = [TaskState.FAILED, TaskState.LOST]
    return [*states, TaskState.CANCELLED] if revival == "retry" else states


def _revive_tasks(
    conn: sa.Connection, job_ids: Sequence[int], revival: str, limit: int, now: Instant
) -> int:
    count = 0
    for state in revived_states(revival):
        # Only an explicit retry runs again what must not run twice.
        is_once = sa.and_(t.at_most_once, sa.literal(state == TaskState.LOST))
        again = sa.not_(is_once) if revival == "resume" else sa.true()
        ids = _lock_tasks(conn, job_ids, state, again, limit=limit - count)
        _revive(conn, ids, state, now)
        count += len(ids)
    while count < limit:
        more = _revive_cascaded(conn, job_ids, limit - count, now)
        count += more
        if not more:
            break
    return count


def _revive_cascaded(
    conn: sa.Connection,
    job_ids: Sequence[int],
    limit: int,
    now: Instant,
    where: sa.ColumnElement[bool] | None = None,
) -> int:
    """Revive tasks that were cancelled because one that runs again had failed."""
    before = tasks.alias("before")

    def waits_for(*states: TaskState) -> sa.ColumnElement[bool]:
        e = edges_table.c
        return sa.exists().where(
            e.task_id == t.id,
            e.on_failure == "cancel",
            e.before_task_id == before.c.id,
            is_state(before.c.state, *states),
        )

    doomed = waits_for(TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
    again = sa.and_(waits_for(*TASK_OPEN), sa.not_(doomed))
    if where is not None:
        again = sa.and_(again, where)
    ids = _lock_tasks(conn, job_ids, TaskState.CANCELLED, again, limit=limit)
    _revive(conn, ids, TaskState.CANCELLED, now)
    return len(ids)


def _revive(conn: sa.Connection, ids: Sequence[int], state: TaskState, now: Instant) -> None:
    moves = Transition(conn, now)
    rows = [(task_id,) for task_id in ids]
    moves.apply(rows, "revive", source=state, reason=Reason.STOPPED.value)
    # Progress falls to what is still done: what had ended is outstanding again.
    lowered = [job_id for job_id, delta in moves.deltas.items() if delta.cost_done < 0]
    conn.execute(sa.update(jobs).where(j.id.in_(lowered)).values(progress=0.0))
    moves.conclude()


def _release_stopped(conn: sa.Connection, job_ids: Sequence[int], limit: int, now: Instant) -> int:
    is_stopped = t.reason == Reason.STOPPED.value
    ids = _find_tasks(conn, job_ids, TaskState.BLOCKED, is_stopped, limit=limit)
    dependencies.reopen(conn, ids)
    transition.release(conn, ids, now=now)
    return len(ids)


def reprioritise(
    conn: sa.Connection, job_ids: Sequence[int], priority: int, *, now: Instant
) -> list[int]:
    """Change the priority of jobs; `reorder` gives their waiting tasks a new place."""
    job_transition.lock_all(conn, job_ids)
    has_priority = is_state(j.state, *JOB_ACTIVE, JobState.STOPPED)
    changed = list(
        conn.scalars(
            sa.update(jobs)
            .where(j.id.in_(sorted(job_ids)), has_priority)
            .values(priority=priority, is_reviving=True)
            .returning(j.id)
        )
    )
    # Running tasks may return to the queue.
    running = _find_tasks(conn, changed, TaskState.RUNNING, limit=None)
    free = dialect.try_lock_rows(conn, tasks, running)
    conn.execute(sa.update(tasks).where(t.id.in_(free)).values(priority=priority))
    told = [events.Event(i, "job.priority", None, {"priority": priority}) for i in changed]
    events.record(conn, told, now=now)
    return changed


def reorder(
    conn: sa.Connection,
    job_ids: Sequence[int],
    after: int = 0,
    *,
    now: Instant,
    limit: int = BATCH,
) -> int:
    """Give the next waiting tasks after this id the priority of their job; returns the last id."""
    owners.of_jobs(conn, job_ids, lock=True)
    job_transition.lock_all(conn, job_ids)
    is_next = sa.and_(_OF_JOB, t.priority != j.priority, t.id > after)
    ready = _lock_tasks(conn, job_ids, TaskState.READY, is_next, limit=limit)
    blocked = _lock_tasks(conn, job_ids, TaskState.BLOCKED, is_next, limit=limit)
    ids = sorted([*ready, *blocked])[:limit]
    _place_again(conn, [i for i in ids if i in set(ready)], now)
    of_job = sa.select(j.priority).where(j.id == t.job_id).scalar_subquery()
    waiting = dialect.id_in(conn, t.id, "waiting")
    conn.execute(
        sa.update(tasks)
        .where(waiting, is_state(t.state, TaskState.BLOCKED))
        .values(priority=of_job),
        {"waiting": dialect.encode_ids(conn, [i for i in ids if i in set(blocked)])},
    )
    return ids[-1] if ids else 0


def _raise_priorities(conn: sa.Connection, job_ids: Sequence[int], limit: int, now: Instant) -> int:
    """Reorder ready tasks that a `reprioritise` whose process died has left behind."""
    is_lower = sa.and_(_OF_JOB, t.priority > j.priority)
    ids = _lock_tasks(conn, job_ids, TaskState.READY, is_lower, limit=limit)
    _place_again(conn, ids, now)
    return len(ids)


def _place_again(conn: sa.Connection, ids: Sequence[int], now: Instant) -> None:
    due: dict[str, Any] = {"reason": Reason.DUE.value, "due_at": now.wall}
    transition.transition(conn, [(i,) for i in ids], "hold", source=TaskState.READY, now=now, **due)
    transition.release(conn, ids, now=now)


def delete(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant) -> list[int]:
    """Delete ended jobs; tasks that wait for them are cancelled.

    The jobs are given to an owner that nobody is, so that they are gone for everyone; `collect`
    then deletes their rows.
    """
    job_transition.lock_all(conn, job_ids)
    gone = conn.execute(
        sa.select(j.id, j.state, j.has_successors).where(
            j.id.in_(sorted(job_ids)), is_state(j.state, *JOB_DELETABLE)
        )
    ).all()
    ids = [row.id for row in gone]
    transition.satisfy_jobs(conn, {r.id: "deleted" for r in gone if r.has_successors}, now=now)
    e = edges_table.c
    waiting = sa.select(e.id).where(e.before_job_id.in_(ids), e.satisfied_at.is_(None))
    if conn.scalars(waiting.limit(1)).first() is not None:
        raise TransactionConflict("database: a job that waits for this one is locked")
    _record_deletion(conn, ids, now)
    nobody = owners.nobody(conn)
    conn.execute(sa.update(jobs).where(j.id.in_(ids)).values(owner_id=nobody, is_reviving=False))
    collect(conn, now=now)
    return ids


def collect(conn: sa.Connection, *, now: Instant, limit: int = BATCH) -> bool:
    """Delete the next rows of deleted jobs, and the jobs without any; returns whether more are."""
    # Not while a run is inside its last transaction: a sweep revokes it first.
    gone = sa.select(j.id).where(owners.IS_DELETED, j.tasks_running == 0).order_by(j.id)
    job_ids = list(conn.scalars(gone.limit(limit)))
    if not job_ids:
        return False
    count = on_ended(conn).jobs_deleted(conn, job_ids, now=now, limit=limit)
    job_ids = sorted(job_transition.lock(conn, job_ids))
    count += _delete_tasks(conn, job_ids, limit - count, now)
    told = sa.select(events_table.c.id).where(events_table.c.job_id.in_(job_ids))
    some = list(conn.scalars(told.limit(limit - count)))
    conn.execute(sa.delete(events_table).where(events_table.c.id.in_(some)))
    count += len(some)
    if count < limit:
        conn.execute(sa.delete(jobs).where(j.id.in_(job_ids)))
    return count >= limit or len(job_ids) == limit


def _delete_tasks(conn: sa.Connection, job_ids: Sequence[int], limit: int, now: Instant) -> int:
    # The latest first: a task never outlives its parent.
    of_jobs = sa.select(t.id).where(t.job_id.in_(list(job_ids)))
    ids = list(conn.scalars(of_jobs.order_by(t.id.desc()).limit(limit)))
    if not ids:
        return 0
    given = {"ids": dialect.encode_ids(conn, ids)}
    for column in (attempts.c.task_id, steps.c.task_id, edges_table.c.task_id):
        conn.execute(sa.delete(column.table).where(dialect.id_in(conn, column, "ids")), given)
    before = edges_table.c.before_task_id
    is_open = edges_table.c.satisfied_at.is_(None)
    conn.execute(sa.delete(edges_table).where(dialect.id_in(conn, before, "ids"), is_open), given)
    gone = conn.execute(
        sa.delete(tasks)
        .where(dialect.id_in(conn, t.id, "ids"))
        .returning(t.job_id, t.state, t.cost, t.parent_id, t.document_id),
        given,
    )
    deltas = Deltas()
    for row in gone:
        delta = deltas[row.job_id]
        delta.move(row.state, None)
        delta.cost_total -= row.cost
        delta.cost_done -= row.cost if is_over(row.state, row.parent_id, row.document_id) else 0.0
    job_transition.update_counters(conn, deltas, now=now)
    return len(ids)


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


def _find_tasks(
    conn: sa.Connection,
    job_ids: Sequence[int],
    state: TaskState,
    *where: sa.ColumnElement[bool],
    limit: int | None,
) -> list[int]:
    if not job_ids:
        return []
    found = sa.select(t.id).where(t.job_id.in_(sorted(job_ids)), is_state(t.state, state), *where)
    # In the order of the index: a large job is not sorted for each batch.
    return sorted(conn.scalars(found.order_by(t.job_id, t.id).limit(limit)))


def _lock_tasks(
    conn: sa.Connection,
    job_ids: Sequence[int],
    state: TaskState,
    *where: sa.ColumnElement[bool],
    limit: int | None,
) -> list[int]:
    ids = _find_tasks(conn, job_ids, state, *where, limit=limit)
    dialect.lock_rows(conn, tasks, ids)
    return ids
