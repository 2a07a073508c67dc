"""Submits plain jobs by one call: no dependency, no start time, no policy of the user.

`store.queue.submit` handles every submission, by some ten statements under the owner's lock. Most
submissions are plain, and the round trips and the lock would cost them more than the work does. So
plain jobs that differ in nothing but their payloads, or a single one, are stored by a procedure on
PostgreSQL, and by a few statements on SQLite. Both return None, and write nothing, where the jobs
turn out not to be plain.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from quire.clock import FakeClock
from quire.model.records import LOCAL
from quire.store.db import last_ids
from quire.store.db.engine import Database

#: More bytes of payloads than this are left to the general path, which sends them in parts.
MOST_BYTES = 32 << 20
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
_INTO_JOBS = (
    "INSERT INTO jobs (id, owner_id, kind, platform, account, state, priority, payload, "
    "tasks_blocked, tasks_ready, cost_total, max_attempts, created_at, origin) "
)
_INTO_TASKS = (
    "INSERT INTO tasks (id, job_id, owner_id, kind, queue, state, priority, fair_tag, ready_at, "
    "cost, max_attempts, at_most_once) "
)
#: One job, and many; with the same parameters, but for the payloads.
_ONE = (
    f"{_INTO_JOBS} VALUES (?1, ?2, ?3, ?4, ?5, 'pending', ?6, ?11, 0, 1, ?7, ?8, ?9, ?10)",
    f"{_INTO_TASKS} VALUES (?1, ?2, ?3, ?4, ?5, 'ready', ?6, ?7 + ?8, ?9, ?10, ?11, ?12)",
)
_MANY = (
    f"{_INTO_JOBS} SELECT ?1 + key, ?2, ?3, ?4, ?5, 'pending', ?6, value, 0, 1, ?7, ?8, ?9, ?10 "  # noqa: S608
    "FROM json_each(?11)",
    # Reads the ids from the jobs just inserted: faster than the payloads again.
    f"{_INTO_TASKS} SELECT ?1 + id - ?2, id, ?3, ?4, ?5, 'ready', ?6, ?7 + (id - ?2 + 1) * ?8, "  # noqa: S608
    "?9, ?10, ?11, ?12 FROM jobs WHERE id >= ?2",
)
_CALL = f"CALL quire_submit_jobs({', '.join(f'${n}' for n in range(1, 15))}, NULL)"


class PlainJobs(NamedTuple):
    """Valid submissions that differ in nothing but their encoded payloads, and their key."""

    tenant: str
    user: str
    kind: str
    priority: int
    cost: float
    platform: str | None
    account: str | None
    max_attempts: int | None
    #: None on SQLite only, where no reply to a COMMIT can be lost.
    key: str | None
    body_hash: str
    #: Whether the owner's policy decides about these jobs.
    by_person: bool
    #: Where they are submitted: `local` or `api`.
    origin: str
    #: JSON as `json` writes it: all ASCII, without a line break.
    payloads: Sequence[str]


def submit(db: Database, new: PlainJobs) -> list[int] | None:
    """Store jobs that are ready at once; returns their ids, or None if they are not plain."""
    if sum(map(len, new.payloads)) > MOST_BYTES:
        return None
    if db.path is not None:
        return db.write_grouped(lambda cursor: _insert(db, cursor, new))
    wall = db.clock.now().wall if isinstance(db.clock, FakeClock) else None
    made = db.call(_CALL, (*new[:-1], "\n".join(new.payloads), wall))
    return None if made is None else [int(each) for each in made.split(",")]


def _insert(db: Database, cursor: Any, new: PlainJobs) -> list[int] | None:
    run = cursor.execute
    row = run(_FIND, (new.priority, new.tenant, new.user, new.kind)).fetchone()
    if row is None:
        return None
    (owner_id, weight, policy, queue, max_attempts, at_most_once, paused_at) = row[:7]
    is_internal, last_tag, claimed_tag = row[7:10]
    first: int = row[10]
    task_id: int = row[11]
    held = new.by_person and policy not in (None, "all")
    held = held or bool(is_internal and new.origin != LOCAL)
    if held or paused_at is not None:
        return None
    now = db.clock.now().wall
    ids = range(first, first + len(new.payloads))
    if new.key is not None:
        key = run(_KEY, (owner_id, new.key, new.body_hash, json.dumps([*ids]), now))
        if not key.rowcount:
            return None
    attempts = new.max_attempts or max_attempts
    is_one = len(ids) == 1
    insert_jobs, insert_tasks = _ONE if is_one else _MANY
    run(
        insert_jobs,
        (
            *(first, owner_id, new.kind, new.platform, new.account, new.priority, new.cost),
            *(attempts, now, new.origin, new.payloads[0] if is_one else json.dumps(new.payloads)),
        ),
    )
    tag, step = max(last_tag or 0.0, claimed_tag or 0.0), new.cost / weight
    run(
        insert_tasks,
        (
            *(task_id, first, owner_id, new.kind, queue, new.priority, tag, step, now, new.cost),
            *(1 if at_most_once else attempts, at_most_once),
        ),
    )
    return [*ids]
