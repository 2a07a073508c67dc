"""Invariants of jobs and tasks, over all tenants."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from quire.model.records import WORKER_LIVE as LIVE
from quire.model.states import JOB_ACTIVE, TASK_FINAL, TASK_OPEN, JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import (
    ENGINE,
    attempts,
    edges,
    events,
    is_state,
    jobs,
    kinds,
    owners,
    steps,
    tasks,
    workers,
)
from quire.store.doctor import dependency_cycles
from quire.store.doctor.invariants import Invariant, Invariants, derived, next_id, reference
from quire.store.queue.counters import over
from quire.store.queue.order import is_behind
from quire.store.queue.owners import IS_DELETED
from quire.store.queue.release import stuck

t, j, a, e = tasks.c, jobs.c, attempts.c, edges.c
T, J = TaskState, JobState
#: Outcomes of attempts whose handler was never called.
NEVER_BEGAN = ("unstarted", "returned", "revoked")
HALTED = (J.STOPPED, J.CANCELLED)
_OPEN_EDGE = e.satisfied_at.is_(None)
INVARIANTS = Invariants(
    [
        Invariant("file.pages", "SQLite's quick_check finds no damage.", dialect.integrity_errors),
        *derived(ENGINE),
        reference(a.task_id, t.id),
        reference(steps.c.task_id, t.id),
        reference(e.before_job_id, j.id, _OPEN_EDGE),
        reference(e.before_task_id, t.id, _OPEN_EDGE),
        reference(t.parent_id, t.id),
        next_id(jobs),
        next_id(tasks),
    ]
)
rule = INVARIANTS.rule


def _clock(name: str) -> sa.BindParameter[float]:
    return sa.bindparam(name, type_=sa.Double)


_LONG_AGO = _clock("wall") - _clock("slack")


@rule("jobs.counters", "A job's counters equal the number of its tasks in each state.")
def _wrong_counters(_: sa.Connection) -> sa.Select[Any]:
    real = (
        sa.select(
            t.job_id, *(sa.func.count().filter(is_state(t.state, s)).label(s.value) for s in T)
        )
        .group_by(t.job_id)
        .subquery("real")
    )
    differ = [j[f"tasks_{s}"] != sa.func.coalesce(real.c[s.value], 0) for s in T]
    return sa.select(j.id).join(real, real.c.job_id == j.id, isouter=True).where(sa.or_(*differ))


@rule(
    "jobs.costs",
    "A job's total cost is the sum of its tasks' costs, and its done cost of the ended ones.",
)
def _wrong_costs(_: sa.Connection) -> sa.Select[Any]:
    real = (
        sa.select(
            t.job_id,
            sa.func.sum(t.cost).label("total"),
            sa.func.sum(t.cost).filter(over()).label("done"),
        )
        .group_by(t.job_id)
        .subquery("real")
    )
    # Floating-point sums depend on the order in the last digits.
    near = 1e-6 * (1 + j.cost_total)
    total = sa.func.abs(j.cost_total - sa.func.coalesce(real.c.total, 0.0))
    done = sa.func.abs(j.cost_done - sa.func.coalesce(real.c.done, 0.0))
    return (
        sa.select(j.id)
        .join(real, real.c.job_id == j.id, isouter=True)
        .where(sa.or_(total > near, done > near))
    )


@rule(
    "jobs.state",
    "A job's state follows from its counters: active with open tasks, pending with none running, "
    "completed with every task successful but those of files, failed with one that failed.",
)
def _wrong_job_states(_: sa.Connection) -> sa.Select[Any]:
    is_open = j.tasks_blocked + j.tasks_ready + j.tasks_running > 0
    failed = j.tasks_failed + j.tasks_lost > 0
    only_cancelled = sa.and_(j.tasks_cancelled > 0, sa.not_(failed))
    not_of_files = sa.exists().where(
        t.job_id == j.id, t.document_id.is_(None), is_state(t.state, T.FAILED, T.LOST)
    )
    wrong = sa.case(
        (is_state(j.state, *JOB_ACTIVE), sa.not_(sa.or_(is_open, j.is_reviving))),
        (is_state(j.state, J.COMPLETED), sa.or_(is_open, not_of_files, only_cancelled)),
        (is_state(j.state, J.FAILED), sa.or_(is_open, sa.not_(failed))),
        else_=sa.false(),
    )
    idle = sa.and_(is_state(j.state, J.PENDING), j.tasks_running > 0)
    return sa.select(j.id).where(sa.or_(wrong, idle), sa.not_(IS_DELETED))


@rule("jobs.swept", "Tasks of a stopped or cancelled job leave the queue within two sweeps.")
def _unswept_jobs(_: sa.Connection) -> sa.Select[Any]:
    left = sa.case(
        (is_state(j.state, J.STOPPED), j.tasks_ready + j.tasks_running),
        else_=j.tasks_blocked + j.tasks_ready + j.tasks_running,
    )
    return sa.select(j.id).where(is_state(j.state, *HALTED), left > 0, j.finished_at < _LONG_AGO)


def _blocked_by(reason: Reason) -> sa.Select[Any]:
    return sa.select(t.id).where(is_state(t.state, T.BLOCKED), is_state(t.reason, reason))


@rule("tasks.waits", "An open task's wait count equals its number of open dependencies.")
def _wrong_waits(_: sa.Connection) -> sa.Select[Any]:
    real = (
        sa.select(e.task_id, sa.func.count().label("count"))
        .where(e.satisfied_at.is_(None))
        .group_by(e.task_id)
        .subquery("real")
    )
    return (
        sa.select(t.id)
        .join(real, real.c.task_id == t.id, isouter=True)
        .where(is_state(t.state, *TASK_OPEN), t.waits != sa.func.coalesce(real.c.count, 0))
    )


@rule("edges.stale", "No open dependency has an ended predecessor.")
def _stale_edges(_: sa.Connection) -> sa.Select[Any]:
    before_job, before_task = jobs.alias("before_job"), tasks.alias("before_task")
    ended = [s for s in J if s not in (*JOB_ACTIVE, J.STOPPED)]
    return (
        sa.select(e.id)
        .join(tasks, t.id == e.task_id)
        .join(jobs, j.id == t.job_id)
        .join(before_job, before_job.c.id == e.before_job_id, isouter=True)
        .join(before_task, before_task.c.id == e.before_task_id, isouter=True)
        .where(
            e.satisfied_at.is_(None),
            is_state(t.state, *TASK_OPEN),
            j.state != J.CANCELLED.value,
            sa.or_(
                is_state(before_job.c.state, *ended), is_state(before_task.c.state, *TASK_FINAL)
            ),
        )
    )


@rule("attempts.once", "A task is completed by one attempt.")
def _done_twice(_: sa.Connection) -> sa.Select[Any]:
    return (
        sa.select(a.task_id)
        .where(a.outcome == "done")
        .group_by(a.task_id)
        .having(sa.func.count() > 1)
    )


@rule("attempts.seen", "A completed task has the attempt that completed it, with the task's fence.")
def _done_without_attempt(_: sa.Connection) -> sa.Select[Any]:
    seen = sa.exists().where(a.task_id == t.id, a.fence == t.fence, a.outcome == "done")
    return sa.select(t.id).where(is_state(t.state, T.DONE), sa.not_(seen))


@rule(
    "attempts.at_most_once",
    "An at-most-once task ran once, unless a user resumed or retried it.",
)
def _ran_twice(_: sa.Connection) -> sa.Select[Any]:
    later = attempts.alias("later")
    ev = events.c

    def is_requested(until: Any) -> sa.ColumnElement[bool]:
        return sa.exists().where(
            ev.job_id == t.job_id,
            ev.name.in_(["job.resume", "job.retry"]),
            ev.at >= a.finished_at,
            ev.at <= until,
        )

    again = sa.exists().where(
        later.c.task_id == a.task_id,
        later.c.fence > a.fence,
        later.c.outcome.not_in(NEVER_BEGAN),
        sa.not_(is_requested(later.c.finished_at)),
    )
    to_come = sa.and_(is_state(t.state, T.READY, T.RUNNING), sa.not_(is_requested(_clock("wall"))))
    # Events of an ended job are pruned all at once; after that nothing can be said.
    has_past = sa.or_(is_state(j.state, *JOB_ACTIVE), sa.exists().where(ev.job_id == j.id))
    return (
        sa.select(t.id)
        .distinct()
        .join(jobs, j.id == t.job_id)
        .join(attempts, a.task_id == t.id)
        .where(t.at_most_once, a.outcome.not_in(NEVER_BEGAN), sa.or_(again, to_come), has_past)
    )


@rule("leases.in_time", "An expired lease is reclaimed within two sweeps.")
def _overdue_leases(_: sa.Connection) -> sa.Select[Any]:
    ended = t.expires_at < _clock("lease") - _clock("slack")
    return sa.select(t.id).where(is_state(t.state, T.RUNNING), ended)


@rule("leases.holder", "A worker that ended more than two sweeps ago holds no task.")
def _leases_of_ended_workers(_: sa.Connection) -> sa.Select[Any]:
    w = workers.c
    return (
        sa.select(t.id)
        .join(workers, w.id == t.worker_id)
        .where(is_state(t.state, T.RUNNING), w.state.not_in(LIVE), w.stopped_at < _LONG_AGO)
    )


@rule("tasks.paused", "A task blocked by a pause is of a paused kind.")
def _stuck_paused(_: sa.Connection) -> sa.Select[Any]:
    paused = sa.exists().where(kinds.c.name == t.kind, kinds.c.paused_at.is_not(None))
    query = _blocked_by(Reason.PAUSED).join(jobs, j.id == t.job_id)
    return query.where(is_state(j.state, *JOB_ACTIVE), sa.not_(paused))


@rule(
    "tasks.user_busy",
    "A task that waits for another job of its user has such a job ahead of it.",
)
def _stuck_behind(_: sa.Connection) -> sa.Select[Any]:
    query = _blocked_by(Reason.USER_BUSY).join(jobs, j.id == t.job_id)
    return query.where(is_state(j.state, *JOB_ACTIVE), sa.not_(is_behind(jobs)))


@rule("tasks.stopped", "A task blocked by a stop is of a job that is not active, or is resumed.")
def _stuck_stopped(_: sa.Connection) -> sa.Select[Any]:
    return stuck()


@rule("tasks.cap", "A task blocked by a cap has an owner with a cap.")
def _stuck_capped(_: sa.Connection) -> sa.Select[Any]:
    query = _blocked_by(Reason.CAP).join(owners, owners.c.id == t.owner_id)
    return query.where(owners.c.max_running.is_(None))


@rule("tasks.priority", "A ready task is at least as urgent as its job.")
def _lowered_priorities(_: sa.Connection) -> sa.Select[Any]:
    return (
        sa.select(t.id)
        .join(jobs, j.id == t.job_id)
        .where(is_state(t.state, T.READY), t.priority > j.priority, sa.not_(j.is_reviving))
    )


@rule("tasks.owner", "A task has the owner of its job, and its parent belongs to the same job.")
def _misowned_tasks(_: sa.Connection) -> sa.Select[Any]:
    parent = tasks.alias("parent")
    strange = sa.and_(
        t.parent_id.is_not(None),
        sa.exists().where(parent.c.id == t.parent_id, parent.c.job_id != t.job_id),
    )
    return (
        sa.select(t.id)
        .join(jobs, j.id == t.job_id)
        .where(sa.or_(sa.and_(t.owner_id != j.owner_id, sa.not_(IS_DELETED)), strange))
    )


@rule("jobs.exclusive", "At most one job per exclusive key runs.")
def _jobs_running_twice(_: sa.Connection) -> sa.Select[Any]:
    return _running_twice(jobs, J.RUNNING)


@rule("tasks.exclusive", "At most one task per exclusive key runs.")
def _tasks_running_twice(_: sa.Connection) -> sa.Select[Any]:
    return _running_twice(tasks, T.RUNNING)


def _running_twice(table: sa.Table, running: str) -> sa.Select[Any]:
    key = table.c.exclusive_key
    return (
        sa.select(key)
        .where(is_state(table.c.state, running), key.is_not(None))
        .group_by(key)
        .having(sa.func.count() > 1)
    )


@rule(
    "attempts.fence",
    "No attempt has a higher fence than its task, and a running task's attempt has not ended.",
)
def _fences_ahead(_: sa.Connection) -> sa.Select[Any]:
    current = sa.and_(is_state(t.state, T.RUNNING), a.fence == t.fence)
    return (
        sa.select(a.task_id)
        .distinct()
        .join(tasks, t.id == a.task_id)
        .where(sa.or_(a.fence > t.fence, current))
    )


@rule("tasks.progress", "A task's progress is between 0 and 1, and its fair tag is not negative.")
def _wrong_progress(_: sa.Connection) -> sa.Select[Any]:
    return sa.select(t.id).where(sa.or_(t.progress < 0, t.progress > 1, t.fair_tag < 0))


@rule("tasks.due_at", "A task blocked until a time (due, backoff, lock held) has a due time.")
def _without_due_time(_: sa.Connection) -> sa.Select[Any]:
    is_timed = is_state(t.reason, Reason.DUE, Reason.BACKOFF, Reason.LOCK_HELD)
    return sa.select(t.id).where(is_state(t.state, T.BLOCKED), is_timed, t.due_at.is_(None))


@rule("tasks.after", "A task blocked by a predecessor waits for one.")
def _behind_nothing(_: sa.Connection) -> sa.Select[Any]:
    return _blocked_by(Reason.AFTER).where(t.waits == 0)


@rule("tasks.ready", "A ready or running task waits for no predecessor.")
def _ready_too_early(_: sa.Connection) -> sa.Select[Any]:
    return sa.select(t.id).where(is_state(t.state, T.READY, T.RUNNING), t.waits > 0)


@rule("edges.cycle", "Dependencies contain no cycle.")
def _cycles(conn: sa.Connection) -> Iterator[int]:
    return iter(dependency_cycles.caught(conn.execute(dependency_cycles.waits_for()).all()))
