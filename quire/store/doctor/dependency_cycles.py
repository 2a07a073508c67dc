"""Finds dependency cycles: tasks that wait for each other and can never start.

A task waits for its predecessors, and a job ends when its tasks have. Under the policy `queue` a
job also waits for the user's previous job. What a topological sort does not reach is in a cycle or
behind one.
"""

import contextlib
import graphlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.model.states import JOB_ACTIVE, TASK_OPEN, Reason, TaskState
from quire.store.db.schema.queue import edges, is_state, jobs, tasks
from quire.store.queue.order import takes_turn

t, j, e = tasks.c, jobs.c, edges.c


def waits_for() -> Any:
    """Select (awaited job, awaited task, waiting task, its job)."""
    by_edge = (
        sa.select(e.before_job_id, e.before_task_id, e.task_id, t.job_id)
        .join(tasks, t.id == e.task_id)
        .where(e.satisfied_at.is_(None), is_state(t.state, *TASK_OPEN))
    )
    lag = sa.func.lag(j.id).over(partition_by=j.exclusive_key, order_by=j.id)
    line = (
        sa.select(j.id, lag.label("before"))
        .where(
            is_state(j.state, *JOB_ACTIVE),
            j.exclusive_key.is_not(None),
            takes_turn(jobs),
        )
        .subquery("line")
    )
    by_user = (
        sa.select(line.c.before, sa.null(), t.id, t.job_id)
        .join(tasks, t.job_id == line.c.id)
        .where(
            line.c.before.is_not(None),
            is_state(t.state, TaskState.BLOCKED),
            is_state(t.reason, Reason.USER_BUSY),
        )
    )
    return sa.union_all(by_edge, by_user)


def caught(rows: Sequence[Any]) -> list[int]:
    """Return the tasks that can never start."""
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    waiting: set[int] = set()
    for before_job, before_task, task, job in rows:
        # Jobs are negative numbers, so that tasks and jobs are distinct integers.
        sorter.add(task, before_task if before_job is None else -before_job)
        sorter.add(-job, task)
        waiting.add(task)
    with contextlib.suppress(graphlib.CycleError):
        sorter.prepare()
    while free := sorter.get_ready():
        waiting.difference_update(free)
        sorter.done(*free)
    return sorted(waiting)
