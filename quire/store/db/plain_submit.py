"""Submits one plain job by one call: no dependency, no start time, no policy of the user.

`store.queue.submit` handles every submission, by some ten statements under the owner's lock. Most
submissions are plain, and the round trips and the lock would cost them more than the work does. So
a plain job is stored by a function on PostgreSQL, and by a few statements on SQLite. Both return
None, and write nothing, where the job turns out not to be plain.
"""

from typing import Any, NamedTuple

from quire.clock import FakeClock
from quire.store.db.engine import Database

_FIND = (
    "SELECT o.id, o.weight, o.policy, k.queue, k.max_attempts, k.at_most_once, k.paused_at, "
    "(SELECT max(fair_tag) FROM tasks WHERE state = 'ready' AND owner_id = o.id"
    " AND queue = k.queue AND priority = ?1), "
    "(SELECT claimed_tag FROM bands WHERE queue = k.queue AND priority = ?1), "
    "(SELECT value FROM meta WHERE key = 'last_id.jobs'), "
    "(SELECT value FROM meta WHERE key = 'last_id.tasks') "
    "FROM owners o, kinds k WHERE o.tenant = ?2 AND o.user_name = ?3 AND k.name = ?4"
)
_KEY = (
    "INSERT INTO submissions (owner_id, key, body_hash, job_ids, created_at) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_LAST_ID = "UPDATE meta SET value = ? WHERE key = ?"
_JOB = (
    "INSERT INTO jobs (id, owner_id, kind, platform, account, state, priority, payload, "
    "tasks_blocked, tasks_ready, cost_total, max_attempts, created_at) "
    "VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, 0, 1, ?, ?, ?)"
)
_TASK = (
    "INSERT INTO tasks (id, job_id, owner_id, kind, queue, state, priority, fair_tag, ready_at, "
    "cost, max_attempts, at_most_once) VALUES (?, ?, ?, ?, ?, 'ready', ?, ?, ?, ?, ?, ?)"
)
_CALL = "SELECT quire_submit(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"


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


def submit(db: Database, job: PlainJob) -> int | None:
    """Store a job that is ready at once; returns its id, or None if it is not plain."""
    if db.path is not None:
        return db.write_grouped(lambda cursor: _insert(db, cursor, job))
    wall = db.clock.now().wall if isinstance(db.clock, FakeClock) else None
    job_id: int | None = db.call_function(_CALL, (*job, wall))
    return job_id


def _insert(db: Database, cursor: Any, job: PlainJob) -> int | None:
    run = cursor.execute
    row = run(_FIND, (job.priority, job.tenant, job.user, job.kind)).fetchone()
    if row is None:
        return None
    (owner_id, weight, policy, queue, max_attempts, at_most_once, paused_at) = row[:7]
    last_tag, claimed_tag, last_job_id, last_task_id = row[7:]
    held = job.by_person and policy not in (None, "all")
    if held or paused_at is not None or last_job_id is None:
        return None
    now = db.clock.now().wall
    job_id, task_id = int(last_job_id) + 1, int(last_task_id) + 1
    if job.key is not None:
        key = run(_KEY, (owner_id, job.key, job.body_hash, f"[{job_id}]", now))
        if not key.rowcount:
            return None
    attempts = job.max_attempts or max_attempts
    run(_LAST_ID, (str(job_id), "last_id.jobs"))
    run(_LAST_ID, (str(task_id), "last_id.tasks"))
    run(
        _JOB,
        (
            *(job_id, owner_id, job.kind, job.platform, job.account, job.priority, job.payload),
            *(job.cost, attempts, now),
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
