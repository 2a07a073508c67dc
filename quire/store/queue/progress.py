"""Progress of running tasks: fractions and messages, written under the fence."""

import math
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JobState, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, tasks
from quire.store.queue import events, job_transition

t, j = tasks.c, jobs.c
#: Task, fence, fraction and message.
Report = tuple[int, int, float | None, str | None]
_REPORTS = {"id": "int", "fence": "int", "fraction": "float", "message": "text"}


def report(conn: sa.Connection, reports: Sequence[Report], *, now: Instant) -> set[int]:
    """Write progress of running tasks; returns the tasks whose reports were accepted."""
    if not reports:
        return set()
    told = [
        (i, fence, _fraction(f), None if m is None else dialect.sanitize_text(m))
        for i, fence, f, m in reports
    ]
    # A task that is locked is in a transaction of its handler, which may take long.
    free = dialect.try_lock_rows(conn, tasks, [r[0] for r in told])
    told = [r for r in told if r[0] in free]
    values = {"told": dialect.encode_rows(_merged(told)), "told_at": now.wall}
    # Only runs (task, fence) that still hold their lease.
    job_of = {(row.id, row.fence): row.job_id for row in conn.execute(_write(conn), values)}
    told = [r for r in told if r[:2] in job_of]
    # The progress of a job's only task is the job's; other jobs count finished cost.
    lines = _merged([(job_of[r[:2]], 0, r[2], r[3]) for r in told])
    free = dialect.try_lock_rows(conn, jobs, [line[0] for line in lines])
    job_transition.note_locked(conn, free)
    conn.execute(
        _copy(conn), {"lines": dialect.encode_rows([line for line in lines if line[0] in free])}
    )
    events.record(
        conn,
        [
            events.Event(job_of[r[:2]], "progress", r[0], {"fraction": r[2], "message": r[3]})
            for r in told
            if r[3] is not None
        ],
        now=now,
    )
    return {task_id for task_id, _ in job_of}


@dialect.statement
def _write(conn: sa.Connection) -> Any:
    p = dialect.json_rows(conn, "told", _REPORTS)
    return (
        sa.update(tasks)
        .where(t.id == p.c.id, t.fence == p.c.fence, is_state(t.state, TaskState.RUNNING))
        .values(
            progress=dialect.greatest(conn, t.progress, sa.func.coalesce(p.c.fraction, 0.0)),
            message=sa.func.coalesce(p.c.message, t.message),
            progress_at=sa.bindparam("told_at"),
        )
        .returning(t.id, t.fence, t.job_id)
    )


@dialect.statement
def _copy(conn: sa.Connection) -> sa.Update:
    p = dialect.json_rows(conn, "lines", _REPORTS)
    total: Any = sum((j[f"tasks_{state}"] for state in TaskState), sa.literal_column("0"))
    higher = dialect.greatest(conn, j.progress, sa.func.coalesce(p.c.fraction, 0.0))
    return (
        sa.update(jobs)
        .where(j.id == p.c.id, is_state(j.state, JobState.RUNNING))
        .values(
            message=sa.func.coalesce(p.c.message, j.message),
            progress=sa.case((total == 1, higher), else_=j.progress),
        )
    )


def _merged(told: Sequence[Report]) -> list[Report]:
    """Merge the reports of one run: the greatest fraction and the last message."""
    merged: dict[tuple[int, int], Report] = {}
    for task_id, fence, fraction, message in told:
        _, _, best, last = merged.get((task_id, fence), (0, 0, None, None))
        if best is not None and (fraction is None or fraction < best):
            fraction = best
        merged[task_id, fence] = task_id, fence, fraction, last if message is None else message
    return list(merged.values())


def _fraction(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    return min(max(value, 0.0), 1.0)
