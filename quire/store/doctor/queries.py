"""Queries for violated invariants of jobs and tasks: each selects the ids of offending rows.

One statement sees one snapshot, so a busy database does not look inconsistent.
`:wall` and `:lease` are the two clocks, `:slack` the seconds that a sweep may take.
"""

from typing import Any

import sqlalchemy as sa

from quire.model.records import WORKER_LIVE as LIVE
from quire.model.states import JOB_ACTIVE, TASK_FINAL, TASK_OPEN, JobState, Reason, TaskState
from quire.store.db.schema.queue import (
    attempts,
    edges,
    events,
    is_state,
    jobs,
    kinds,
    owners,
    tasks,
    workers,
)
from quire.store.queue.counters import over
from quire.store.queue.order import is_behind

t, j, a, e = tasks.c, jobs.c, attempts.c, edges.c
T, J = TaskState, JobState
#: Outcomes of attempts whose handler was never called.
NEVER_BEGAN = ("unstarted", "returned", "revoked")
HALTED = (J.STOPPED, J.CANCELLED)


def _clock(name: str) -> sa.BindParameter[float]:
    return sa.bindparam(name, type_=sa.Double)


_LONG_AGO = _clock("wall") - _clock("slack")


def wrong_counters() -> sa.Select[Any]:
    """Find jobs whose counters differ from the counts of their tasks."""
    real = (
        sa.select(
            t.job_id, *(sa.func.count().filter(is_state(t.state, s)).label(s.value) for s in T)
        )
        .group_by(t.job_id)
        .subquery("real")
    )
    differ = [j[f"tasks_{s}"] != sa.func.coalesce(real.c[s.value], 0) for s in T]
    return sa.select(j.id).join(real, real.c.job_id == j.id, isouter=True).where(sa.or_(*differ))


def wrong_costs() -> sa.Select[Any]:
    """Find jobs whose costs differ from the sums of their tasks' costs."""
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


def wrong_job_states() -> sa.Select[Any]:
    """Find jobs whose state does not follow from their counters."""
    is_open = j.tasks_blocked + j.tasks_ready + j.tasks_running > 0
    failed = j.tasks_failed + j.tasks_lost > 0
    wrong = sa.case(
        (is_state(j.state, *JOB_ACTIVE), sa.not_(is_open)),
        (is_state(j.state, J.COMPLETED), sa.or_(is_open, failed, j.tasks_cancelled > 0)),
        (is_state(j.state, J.FAILED), sa.or_(is_open, sa.not_(failed))),
        else_=sa.false(),
    )
    idle = sa.and_(is_state(j.state, J.PENDING), j.tasks_running > 0)
    return sa.select(j.id).where(sa.or_(wrong, idle))


def unswept_jobs() -> sa.Select[Any]:
    """Find stopped and cancelled jobs whose tasks no sweep has removed from the queue."""
    left = sa.case(
        (is_state(j.state, J.STOPPED), j.tasks_ready + j.tasks_running),
        else_=j.tasks_blocked + j.tasks_ready + j.tasks_running,
    )
    return sa.select(j.id).where(is_state(j.state, *HALTED), left > 0, j.finished_at < _LONG_AGO)


def blocked_by(reason: Reason) -> sa.Select[Any]:
    """Find tasks blocked for one reason."""
    return sa.select(t.id).where(is_state(t.state, T.BLOCKED), is_state(t.reason, reason))


def wrong_waits() -> sa.Select[Any]:
    """Find open tasks whose wait count differs from their number of open dependencies."""
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


def stale_edges() -> sa.Select[Any]:
    """Find open dependencies whose predecessor ended, except those of cancelled jobs."""
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


def done_twice() -> sa.Select[Any]:
    """Find tasks completed by two attempts."""
    return (
        sa.select(a.task_id)
        .where(a.outcome == "done")
        .group_by(a.task_id)
        .having(sa.func.count() > 1)
    )


def done_without_attempt() -> sa.Select[Any]:
    """Find completed tasks without the attempt that completed them."""
    seen = sa.exists().where(a.task_id == t.id, a.fence == t.fence, a.outcome == "done")
    return sa.select(t.id).where(is_state(t.state, T.DONE), sa.not_(seen))


def ran_twice() -> sa.Select[Any]:
    """Find at-most-once tasks that ran twice, or are about to, without a user's request."""
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


def overdue_leases() -> sa.Select[Any]:
    """Find running tasks whose expired lease was not reclaimed."""
    ended = t.expires_at < _clock("lease") - _clock("slack")
    return sa.select(t.id).where(is_state(t.state, T.RUNNING), ended)


def leases_of_ended_workers() -> sa.Select[Any]:
    """Find running tasks of workers that ended long ago; unknown workers' leases expire."""
    w = workers.c
    return (
        sa.select(t.id)
        .join(workers, w.id == t.worker_id)
        .where(is_state(t.state, T.RUNNING), w.state.not_in(LIVE), w.stopped_at < _LONG_AGO)
    )


def stuck_paused() -> sa.Select[Any]:
    """Find tasks blocked by a pause that has ended."""
    paused = sa.exists().where(kinds.c.name == t.kind, kinds.c.paused_at.is_not(None))
    query = blocked_by(Reason.PAUSED).join(jobs, j.id == t.job_id)
    return query.where(is_state(j.state, *JOB_ACTIVE), sa.not_(paused))


def stuck_behind() -> sa.Select[Any]:
    """Find tasks that wait for another job of the user although none is ahead."""
    query = blocked_by(Reason.USER_BUSY).join(jobs, j.id == t.job_id)
    return query.where(is_state(j.state, *JOB_ACTIVE), sa.not_(is_behind(jobs)))


def stuck_capped() -> sa.Select[Any]:
    """Find tasks blocked by a cap that was removed."""
    query = blocked_by(Reason.CAP).join(owners, owners.c.id == t.owner_id)
    return query.where(owners.c.max_running.is_(None))


def lowered_priorities() -> sa.Select[Any]:
    """Find ready tasks with lower priority than their job: aging only raises it."""
    return (
        sa.select(t.id)
        .join(jobs, j.id == t.job_id)
        .where(is_state(t.state, T.READY), t.priority > j.priority)
    )


def misowned_tasks() -> sa.Select[Any]:
    """Find tasks with another owner than their job, or a parent in another job."""
    parent = tasks.alias("parent")
    strange = sa.and_(
        t.parent_id.is_not(None),
        sa.exists().where(parent.c.id == t.parent_id, parent.c.job_id != t.job_id),
    )
    return (
        sa.select(t.id)
        .join(jobs, j.id == t.job_id)
        .where(sa.or_(t.owner_id != j.owner_id, strange))
    )


def two_running(table: sa.Table, running: str) -> sa.Select[Any]:
    """Find exclusive keys with two running jobs or tasks."""
    key = table.c.exclusive_key
    return (
        sa.select(key)
        .where(is_state(table.c.state, running), key.is_not(None))
        .group_by(key)
        .having(sa.func.count() > 1)
    )


def fences_ahead() -> sa.Select[Any]:
    """Find attempts with a higher fence than their task, or that of a running task."""
    current = sa.and_(is_state(t.state, T.RUNNING), a.fence == t.fence)
    return (
        sa.select(a.task_id)
        .distinct()
        .join(tasks, t.id == a.task_id)
        .where(sa.or_(a.fence > t.fence, current))
    )
