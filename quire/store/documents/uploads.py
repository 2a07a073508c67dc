"""Adds the tasks of uploaded files to their job.

They depend on the first task of the job, so whatever delays the job (another job of its owner, a
pause) delays them too.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import About, KindRow, Owner
from quire.store.db.schema.queue import tasks
from quire.store.documents.admission import Admitted
from quire.store.queue import dependencies
from quire.store.queue import new_tasks as planting

t = tasks.c


def enqueue(
    conn: sa.Connection,
    owner: Owner,
    job_id: int,
    kind: KindRow,
    taken: Sequence[tuple[Admitted, Mapping[str, Any]]],
    *,
    now: Instant,
) -> None:
    """Add a task for each document to a job that was just created."""
    if not taken:
        return
    first = conn.execute(sa.select(t.id, t.priority).where(t.job_id == job_id)).one()
    plantings = [
        planting.NewTask(
            job_id,
            kind,
            first.priority,
            payload=json.dumps({"document": one.document_id, **payload}),
            parent_id=first.id,
            waits=1,
            about=About(
                one.document_id, one.generation, exclusive_key=f"document {one.document_id}"
            ),
        )
        for one, payload in taken
    ]
    cost = sum(each.cost for each in plantings)
    ids = planting.add_to_job(conn, owner, job_id, plantings, added_cost=cost, now=now)
    dependencies.add(conn, [(None, first.id, task_id, "cancel") for task_id in ids])
    conn.execute(sa.update(tasks).where(t.id == first.id).values(has_successors=True))
