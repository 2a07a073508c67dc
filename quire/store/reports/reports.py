"""Read models: jobs, tasks and counts as people and programs see them. Nothing here writes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import iso as iso
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store.db.schema.queue import attempts, is_state, jobs, kinds, owners, tasks, workers
from quire.store.queue.owners import has_job
from quire.store.reports import documents as document_reports
from quire.store.reports import job_pages, job_rows, substring_filter, totals

t, j = tasks.c, jobs.c
FILTERS = ("state", "kind", "platform", "account", "user")


def job(conn: sa.Connection, tenant: str, job_id: int, *, now: float) -> dict[str, Any] | None:
    """Return one job of a tenant."""
    found = job_rows.of(conn, tenant, [job_id], now=now)
    return found[0] if found else None


def page_of_jobs(
    conn: sa.Connection,
    tenant: str,
    *,
    now: float,
    limit: int = 50,
    cursor: int | None = None,
    **filters: Any,
) -> dict[str, Any]:
    """List a tenant's jobs, latest first, with the cursor of the next page."""
    if filters.get("text") is not None or filters.get("created_before") is not None:
        query = sa.select(j.id).join(owners, owners.c.id == j.owner_id)
        query = filtered(query.where(owners.c.tenant == tenant), filters)
        query = query if cursor is None else query.where(j.id < cursor)
        ids = list(conn.scalars(query.order_by(j.id.desc()).limit(limit + 1)))
    else:
        ids = job_pages.latest(conn, tenant, filters, limit=limit + 1, cursor=cursor)
    items = job_rows.of(conn, tenant, ids[:limit], now=now)
    return {"items": items, "next": str(items[-1]["id"]) if len(ids) > limit else None}


def ids_of_jobs(
    conn: sa.Connection, tenant: str, *, after_id: int = 0, limit: int = 500, **filters: Any
) -> list[int]:
    """List the ids of a tenant's jobs that match, oldest first."""
    query = sa.select(j.id).join(owners, owners.c.id == j.owner_id).where(owners.c.tenant == tenant)
    query = filtered(query, filters).where(j.id > after_id)
    return list(conn.scalars(query.order_by(j.id).limit(limit)))


def filtered(query: sa.Select[Any], filters: Mapping[str, Any]) -> sa.Select[Any]:
    """Narrow a query over jobs and owners; None means any."""
    for name, value in filters.items():
        if value is None:
            continue
        if name == "states":
            query = query.where(j.state.in_(list(value)))
        elif name == "user":
            query = query.where(owners.c.user_name == value)
        elif name == "created_before":
            query = query.where(j.created_at < value)
        elif name == "text":
            query = query.where(substring_filter.job_has(value))
        else:
            query = query.where(j[name] == value)
    return query


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
    conn: sa.Connection,
    tenant: str,
    job_id: int,
    *,
    task_id: int | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """List the runs of the tasks of a tenant's job, or of one of them, latest first."""
    a = attempts.c
    query = (
        sa.select(attempts)
        .join(tasks, t.id == a.task_id)
        .where(t.job_id == job_id, has_job(tenant, job_id))
        .order_by(a.finished_at.desc(), a.fence.desc())
        .limit(limit)
    )
    rows = conn.execute(query if task_id is None else query.where(t.id == task_id))
    return [
        {**row._asdict(), "began_at": iso(row.began_at), "finished_at": iso(row.finished_at)}
        for row in rows
    ]


def status(conn: sa.Connection, tenant: str) -> dict[str, Any]:
    """Count a tenant's jobs and tasks by state, and list workers."""
    counted = totals.of(conn, tenant)
    return {
        "jobs": counted.jobs,
        "tasks": counted.tasks,
        "documents": document_reports.count_documents(conn, tenant),
        "workers": worker_list(conn, tenant),
        "paused": list(conn.scalars(sa.select(kinds.c.name).where(kinds.c.paused_at.is_not(None)))),
    }


def worker_list(conn: sa.Connection, tenant: str | None = None) -> list[dict[str, Any]]:
    """List workers that have not ended, with the number of tasks each holds, of one tenant."""
    query = sa.select(t.worker_id, sa.func.count()).where(is_state(t.state, TaskState.RUNNING))
    if tenant is not None:
        query = query.join(owners, owners.c.id == t.owner_id).where(owners.c.tenant == tenant)
    held: dict[str, int] = {row[0]: row[1] for row in conn.execute(query.group_by(t.worker_id))}
    rows = conn.execute(
        sa.select(workers)
        .where(workers.c.state.in_(("running", "draining")))
        .order_by(workers.c.started_at)
    )
    return [
        {
            **{name: getattr(row, name) for name in ("id", "host", "pid", "state", "concurrency")},
            "boot_id": row.boot_id,
            "lock_path": row.lock_path,
            "heartbeat_at": row.heartbeat_at,
            "started_at": row.started_at,
            "running": held.get(row.id, 0),
        }
        for row in rows
    ]


def waiting_by_kind(conn: sa.Connection, tenant: str) -> list[dict[str, Any]]:
    """Count pending jobs by platform and kind."""
    rows = conn.execute(
        sa.select(j.platform, j.kind, sa.func.count())
        .join(owners, owners.c.id == j.owner_id)
        .where(owners.c.tenant == tenant, is_state(j.state, JobState.PENDING))
        # Said as the index of active jobs says it, else all of an owner's are read.
        .where(is_state(j.state, *JOB_ACTIVE))
        .group_by(j.platform, j.kind)
        .order_by(j.kind)
    )
    return [{"platform": p, "kind": k, "count": n} for p, k, n in rows]


def running(
    conn: sa.Connection, tenant: str, *, now: float, limit: int = 1000
) -> list[dict[str, Any]]:
    """List a tenant's running jobs, in the order in which they started."""
    # Said as the index of states says it: few jobs run, however many wait.
    unlike = sa.text("jobs.state <> 'completed'")
    query = job_rows.select().where(is_state(j.state, JobState.RUNNING), unlike)
    query = query.order_by(j.started_at, j.id).limit(limit)
    return job_rows.shown(conn, conn.execute(query, {"tenant": tenant}).all(), now=now)


def _task(row: Any) -> dict[str, Any]:
    names = (
        "id", "kind", "queue", "state", "reason", "attempt", "max_attempts", "crashes", "fence",
        "priority", "worker_id", "progress", "message", "error", "waits", "cost",
    )  # fmt: skip
    times = ("due_at", "begin_at", "finished_at")
    spent = row.finished_at - row.begin_at if row.finished_at and row.begin_at else None
    return {
        **{name: getattr(row, name) for name in names},
        **{name: iso(getattr(row, name)) for name in times},
        **{
            name: getattr(row, name)
            for name in ("document_id", "generation", "from_page", "to_page")
        },
        "digest": row.digest,
        "process_duration": spent,
    }


def last_job_id(conn: sa.Connection) -> int:
    """Return the latest job's id; 0 without any."""
    return conn.scalar(sa.select(sa.func.max(j.id))) or 0


class Span(NamedTuple):
    """Which part of a document a task works on."""

    generation: int
    from_page: int
    to_page: int


_SPAN = sa.select(t.generation, t.from_page, t.to_page).where(t.id == sa.bindparam("task"))


def span_of(conn: sa.Connection, task_id: int) -> Span:
    """Return the part of a document that a task works on."""
    return Span(*conn.execute(_SPAN, {"task": task_id}).one())
