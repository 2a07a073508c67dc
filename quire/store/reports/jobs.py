"""Jobs as people and programs see them: one, a page of a list, all that match. Nothing here writes.

A page is read backwards along one index, so nothing is sorted or counted: milliseconds among a
million jobs. Which index depends on the filters, because a planner without statistics picks one
whose rows it has to sort.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import iso
from quire.model.admission import failed_sources_text
from quire.model.states import (
    JOB_ACTIVE,
    JOB_MOVES,
    JobState,
    Reason,
    TaskState,
    allowed,
    states_for,
)
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, owners, tasks
from quire.store.reports import files, substring_filter
from quire.url_secrets import masked_json, masked_values

j, t = jobs.c, tasks.c
#: The jobs of a tenant with no more than this are all read: other tenants' jobs are never touched.
FEW = 2_000
#: Up to this many owners are read one by one and merged; beyond it the table is read from its end.
MOST_OWNERS = 32
#: Columns with an index of their own that ends in the id.
INDEXED = ("kind", "platform", "account")
_OWNERS = sa.select(owners.c.id).where(owners.c.tenant == sa.bindparam("tenant"))
_OWNER = _OWNERS.where(owners.c.user_name == sa.bindparam("user"))
_COUNTS = tuple((state.value, f"tasks_{state.value}") for state in TaskState)
_HIDDEN = (
    "owner_id",
    "exclusive_key",
    "has_successors",
    "is_reviving",
    "revives",
    "cost_total",
    "cost_done",
)
_SHOWN = (
    *(column for column in j if column.name not in _HIDDEN),
    owners.c.tenant,
    owners.c.user_name,
)
_NAMES = tuple(column.name for column in _SHOWN)
_ALLOWED = {
    (state.value, has_failures): allowed(state, has_failures=has_failures)
    for state in JobState
    for has_failures in (False, True)
}
_ACTIVE = frozenset(state.value for state in JOB_ACTIVE)
_RUNNING = JobState.RUNNING.value
#: States that a job reaches by itself; its error then says how much of it failed.
_ENDED = (JobState.COMPLETED.value, JobState.FAILED.value)


def job(conn: sa.Connection, tenant: str, job_id: int, *, now: float) -> dict[str, Any] | None:
    """Return one job of a tenant; while it only waits, with the time of its next attempt."""
    found = by_id(conn, tenant, [job_id], now=now)
    return {**found[0], "next_attempt_at": iso(_next_attempt(conn, found[0]))} if found else None


def _next_attempt(conn: sa.Connection, one: Mapping[str, Any]) -> float | None:
    """Return when a failed task is tried again, among the first that wait; None while some run."""
    counts = one["tasks"]
    if "blocked" not in counts or "running" in counts or "ready" in counts:
        return None
    some = (
        sa.select(t.due_at, t.reason)
        .where(t.job_id == one["id"], is_state(t.state, TaskState.BLOCKED))
        .order_by(t.id)
        .limit(FEW)
        .subquery()
    )
    is_again = some.c.reason == Reason.BACKOFF.value
    due_at: float | None = conn.scalar(sa.select(sa.func.min(some.c.due_at)).where(is_again))
    return due_at


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
        ids = latest(conn, tenant, filters, limit=limit + 1, cursor=cursor)
    items = by_id(conn, tenant, ids[:limit], now=now)
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
        elif name == "allowing":
            query = query.where(_allows(value))
        else:
            query = query.where(j[name] == value)
    return query


def _allows(verb: str) -> sa.ColumnElement[bool]:
    """Match the jobs whose `allowed` has a verb."""
    by_state = j.state.in_(states_for(verb))
    if verb != "retry":
        return by_state
    completed = is_state(j.state, *JOB_MOVES["retry_files"].sources)
    return sa.or_(by_state, sa.and_(completed, j.tasks_failed + j.tasks_lost > 0))


def waiting_by_kind(conn: sa.Connection, tenant: str) -> list[dict[str, Any]]:
    """Count pending jobs by platform and kind."""
    rows = conn.execute(
        sa.select(j.platform, j.kind, sa.func.count())
        .join(owners, owners.c.id == j.owner_id)
        .where(owners.c.tenant == tenant, is_state(j.state, JobState.PENDING))
        # Repeats the condition of the index of active jobs; else all jobs of an owner are read.
        .where(is_state(j.state, *JOB_ACTIVE))
        .group_by(j.platform, j.kind)
        .order_by(j.kind)
    )
    return [{"platform": p, "kind": k, "count": n} for p, k, n in rows]


def running(
    conn: sa.Connection, tenant: str, *, now: float, limit: int = 1000
) -> list[dict[str, Any]]:
    """List a tenant's running jobs, in the order in which they started."""
    # Repeats the condition of the partial index: few jobs run, however many wait.
    unlike = sa.text("jobs.state <> 'completed'")
    query = select().where(is_state(j.state, JobState.RUNNING), unlike)
    query = query.order_by(j.started_at, j.id).limit(limit)
    return shown(conn, conn.execute(query, {"tenant": tenant}).all(), now=now)


