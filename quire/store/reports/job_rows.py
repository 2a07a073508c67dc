"""Jobs as people and programs see them, made of their rows. Nothing here writes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import iso
from quire.model import unlisted
from quire.model.states import JOB_ACTIVE, JobState, TaskState, allowed
from quire.store.db import dialect
from quire.store.db.schema.queue import jobs, owners
from quire.store.reports import files

j = jobs.c
_COUNTS = tuple((state.value, f"tasks_{state.value}") for state in TaskState)
_HIDDEN = ("owner_id", "exclusive_key", "has_successors", "is_reviving", "cost_total", "cost_done")
_SHOWN = (
    *(column for column in j if column.name not in _HIDDEN),
    owners.c.tenant,
    owners.c.user_name,
)
_NAMES = tuple(column.name for column in _SHOWN)
_ALLOWED = {state.value: allowed(state) for state in JobState}
_ACTIVE = frozenset(state.value for state in JOB_ACTIVE)
_FAILED, _RUNNING = JobState.FAILED.value, JobState.RUNNING.value


def select() -> sa.Select[Any]:
    """Select the rows of a tenant's jobs; the parameter is called `tenant`."""
    # The plus keeps planners from looking among all jobs of each owner.
    owner_id = sa.literal_column("+jobs.owner_id", sa.BigInteger)
    return (
        sa.select(*_SHOWN)
        .select_from(jobs)
        .join(owners, owners.c.id == owner_id)
        .where(owners.c.tenant == sa.bindparam("tenant"))
    )


def of(conn: sa.Connection, tenant: str, ids: Sequence[int], *, now: float) -> list[dict[str, Any]]:
    """Return those of the jobs that are the tenant's, latest first."""
    if not ids:
        return []
    query = dialect.cached(conn, "jobs by id", lambda: _by_id(conn))
    rows = conn.execute(query, {"tenant": tenant, "ids": dialect.encode_ids(conn, ids)}).all()
    return shown(conn, rows, now=now)


def _by_id(conn: sa.Connection) -> sa.Select[Any]:
    return select().where(dialect.id_in(conn, j.id, "ids")).order_by(j.id.desc())


def shown(conn: sa.Connection, rows: Iterable[Any], *, now: float) -> list[dict[str, Any]]:
    """Show rows of `select` with what is counted of their files."""
    # Plain dicts: a page asks fifty rows for thirty columns each.
    known = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    tallies = files.tallies(conn, [row["id"] for row in known])
    return [_job(row, now, tallies.get(row["id"])) for row in known]


def _job(row: Mapping[str, Any], now: float, tally: files.Tally | None) -> dict[str, Any]:
    state, result = row["state"], row["result"]
    counts = {name: n for name, column in _COUNTS if (n := row[column])}
    return {
        "id": row["id"],
        "kind": row["kind"],
        "platform": row["platform"],
        "account": row["account"],
        "owner": {"tenant": row["tenant"], "user": row["user_name"]},
        "state": state,
        "allowed": list(_ALLOWED[state]),
        "priority": row["priority"],
        "payload": json.loads(row["payload"]),
        "progress": round(row["progress"], 4),
        "progress_message": row["message"],
        "eta_at": iso(_eta(row, now)),
        "retry_count": row["retry_count"],
        "max_attempts": row["max_attempts"],
        "worker_id": row["worker_id"],
        "error": _failure(row, counts, tally) if state == _FAILED else row["error"],
        "result": None if result is None else json.loads(result),
        "created_at": iso(row["created_at"]),
        "run_at": iso(row["run_at"]),
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
        "tasks": counts,
        "files": dict(tally or {}),
        "files_with_errors": tally.with_errors if tally else 0,
        "is_listing": row["is_growing"] and state in _ACTIVE,
    }


def _failure(
    row: Mapping[str, Any], counts: Mapping[str, int], tally: files.Tally | None
) -> str | None:
    """Say how much of a failed job failed, where that is not all."""
    error: str | None = row["error"]
    listing = _listing_failure(row)
    if tally and (lost := tally.get("failed", 0)):
        told = f"{lost:,} of {sum(tally.values()):,} files failed"
        # Where the listing ended after the files, its error is the last one, and stands in front.
        last = "" if listing and error == listing else f"; the last: {error}"
        return " ".join(each for each in (listing, told + last) if each)
    if listing and row["result"] is not None:
        return listing
    bad, total = counts.get("failed", 0) + counts.get("lost", 0), sum(counts.values())
    if bad and total > 1:
        return f"{bad:,} of {total:,} tasks failed; the last: {error}"
    return error


def _listing_failure(row: Mapping[str, Any]) -> str:
    """Say which sources could not be listed, or that the listing itself was given up."""
    if row["is_growing"]:
        return "The sources were not listed to their end."
    if row["kind"] != "ingest" or row["result"] is None:
        return ""
    if not (missed := json.loads(row["result"]).get("unlisted")):
        return ""
    total = len(json.loads(row["payload"])["sources"])
    return unlisted.words([each["error"] for each in missed], total)


def _eta(row: Mapping[str, Any], now: float) -> float | None:
    progress, started_at = row["progress"], row["started_at"]
    # Where all that is left waits for something, the time spent says nothing about the end.
    is_moving = row["state"] == _RUNNING and (row["tasks_running"] or row["tasks_ready"])
    if not is_moving or row["is_growing"] or started_at is None or not 0 < progress < 1:
        return None
    eta: float = now + max(now - started_at, 0.0) * (1 - progress) / progress
    return eta
