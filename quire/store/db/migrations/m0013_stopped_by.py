"""Stores who stopped or cancelled a job, and why."""

import json

import sqlalchemy as sa

from quire.model.states import JobState
from quire.store.db import dialect
from quire.store.db.schema.queue import events, is_state, jobs

OLDEST = 12


def up(conn: sa.Connection) -> None:
    """Add the columns, and fill them for stopped jobs from their last event."""
    dialect.add_columns(conn, jobs.c.stopped_by, jobs.c.stopped_why)
    e = events.c
    last = (
        sa.select(sa.func.max(e.id))
        .join(jobs, jobs.c.id == e.job_id)
        .where(is_state(jobs.c.state, JobState.STOPPED), e.name == "job.stopped")
        .group_by(e.job_id)
    )
    for job_id, detail in conn.execute(sa.select(e.job_id, e.detail).where(e.id.in_(last))).all():
        told = json.loads(detail or "{}")
        conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == job_id)
            .values(stopped_by=told.get("by"), stopped_why=told.get("why"))
        )