def last_job_id(conn: sa.Connection) -> int:
    """Return the latest job's id; 0 without any."""
    return conn.scalar(sa.select(sa.func.max(j.id))) or 0


class Branch(NamedTuple):
    """One query: which index it follows, and its other conditions."""

    way: str  # "few", "owner", "state", or "" for the index of the other conditions
    names: tuple[str, ...]
    state: str = ""  # inlined in the SQL if the way is a state
    has_states: bool = False
    has_cursor: bool = False


def latest(
    conn: sa.Connection,
    tenant: str,
    filters: Mapping[str, Any],
    *,
    limit: int,
    cursor: int | None,
) -> list[int]:
    """Return the ids of a tenant's latest jobs that match, below the cursor, latest first."""
    given = {name: value for name, value in filters.items() if value is not None}
    user = given.pop("user", None)
    query = _OWNERS if user is None else _OWNER
    whose = list(conn.scalars(query, {"tenant": tenant, "user": user}))
    if not whose:
        return []
    states: list[str] = list(given.pop("states", ()))
    plain = Branch("", tuple(sorted(given)), "", bool(states), cursor is not None)
    given.update(whose=dialect.encode_ids(conn, whose), states=states, cursor=cursor, most=limit)
    found: set[int] = set()
    for branch, owner_id in _branches(conn, plain, whose, states):
        found.update(conn.scalars(_branch(conn, branch), {**given, "owner": owner_id}))
    return sorted(found, reverse=True)[:limit]


def _branches(
    conn: sa.Connection, plain: Branch, whose: Sequence[int], states: Sequence[str]
) -> list[tuple[Branch, int | None]]:
    """Return the queries; each reads one index in the order of ids."""
    if _are_few(conn, whose):
        return [(plain._replace(way="few"), None)]
    if states and JobState.COMPLETED not in states:
        each = plain._replace(way="state", has_states=False)
        return [(each._replace(state=state), None) for state in states]
    if len(whose) > MOST_OWNERS or any(name in INDEXED for name in plain.names):
        return [(plain, None)]
    return [(plain._replace(way="owner"), owner_id) for owner_id in whose]


@dialect.statement
def _branch(conn: sa.Connection, branch: Branch) -> sa.Select[Any]:
    found: list[sa.ColumnElement[bool]] = [_whose(conn, branch.way)]
    if branch.state:
        # Repeats the condition of the partial index, which SQLite does not infer.
        unlike: sa.ColumnElement[bool] = sa.text("jobs.state <> 'completed'")  # type: ignore[assignment]
        found += [is_state(j.state, branch.state), unlike]
    if branch.has_states:
        found.append(j.state.in_(sa.bindparam("states", expanding=True)))
    found += [j[name] == sa.bindparam(name) for name in branch.names]
    if branch.has_cursor:
        found.append(j.id < sa.bindparam("cursor"))
    return sa.select(j.id).where(*found).order_by(j.id.desc()).limit(sa.bindparam("most"))


def _whose(conn: sa.Connection, way: str) -> sa.ColumnElement[bool]:
    if way == "owner":
        return j.owner_id == sa.bindparam("owner")
    if way == "few":
        return dialect.id_in(conn, j.owner_id, "whose")
    # The plus keeps planners off the owners' index, whose rows they would have to sort.
    return dialect.id_in(conn, sa.literal_column("+jobs.owner_id", sa.BigInteger), "whose")


def _are_few(conn: sa.Connection, whose: Sequence[int]) -> bool:
    if len(whose) > MOST_OWNERS:
        return False
    given = {"whose": dialect.encode_ids(conn, whose), "most": FEW + 1}
    return (conn.scalar(_count_few(conn), given) or 0) <= FEW


@dialect.statement
def _count_few(conn: sa.Connection) -> sa.Select[Any]:
    mine = dialect.id_in(conn, j.owner_id, "whose")
    some = sa.select(j.id).where(mine).limit(sa.bindparam("most")).subquery()
    return sa.select(sa.func.count()).select_from(some)


def select() -> sa.Select[Any]:
    """Select a tenant's jobs; the parameter is `tenant`."""
    # The plus keeps planners from scanning all jobs of each owner.
    owner_id = sa.literal_column("+jobs.owner_id", sa.BigInteger)
    return (
        sa.select(*_SHOWN)
        .select_from(jobs)
        .join(owners, owners.c.id == owner_id)
        .where(owners.c.tenant == sa.bindparam("tenant"))
    )


