"""Creates jobs with their first task; idempotent by the key of the request."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import Conflict, NotFound
from quire.model.records import KindRow, Owner, Submission
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.schema.queue import is_state, jobs, owners, submissions
from quire.store.db.schema.queue import tasks as tasks_table
from quire.store.queue import dependencies, new_tasks, transition

PENDING = JobState.PENDING.value
_COLUMNS = (
    "id", "owner_id", "kind", "platform", "account", "state", "priority", "payload", "run_at",
    "exclusive_key", "has_successors", "tasks_blocked", "tasks_ready", "cost_total",
    "max_attempts", "created_at", "origin",
)  # fmt: skip


class CheckedSubmission(NamedTuple):
    """A valid submission with its encoded payload and its kind."""

    submission: Submission
    payload: str
    kind: KindRow


_EARLIER = sa.select(submissions.c.body_hash, submissions.c.job_ids).where(
    submissions.c.owner_id == sa.bindparam("owner"), submissions.c.key == sa.bindparam("call")
)
_REMEMBER = sa.insert(submissions)


def find_by_key(
    conn: sa.Connection, owner_id: int, key: str | None, body_hash: str
) -> list[int] | None:
    """Return the jobs that this key created before; refuse a key that had another body."""
    if key is None:
        return None
    row = conn.execute(_EARLIER, {"owner": owner_id, "call": key}).one_or_none()
    if row is None:
        return None
    if row.body_hash != body_hash:
        raise Conflict(
            f"idempotency key {key!r}: it was used for another request. Nothing was submitted; "
            "use a new key, or repeat the first request unchanged."
        )
    return list(json.loads(row.job_ids))


def store_key(
    conn: sa.Connection,
    owner_id: int,
    key: str | None,
    body_hash: str,
    ids: Sequence[int],
    *,
    now: Instant,
) -> None:
    """Store the key of a request with the jobs that it created."""
    if key is None:
        return
    row = {
        "owner_id": owner_id,
        "key": key,
        "body_hash": body_hash,
        "job_ids": json.dumps(list(ids)),
        "created_at": now.wall,
    }
    conn.execute(_REMEMBER, row)


def prune_keys(conn: sa.Connection, *, before: float, limit: int = 5000) -> int:
    """Delete old keys; returns how many."""
    s = submissions.c
    old = sa.select(s.owner_id, s.key).where(s.created_at < before).limit(limit)
    return conn.execute(
        sa.delete(submissions).where(sa.tuple_(s.owner_id, s.key).in_(old))
    ).rowcount


def active_jobs(conn: sa.Connection, owner_id: int) -> list[int]:
    """List the active jobs of an owner."""
    is_active = jobs.c.owner_id == owner_id, is_state(jobs.c.state, *JOB_ACTIVE)
    return list(conn.scalars(sa.select(jobs.c.id).where(*is_active).order_by(jobs.c.id)))


def insert(
    conn: sa.Connection,
    owner: Owner,
    checked: Sequence[CheckedSubmission],
    *,
    exclusive_key: str | None,
    is_behind: bool,
    origin: str,
    now: Instant,
) -> list[int]:
    """Insert jobs with one task each; `is_behind`: another job of the owner goes first."""
    job_ids = dialect.reserve_ids(conn, jobs, len(checked))
    task_ids = dialect.reserve_ids(conn, tasks_table, len(checked))
    before, over = _predecessors(conn, owner, checked, job_ids)
    awaited = {job_id for some in before for job_id in some}
    new = [
        new_tasks.NewTask(
            job_id=job_id,
            kind=one.kind,
            priority=one.submission.priority,
            cost=one.submission.cost,
            run_at=one.submission.run_at,
            waits=len(before[at]),
            is_behind=exclusive_key is not None and (is_behind or at > 0),
            max_attempts=one.submission.max_attempts,
        )
        for at, (one, job_id) in enumerate(zip(checked, job_ids, strict=True))
    ]
    planned, states = new_tasks.plan(conn, owner, new, task_ids, now=now)
    rows = [
        (*_row(owner, one, p, state, exclusive_key, p.job_id in awaited, now), origin)
        for one, p, state in zip(checked, new, states, strict=True)
    ]
    bulk.bulk_insert(conn, jobs, _COLUMNS, rows)
    new_tasks.insert(conn, planned)
    waiting = [
        (job_id, None, task_id, one.submission.after_failure)
        for one, task_id, some in zip(checked, task_ids, before, strict=True)
        for job_id in some
    ]
    dependencies.add(conn, waiting)
    transition.satisfy_jobs(conn, over, now=now)
    if exclusive_key is not None:
        transition.release_next_jobs(conn, [owner.id], now=now)
    return job_ids


def _row(
    owner: Owner,
    one: CheckedSubmission,
    p: new_tasks.NewTask,
    state: str,
    exclusive_key: str | None,
    is_awaited: bool,
    now: Instant,
) -> tuple[Any, ...]:
    submission, ready = one.submission, state == TaskState.READY
    return (
        p.job_id, owner.id, submission.kind, submission.platform, submission.account, PENDING,
        submission.priority, one.payload, submission.run_at, exclusive_key, is_awaited,
        int(not ready), int(ready), p.cost, p.max_attempts or p.kind.max_attempts, now.wall,
    )  # fmt: skip


def _predecessors(
    conn: sa.Connection,
    owner: Owner,
    checked: Sequence[CheckedSubmission],
    job_ids: Sequence[int],
) -> tuple[list[list[int]], dict[int, str]]:
    """Return the jobs that each submission waits for, and those that already failed."""
    refs = {
        o.submission.ref: i
        for o, i in zip(checked, job_ids, strict=True)
        if o.submission.ref is not None
    }
    named = {job_id for o in checked for job_id in o.submission.after if isinstance(job_id, int)}
    states = _states_of(conn, owner, named)
    waits: list[list[int]] = []
    over: dict[int, str] = {}
    for one in checked:
        some = []
        for each in dict.fromkeys(one.submission.after):
            if isinstance(each, str):
                some.append(refs[each])
            elif states[each] in (*JOB_ACTIVE, JobState.STOPPED):
                some.append(each)
            elif states[each] != JobState.COMPLETED and one.submission.after_failure == "cancel":
                some.append(each)
                over[each] = states[each]
        waits.append(some)
    return waits, over


def _states_of(conn: sa.Connection, owner: Owner, named: set[int]) -> dict[int, str]:
    if not named:
        return {}
    # The caller has locked them: a job that was deleted meanwhile is one that does not exist.
    own = set(
        conn.scalars(
            sa.select(jobs.c.id)
            .join(owners, owners.c.id == jobs.c.owner_id)
            .where(jobs.c.id.in_(sorted(named)), owners.c.tenant == owner.tenant)
        )
    )
    if missing := sorted(named - own):
        raise NotFound(
            f"job {', '.join(map(str, missing))}: no such job to wait for. Nothing was submitted."
        )
    return dependencies.mark_predecessors(conn, named)
