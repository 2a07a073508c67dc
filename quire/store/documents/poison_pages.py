"""Poison pages: a page range that crashes its process is bisected until the bad page is alone.

Both moves happen in the transaction that settles the crashed run, under its fence. The halves
inherit the priority of the range, its cost, and the tasks that wait for it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.records import About, EndedTask, KindRow
from quire.store.db import dialect
from quire.store.db.schema.documents import generation_pages
from quire.store.db.schema.queue import edges, tasks
from quire.store.queue import dependencies, kinds, owners
from quire.store.queue import new_tasks as planting

t = tasks.c
_COPIED = (
    t.id, t.job_id, t.owner_id, t.parent_id, t.kind, t.queue, t.priority, t.cost, t.payload,
    t.max_attempts, t.has_successors, t.document_id, t.generation, t.from_page, t.to_page, t.digest,
)  # fmt: skip


def split(conn: sa.Connection, ids: Sequence[int], *, now: Instant) -> None:
    """Replace each range by its two halves.

    The halves are counted before the range ends, so that the job never looks finished.
    """
    rows = conn.execute(sa.select(*_COPIED).where(t.id.in_(sorted(ids))).order_by(t.id)).all()
    known = kinds.by_name(conn)
    for row in rows:
        middle = (row.from_page + row.to_page) // 2
        halves = ((row.from_page, middle), (middle + 1, row.to_page))
        width = row.to_page - row.from_page + 1
        plantings = [
            planting.NewTask(
                job_id=row.job_id,
                kind=_kind(known, row),
                priority=row.priority,
                cost=row.cost * (last - first + 1) / width,
                payload=row.payload,
                parent_id=row.parent_id,
                has_successors=row.has_successors,
                max_attempts=row.max_attempts,
                about=About(row.document_id, row.generation, first, last, row.digest),
            )
            for first, last in halves
        ]
        owner = owners.by_id(conn, row.owner_id)
        # The halves have the cost of the range: a split is no progress.
        half_ids = planting.add_to_job(conn, owner, row.job_id, plantings, added_cost=0.0, now=now)
        _inherit_dependents(conn, row.id, half_ids)
    conn.execute(sa.update(tasks).where(t.id.in_(sorted(ids))).values(cost=0.0))


def _kind(known: Mapping[str, KindRow], row: Any) -> KindRow:
    return known.get(row.kind) or KindRow(row.kind, row.queue, row.max_attempts, False, None)


def _inherit_dependents(conn: sa.Connection, task_id: int, half_ids: Sequence[int]) -> None:
    """Let the tasks that wait for a range wait for its halves, before the range ends."""
    e = edges.c
    waiting = conn.execute(
        sa.select(e.task_id, e.on_failure).where(
            e.before_task_id == task_id, e.satisfied_at.is_(None)
        )
    ).all()
    for row in waiting:
        halves = [(None, half_id, row.task_id, row.on_failure) for half_id in half_ids]
        dependencies.add(conn, halves)
        more = sa.update(tasks).where(t.id == row.task_id)
        conn.execute(more.values(waits=t.waits + len(half_ids)))


def quarantine(conn: sa.Connection, ended: Sequence[EndedTask]) -> None:
    """Record on each single page why it cannot be read."""
    for task in ended:
        why = {
            "kind": task.outcome,
            "error": task.error,
            "peak_rss": task.peak_rss,
            "seconds": round(task.duration or 0.0, 3),
            "task_id": task.id,
            "command": f"quire document read {task.document_id} --page {task.from_page}",
        }
        values = {
            "document_id": task.document_id,
            "generation": task.generation,
            "number": task.from_page,
            "key": "",
            "error": json.dumps(why),
        }
        dialect.upsert(
            conn, generation_pages, values, ["document_id", "generation", "number"], ["error"]
        )
