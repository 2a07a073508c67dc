"""Read models: jobs, tasks and counts as people and programs see them. Nothing here writes."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.states import JOB_ACTIVE, JobState, TaskState, allowed
from quire.store import document_reports, files, job_pages, resembling
from quire.store.owners import has_job
from quire.store.tables import attempts, is_state, jobs, kinds, owners, tasks, workers
from quire.store.times import iso as iso

t, j = tasks.c, jobs.c
FILTERS = ("state", "kind", "platform", "account", "user")


def job(conn: sa.Connection, tenant: str, job_id: int, *, now: float) -> dict[str, Any] | None:
    """Return one job of a tenant."""
    row = conn.execute(_jobs(tenant).where(j.id == job_id)).one_or_none()
    if row is None:
        return None
    return _job(row, now, files.tallies(conn, [job_id]).get(job_id))


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
    query = _jobs(tenant)
    if filters.get("text") is not None or filters.get("created_before") is not None:
        query = filtered(query, filters)
        query = query if cursor is None else query.where(j.id < cursor)
    else:
        ids = job_pages.latest(conn, tenant, filters, limit=limit + 1, cursor=cursor)
        query = query.where(j.id.in_(ids))
    rows = conn.execute(query.order_by(j.id.desc()).limit(limit + 1)).all()
    more = len(rows) > limit
    tallies = files.tallies(conn, [row.id for row in rows[:limit]])
    items = [_job(row, now, tallies.get(row.id)) for row in rows[:limit]]
    return {"items": items, "next": str(items[-1]["id"]) if more else None}


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
            query = query.where(resembling.job_has(value))
        else:
            query = query.where(j[name] == value)
    return query


def page_of_tasks(
    conn: sa.Connection, tenant: str, job_id: int, *, limit: int = 50, cursor: int | None = None
) -> dict[str, Any]:
    """List the tasks of a tenant's job, oldest first."""
    query = sa.select(tasks).where(
        t.job_id == job_id, t.id > (cursor or 0), has_job(tenant, job_id)
    )
    rows = conn.execute(query.order_by(t.id).limit(limit + 1)).all()
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
    by_state = conn.execute(
        sa.select(j.state, sa.func.count())
        .join(owners, owners.c.id == j.owner_id)
        .where(owners.c.tenant == tenant)
        .group_by(j.state)
    ).all()
    sums = conn.execute(
        sa.select(*(sa.func.sum(j[f"tasks_{state}"]) for state in TaskState))
        .join(owners, owners.c.id == j.owner_id)
        .where(owners.c.tenant == tenant)
    ).one()
    counted = {row[0]: row[1] for row in by_state}
    return {
        "jobs": {state.value: counted.get(state, 0) for state in JobState},
        "tasks": {s.value: int(n or 0) for s, n in zip(TaskState, sums, strict=True)},
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
        .where(owners.c.tenant == tenant, *_active(JobState.PENDING))
        .group_by(j.platform, j.kind)
        .order_by(j.kind)
    )
    return [{"platform": p, "kind": k, "count": n} for p, k, n in rows]


def running(
    conn: sa.Connection, tenant: str, *, now: float, limit: int = 1000
) -> list[dict[str, Any]]:
    """List a tenant's running jobs, in the order in which they started."""
    query = _jobs(tenant).where(*_active(JobState.RUNNING))
    rows = conn.execute(query.order_by(j.started_at, j.id).limit(limit)).all()
    tallies = files.tallies(conn, [row.id for row in rows])
    return [_job(row, now, tallies.get(row.id)) for row in rows]


def _active(state: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Compare with a state as the index of active jobs does, else all of an owner's are read."""
    return is_state(j.state, state), is_state(j.state, *JOB_ACTIVE)


def _jobs(tenant: str) -> sa.Select[Any]:
    return (
        sa.select(jobs, owners.c.tenant, owners.c.user_name)
        .join(owners, owners.c.id == j.owner_id)
        .where(owners.c.tenant == tenant)
    )


def _job(row: Any, now: float, tally: files.Tally | None) -> dict[str, Any]:
    counts = {s.value: getattr(row, f"tasks_{s}") for s in TaskState}
    total = sum(counts.values())
    return {
        "id": row.id,
        "kind": row.kind,
        "platform": row.platform,
        "account": row.account,
        "owner": {"tenant": row.tenant, "user": row.user_name},
        "state": row.state,
        "allowed": allowed(row.state),
        "priority": row.priority,
        "payload": json.loads(row.payload),
        "progress": round(row.progress, 4),
        "progress_message": row.message,
        "eta_at": iso(_eta(row, now)),
        "retry_count": row.retry_count,
        "max_retries": row.max_attempts - 1,
        "worker_id": row.worker_id,
        "error": _error(row, counts, total, tally),
        "result": None if row.result is None else json.loads(row.result),
        "created_at": iso(row.created_at),
        "run_at": iso(row.run_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "tasks": {s: n for s, n in counts.items() if n},
        "files": dict(tally or {}),
        "files_with_errors": tally.with_errors if tally else 0,
        "is_listing": row.is_growing and row.state in JOB_ACTIVE,
    }


def _error(
    row: Any, counts: Mapping[str, int], total: int, tally: files.Tally | None
) -> str | None:
    bad = counts["failed"] + counts["lost"]
    if tally and row.state == JobState.FAILED and (lost := tally.get("failed", 0)):
        return f"{lost:,} of {sum(tally.values()):,} files failed; the last: {row.error}"
    if bad and total > 1 and row.state == JobState.FAILED:
        return f"{bad:,} of {total:,} tasks failed; the last: {row.error}"
    error: str | None = row.error
    return error


def _eta(row: Any, now: float) -> float | None:
    if row.state != JobState.RUNNING or row.started_at is None or not 0 < row.progress < 1:
        return None
    spent = max(now - row.started_at, 0.0)
    eta: float = now + spent * (1 - row.progress) / row.progress
    return eta


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