def by_id(
    conn: sa.Connection, tenant: str, ids: Sequence[int], *, now: float
) -> list[dict[str, Any]]:
    """Return those of the jobs that are the tenant's, latest first."""
    storable = [each for each in ids if 0 < each < 2**63]
    if not storable:
        return []
    given = {"tenant": tenant, "ids": dialect.encode_ids(conn, storable)}
    return shown(conn, conn.execute(_by_id(conn), given).all(), now=now)


@dialect.statement
def _by_id(conn: sa.Connection) -> sa.Select[Any]:
    return select().where(dialect.id_in(conn, j.id, "ids")).order_by(j.id.desc())


def shown(conn: sa.Connection, rows: Iterable[Any], *, now: float) -> list[dict[str, Any]]:
    """Turn rows of `select` into JSON, with the counts of their files."""
    # Plain dicts are faster: a page has fifty rows of thirty columns.
    known = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    tallies = files.tallies(conn, [row["id"] for row in known])
    return [_job(row, now, tallies.get(row["id"])) for row in known]


def _job(row: Mapping[str, Any], now: float, tally: files.Tally | None) -> dict[str, Any]:
    state = row["state"]
    is_stopped = state == JobState.STOPPED or row["stopped_by"] or row["stopped_why"]
    counts = {name: n for name, column in _COUNTS if (n := row[column])}
    found = {
        "id": row["id"],
        "kind": row["kind"],
        "platform": row["platform"],
        "account": row["account"],
        "owner": {"tenant": row["tenant"], "user": row["user_name"]},
        "state": state,
        "allowed": list(_ALLOWED[state, bool(row["tasks_failed"] + row["tasks_lost"])]),
        "priority": row["priority"],
        "payload": masked_json(row["payload"]),
        "progress": round(row["progress"], 4),
        "progress_message": row["message"],
        "eta_at": iso(_eta(row, now)),
        "retry_count": row["retry_count"],
        "max_attempts": row["max_attempts"],
        "worker_id": row["worker_id"],
        "error": _failure(row, counts, tally) if state in _ENDED else row["error"],
        "result": masked_json(row["result"]),
        "created_at": iso(row["created_at"]),
        "run_at": iso(row["run_at"]),
        "started_at": iso(row["started_at"]),
        "finished_at": iso(row["finished_at"]),
        "stopped_by": row["stopped_by"],
        "stopped_at": iso(row["finished_at"]) if is_stopped else None,
        "stopped_why": row["stopped_why"],
        "tasks": counts,
        "files": dict(tally or {}),
        "failed_files": tally.get("failed", 0) if tally else 0,
        "files_with_errors": tally.with_errors if tally else 0,
        "is_listing": row["is_growing"] and state in _ACTIVE,
    }
    return masked_values(found, "progress_message", "error")


def _failure(
    row: Mapping[str, Any], counts: Mapping[str, int], tally: files.Tally | None
) -> str | None:
    """Return the error of a failed job, with how much of it failed."""
    error: str | None = row["error"]
    listing = _listing_failure(row)
    if tally and (lost := tally.get("failed", 0)):
        told = f"{lost:,} of {sum(tally.values()):,} files failed"
        # If the listing failed last, the job's error is that of the listing, which comes first.
        last = "" if listing and error == listing else f"; the last: {error}"
        return " ".join(each for each in (listing, told + last) if each)
    if listing and row["result"] is not None:
        return listing
    bad, total = counts.get("failed", 0) + counts.get("lost", 0), sum(counts.values())
    if bad and total > 1:
        return f"{bad:,} of {total:,} tasks failed; the last: {error}"
    return error


def _listing_failure(row: Mapping[str, Any]) -> str:
    """Return which sources could not be listed, or that the listing was aborted."""
    if row["is_growing"]:
        return "The sources were not listed completely."
    if row["kind"] != "ingest" or row["result"] is None:
        return ""
    if not (missed := json.loads(row["result"]).get("unlisted")):
        return ""
    total = len(json.loads(row["payload"])["sources"])
    return failed_sources_text([each["error"] for each in missed], total)


def _eta(row: Mapping[str, Any], now: float) -> float | None:
    progress, started_at = row["progress"], row["started_at"]
    # If all remaining tasks are blocked, the elapsed time predicts nothing.
    is_moving = row["state"] == _RUNNING and (row["tasks_running"] or row["tasks_ready"])
    if not is_moving or row["is_growing"] or started_at is None or not 0 < progress < 1:
        return None
    eta: float = now + max(now - started_at, 0.0) * (1 - progress) / progress
    return eta
