"""Tasks and their attempts as people and programs see them. Nothing here writes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import json_values
from quire.store.db.schema.documents import documents
from quire.store.db.schema.queue import attempts, is_state, owners, tasks
from quire.store.queue.owners import has_job
from quire.url_secrets import masked_values

t, d = tasks.c, documents.c
_SHOWN = (
    "id", "kind", "queue", "state", "reason", "attempt", "max_attempts", "crashes", "fence",
    "priority", "worker_id", "progress", "message", "error", "waits", "cost", "document_id",
    "generation", "from_page", "to_page", "digest", "due_at", "begin_at", "finished_at",
)  # fmt: skip
_TASKS = (
    sa.select(tasks)
    .where(
        t.job_id == sa.bindparam("job"),
        t.id > sa.bindparam("after"),
        has_job(sa.bindparam("tenant"), sa.bindparam("job")),
    )
    .order_by(t.id)
    .limit(sa.bindparam("most"))
)


def page_of_tasks(
    conn: sa.Connection, tenant: str, job_id: int, *, limit: int = 50, cursor: int | None = None
) -> dict[str, Any]:
    """List the tasks of a tenant's job, oldest first."""
    given = {"job": job_id, "after": cursor or 0, "tenant": tenant, "most": limit + 1}
    rows = conn.execute(_TASKS, given).all()
    items = [_task(row) for row in rows[:limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > limit else None}


def attempts_of(
    conn: sa.Connection, tenant: str, job_id: int, *, task_id: int | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """List the attempts of a job's tasks, or of one task, latest first."""
    wanted = [t.job_id == job_id, has_job(tenant, job_id)]
    return _attempts(conn, *wanted, *([] if task_id is None else [t.id == task_id]), limit=limit)


def attempts_of_tasks(
    conn: sa.Connection, tenant: str, task_ids: Sequence[int], *, limit: int
) -> list[dict[str, Any]]:
    """List the attempts of some tasks, latest first."""
    own = t.owner_id.in_(sa.select(owners.c.id).where(owners.c.tenant == tenant))
    return _attempts(conn, attempts.c.task_id.in_(list(task_ids)), own, limit=limit)


def attempts_of_document(
    conn: sa.Connection, tenant: str, document_id: int, *, limit: int = 30
) -> list[dict[str, Any]]:
    """List the attempts of a document's tasks, latest first."""
    own = sa.exists().where(d.id == document_id, d.tenant == tenant)
    also = (t.kind, t.job_id, t.generation, t.from_page, t.to_page)
    return _attempts(conn, t.document_id == document_id, own, also=also, limit=limit)


def _attempts(
    conn: sa.Connection,
    *wanted: sa.ColumnElement[bool],
    also: Sequence[sa.ColumnElement[Any]] = (),
    limit: int,
) -> list[dict[str, Any]]:
    a = attempts.c
    rows = conn.execute(
        sa.select(attempts, *also)
        .join(tasks, t.id == a.task_id)
        .where(*wanted)
        .order_by(a.finished_at.desc(), a.fence.desc())
        .limit(limit)
    )
    return [masked_values(json_values(row, row._fields), "error", "traceback") for row in rows]


def tasks_of_job(
    conn: sa.Connection, tenant: str, job_id: int, states: Sequence[str], *, limit: int
) -> list[dict[str, Any]]:
    """List tasks of a job: those of the first state first, each state by id."""
    query = sa.select(tasks).where(t.job_id == job_id, has_job(tenant, job_id))
    return [_task(row) for row in by_state(conn, query, states, limit=limit)]


def by_state(
    conn: sa.Connection, query: sa.Select[Any], states: Sequence[str], *, limit: int
) -> list[Any]:
    """Return the tasks of a query: those of the first state first, each state by id."""
    found: list[Any] = []
    for state in states:
        if len(found) < limit:
            some = query.where(is_state(t.state, state)).order_by(t.id)
            found += conn.execute(some.limit(limit - len(found)))
    return found


class Span(NamedTuple):
    """The generation and pages that a task works on."""

    generation: int
    from_page: int
    to_page: int


_SPAN = sa.select(t.generation, t.from_page, t.to_page).where(t.id == sa.bindparam("task"))


def span_of(conn: sa.Connection, task_id: int) -> Span:
    """Return the generation and pages that a task works on."""
    return Span(*conn.execute(_SPAN, {"task": task_id}).one())


def _task(row: Any) -> dict[str, Any]:
    spent = row.finished_at - row.begin_at if row.finished_at and row.begin_at else None
    found = masked_values(json_values(row, _SHOWN), "message", "error")
    return {**found, "process_duration": spent}
