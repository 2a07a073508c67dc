"""Submits one plain job by one call: no dependency, no start time, no policy of the user.

`store.queue.submit` handles every submission, by some ten statements under the owner's lock. Most
submissions are plain, and the round trips and the lock would cost them more than the work does. So
a plain job is stored by a procedure on PostgreSQL, and by a few statements on SQLite. Both return
None, and write nothing, where the job turns out not to be plain.
"""

from typing import Any, NamedTuple

from quire.clock import FakeClock
from quire.model.records import LOCAL
from quire.store.db import last_ids
from quire.store.db.engine import Database

_FIND = (
    "SELECT o.id, o.weight, o.policy, k.queue, k.max_attempts, k.at_most_once, k.paused_at, "  # noqa: S608
    "k.is_internal, "
    "(SELECT max(fair_tag) FROM tasks WHERE state = 'ready' AND owner_id = o.id"
    " AND queue = k.queue AND priority = ?1), "
    "(SELECT claimed_tag FROM bands WHERE queue = k.queue AND priority = ?1), "
    f"{last_ids.last_id('jobs')} + 1, {last_ids.last_id('tasks')} + 1 "
    "FROM owners o, kinds k WHERE o.tenant = ?2 AND o.user_name = ?3 AND k.name = ?4"
)
_KEY = (
    "INSERT INTO submissions (owner_id, key, body_hash, job_ids, created_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_JOB = (
    "INSERT INTO jobs (id, owner_id, kind, platform, account, state, priority, payload, "
    "tasks_blocked, tasks_ready, cost_total, max_attempts, created_at, origin) "
    "VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, 0, 1, ?, ?, ?, ?)"
)
_TASK = (
    "INSERT INTO tasks (id, job_id, owner_id, kind, queue, state, priority, fair_tag, ready_at, "
    "cost, max_attempts, at_most_once) VALUES (?, ?, ?, ?, ?, 'ready', ?, ?, ?, ?, ?, ?)"
)
_CALL = "CALL quire_submit_job(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL)"


class PlainJob(NamedTuple):
    """A valid submission, its encoded payload and its idempotency key."""

    tenant: str
    user: str
    kind: str
    priority: int
    cost: float
    payload: str
    platform: str | None
    account: str | None
    max_attempts: int | None
    #: None on SQLite only, where no reply to a COMMIT can be lost.
    key: str | None
    body_hash: str
    #: Whether the owner's policy decides about this job.
    by_person: bool
    #: Where it is submitted: `local` or `api`.
    origin: str = LOCAL


def submit(db: Database, job: PlainJob) -> int | None:
    """Store a job that is ready at once; returns its id, or None if it is not plain."""
    if db.path is not None:
        return db.write_grouped(lambda cursor: _insert(db, cursor, job))
    wall = db.clock.now().wall if isinstance(db.clock, FakeClock) else None
    job_id: int | None = db.call(_CALL, (*job, wall))
    return job_id


def _insert(db: Database, cursor: Any, job: PlainJob) -> int | None:
    run = cursor.execute
    row = run(_FIND, (job.priority, job.tenant, job.user, job.kind)).fetchone()
    if row is None:
        return None
    (owner_id, weight, policy, queue, max_attempts, at_most_once, paused_at) = row[:7]
    is_internal, last_tag, claimed_tag = row[7:10]
    job_id: int = row[10]
    task_id: int = row[11]
    held = job.by_person and policy not in (None, "all")
    held = held or bool(is_internal and job.origin != LOCAL)
    if held or paused_at is not None:
        return None
    now = db.clock.now().wall
    if job.key is not None:
        key = run(_KEY, (owner_id, job.key, job.body_hash, f"[{job_id}]", now))
        if not key.rowcount:
            return None
    attempts = job.max_attempts or max_attempts
    run(
        _JOB,
        (
            *(job_id, owner_id, job.kind, job.platform, job.account, job.priority, job.payload),
            *(job.cost, attempts, now, job.origin),
        ),
    )
    tag = max(last_tag or 0.0, claimed_tag or 0.0) + job.cost / weight
    run(
        _TASK,
        (
            *(task_id, job_id, owner_id, job.kind, queue, job.priority, tag, now, job.cost),
            *(1 if at_most_once else attempts, at_most_once),
        ),
    )
    return job_id
