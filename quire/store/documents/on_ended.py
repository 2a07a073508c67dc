"""What the end of a task or job means for its documents: the queue calls these functions.

The protocol is `quire.store.db.engine.OnEnded`.
"""

from collections.abc import Sequence

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import EndedTask
from quire.model.states import GenerationState, TaskState
from quire.store.db import dialect
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import edges, is_state, tasks
from quire.store.documents import failures, poison_pages

e, g, t = edges.c, generations.c, tasks.c
_BAD = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


def lock(conn: sa.Connection, task_ids: Sequence[int]) -> None:
    """Lock the documents of tasks, and of the tasks that are cancelled if these fail."""
    given = {"ids": dialect.encode_ids(conn, task_ids)}
    successors = sa.select(e.task_id).where(dialect.id_in(conn, e.before_task_id, "ids"))
    ended = sa.or_(dialect.id_in(conn, t.id, "ids"), t.id.in_(successors))
    found = conn.scalars(sa.select(t.document_id).where(ended, t.document_id.is_not(None)), given)
    dialect.lock_rows(conn, documents, sorted(set(found)))


def tasks_ended(conn: sa.Connection, ended: Sequence[EndedTask], *, now: Instant) -> None:
    """Split or quarantine page ranges that crashed; drop or fail what other tasks worked on."""
    if split := [task.id for task in ended if task.move == "split"]:
        poison_pages.split(conn, split, now=now)
    poison_pages.quarantine(conn, [task for task in ended if task.move == "quarantine"])
    # Its job was cancelled: the documents go back to what they were.
    cancelled = [(task.document_id, task.generation) for task in ended if task.move == "cancel"]
    failures.drop(conn, cancelled, now=now)
    # A page range fails no document: the document's last task decides what is missing.
    failed = [
        (task.document_id, task.generation, task.error)
        for task in ended
        if task.state in _BAD and task.move != "cancel" and task.from_page is None
    ]
    failures.fail(conn, failed, now=now)


def is_partly_done(job_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a job indexed a file, and only tasks of files failed."""
    t = tasks.c
    is_indexed = is_state(g.state, GenerationState.LIVE, GenerationState.REPLACED)
    has_failed = is_state(t.state, TaskState.FAILED, TaskState.LOST)
    return sa.and_(
        sa.exists().where(g.job_id == job_id, is_indexed),
        sa.not_(sa.exists().where(t.job_id == job_id, t.document_id.is_(None), has_failed)),
    )


def jobs_deleted(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant, limit: int) -> int:
    """Drop unfinished generations of the jobs and clear their number from all; returns how many."""
    mine = sa.select(g.document_id, g.generation, g.state).where(g.job_id.in_(job_ids))
    rows = conn.execute(mine.order_by(g.document_id).limit(limit)).all()
    # A stopped job may have been building some: nobody else would end them.
    building = [row for row in rows if row.state == GenerationState.BUILDING]
    failures.drop(conn, [(row.document_id, row.generation) for row in building], now=now)
    f = dialect.json_rows(conn, "forgotten", {"id": "int", "generation": "int"})
    conn.execute(
        sa.update(generations)
        .where(g.document_id == f.c.id, g.generation == f.c.generation)
        .values(job_id=None),
        {"forgotten": dialect.encode_rows([(row.document_id, row.generation) for row in rows])},
    )
    return len(rows)
