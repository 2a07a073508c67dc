"""What the end of a task or job means for its documents: the queue calls these functions.

The protocol is `quire.store.db.engine.OnEnded`.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import EndedTask
from quire.model.states import TaskState
from quire.store.db.schema.documents import generations
from quire.store.documents import failures, poison_pages

_BAD = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


def tasks_ended(conn: sa.Connection, ended: Sequence[EndedTask], *, now: Instant) -> None:
    """Split or quarantine page ranges that crashed; fail the documents of tasks that failed."""
    if split := [task.id for task in ended if task.move == "split"]:
        poison_pages.split(conn, split, now=now)
    poison_pages.quarantine(conn, [task for task in ended if task.move == "quarantine"])
    # A page range fails no document: the document's last task decides what is missing.
    failed = [
        (task.document_id, task.generation, task.error)
        for task in ended
        if task.state in _BAD and task.from_page is None
    ]
    failures.fail(conn, failed, now=now)


def jobs_cancelled(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant) -> None:
    """Drop the generations that the jobs were building."""
    failures.drop(conn, job_ids, now=now)


def jobs_deleted(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant) -> None:
    """Drop unfinished generations of the jobs and clear their number from finished ones."""
    # A stopped job may have been building some: nobody else would end them.
    failures.drop(conn, job_ids, now=now)
    g = generations.c
    conn.execute(sa.update(generations).where(g.job_id.in_(job_ids)).values(job_id=None))
