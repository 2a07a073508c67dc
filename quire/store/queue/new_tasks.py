"""Inserts tasks, each in its first state and at its place in the fair order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model import fair
from quire.model.records import About, KindRow, Owner
from quire.model.states import Reason, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.schema.queue import tasks
from quire.store.queue import job_transition, order
from quire.store.queue.counters import Delta

READY, BLOCKED = TaskState.READY.value, TaskState.BLOCKED.value
_COLUMNS = (
    "id", "job_id", "owner_id", "parent_id", "kind", "queue", "state", "reason", "due_at",
    "run_at", "waits", "has_successors", "priority", "fair_tag", "ready_at", "cost", "payload",
    "max_attempts", "at_most_once", *About._fields,
)  # fmt: skip


class NewTask(NamedTuple):
    """A task to insert."""

    job_id: int
    kind: KindRow
    priority: int
    cost: float = 1.0
    payload: str | None = None
    parent_id: int | None = None
    run_at: float | None = None
    waits: int = 0
    has_successors: bool = False
    is_behind: bool = False
    max_attempts: int | None = None
    about: About = About()


def add_to_job(
    conn: sa.Connection,
    owner: Owner,
    job_id: int,
    new: Sequence[NewTask],
    *,
    added_cost: float,
    now: Instant,
) -> list[int]:
    """Insert more tasks of a job and count them; returns their ids."""
    ids = dialect.reserve_ids(conn, tasks, len(new))
    rows, states = plan(conn, owner, new, ids, now=now)
    insert(conn, rows)
    delta = Delta()
    delta.cost_total = added_cost
    for state in states:
        delta.move(None, state)
    job_transition.update_counters(conn, {job_id: delta}, now=now)
    return ids


def plan(
    conn: sa.Connection, owner: Owner, new: Sequence[NewTask], ids: Sequence[int], *, now: Instant
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Find the first state and the place of each task; returns the rows to insert and the states.

    Without the row lock of the owner, two callers may give equal tags; that only costs fairness.
    """
    reasons = [_reason(task, now) for task in new]
    free = [p for p, reason in zip(new, reasons, strict=True) if reason is None]
    tags = order.last_tags(conn, {(owner.id, p.kind.queue, p.priority) for p in free})
    rows, states = [], []
    for task_id, p, reason in zip(ids, new, reasons, strict=True):
        tag, ready_at = 0.0, None
        if reason is None:
            band = owner.id, p.kind.queue, p.priority
            tags[band] = tag = fair.next_tag(tags[band], p.cost, owner.weight)
            ready_at = now.wall
        state = READY if reason is None else BLOCKED
        states.append(state)
        rows.append(_row(task_id, owner.id, p, state, reason, tag, ready_at))
    return rows, states


def insert(conn: sa.Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Insert planned tasks."""
    bulk.bulk_insert(conn, tasks, _COLUMNS, rows)


def _reason(p: NewTask, now: Instant) -> str | None:
    if p.waits:
        return Reason.AFTER
    if p.run_at is not None and p.run_at > now.wall:
        return Reason.DUE
    if p.kind.paused_at is not None:
        return Reason.PAUSED
    return Reason.USER_BUSY if p.is_behind else None


def _row(
    task_id: int,
    owner_id: int,
    p: NewTask,
    state: str,
    reason: str | None,
    tag: float,
    ready_at: float | None,
) -> tuple[Any, ...]:
    due_at = p.run_at if reason == Reason.DUE else None
    return (
        task_id, p.job_id, owner_id, p.parent_id, p.kind.name, p.kind.queue, state,
        None if reason is None else str(reason), due_at, p.run_at, p.waits, p.has_successors,
        p.priority, tag, ready_at, p.cost, p.payload,
        1 if p.kind.at_most_once else p.max_attempts or p.kind.max_attempts,
        p.kind.at_most_once, *p.about,
    )  # fmt: skip
