"""Which jobs are old enough to delete; never one that another job still waits for."""

import sqlalchemy as sa

from quire.model.states import JobState
from quire.store.db.schema.queue import edges, is_state, jobs
from quire.store.queue import owners


def expired(
    conn: sa.Connection, *, completed_before: float, failed_before: float, limit: int = 200
) -> list[int]:
    """List jobs that ended before the given times."""
    j = jobs.c
    awaited = sa.exists().where(edges.c.before_job_id == j.id, edges.c.satisfied_at.is_(None))
    old = sa.or_(
        sa.and_(
            is_state(j.state, JobState.COMPLETED, JobState.CANCELLED),
            j.finished_at < completed_before,
        ),
        sa.and_(
            is_state(j.state, JobState.FAILED, JobState.STOPPED), j.finished_at < failed_before
        ),
    )
    found = sa.select(j.id).where(old, sa.not_(awaited), sa.not_(owners.IS_DELETED))
    return list(conn.scalars(found.order_by(j.id).limit(limit)))
