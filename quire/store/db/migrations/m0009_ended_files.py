"""A file that failed counts as ended in its job's progress."""

import sqlalchemy as sa

from quire.model.states import JobState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, tasks
from quire.store.queue.counters import over


def up(conn: sa.Connection) -> None:
    """Add up anew what is done of the jobs with tasks that failed; older Quires count otherwise."""
    j, t = jobs.c, tasks.c
    done = sa.select(sa.func.sum(t.cost)).where(t.job_id == j.id, over()).scalar_subquery()
    spoilt = j.tasks_failed + j.tasks_lost > 0
    conn.execute(sa.update(jobs).where(spoilt).values(cost_done=sa.func.coalesce(done, 0.0)))
    share = sa.case((j.cost_done > j.cost_total, 1.0), else_=j.cost_done / j.cost_total)
    told = sa.and_(spoilt, sa.not_(j.is_growing), j.cost_total > 0)
    conn.execute(
        sa.update(jobs)
        .where(told, sa.not_(is_state(j.state, JobState.COMPLETED)))
        .values(progress=dialect.greatest(conn, j.progress, share))
    )
