"""Counts failed files as ended in their job's progress."""

import sqlalchemy as sa

from quire.model.states import JobState, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, tasks


def up(conn: sa.Connection) -> None:
    """Recompute the done cost and progress of jobs with failed tasks."""
    j, t = jobs.c, tasks.c
    is_part = sa.or_(t.parent_id.is_not(None), t.document_id.is_not(None))
    is_over = sa.or_(
        is_state(t.state, TaskState.DONE, TaskState.SKIPPED),
        sa.and_(is_part, is_state(t.state, TaskState.FAILED, TaskState.LOST)),
    )
    done = sa.select(sa.func.sum(t.cost)).where(t.job_id == j.id, is_over).scalar_subquery()
    has_failures = j.tasks_failed + j.tasks_lost > 0
    conn.execute(sa.update(jobs).where(has_failures).values(cost_done=sa.func.coalesce(done, 0.0)))
    share = sa.case((j.cost_done > j.cost_total, 1.0), else_=j.cost_done / j.cost_total)
    has_progress = sa.and_(has_failures, sa.not_(j.is_growing), j.cost_total > 0)
    conn.execute(
        sa.update(jobs)
        .where(has_progress, sa.not_(is_state(j.state, JobState.COMPLETED)))
        .values(progress=dialect.greatest(conn, j.progress, share))
    )
