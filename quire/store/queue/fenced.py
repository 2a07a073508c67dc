"""A handler's own writes, under the fence of its task.

`ending` commits them together with the end of the task, `write` and `step` while it still runs.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import DatabaseUnavailable, LeaseLost, Permanent, Refused
from quire.model.outcomes import Settlement
from quire.model.records import About, ChildTask
from quire.model.states import TASK_MOVES, TaskState
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.schema.queue import steps
from quire.store.db.schema.queue import tasks as tasks_table
from quire.store.queue import (
    commit_recovery,
    dependencies,
    kinds,
    new_tasks,
    owners,
    settle,
)

NOTHING = About()
#: How a run can end in its own transaction.
_OWN_ENDS = (TaskState.DONE, TaskState.SKIPPED, TaskState.FAILED)
_MINE = tasks_table.c.id == sa.bindparam("task")
_COST = sa.select(tasks_table.c.cost).where(_MINE)
_WEIGH = sa.update(tasks_table).where(_MINE).values(cost=sa.bindparam("weight"))


class Transaction:
    """What a handler writes with; SQL takes `:name` parameters on every database.

    `connection`, `now` and `owner_id`, of the job, are for Quire's own statements.
    """

    def __init__(self, conn: sa.Connection, row: Any, now: Instant) -> None:
        self.connection = conn
        self.now = now
        self.owner_id: int = row.owner_id
        self._row = row
        self._children: list[ChildTask] = []
        self._added_cost = 0.0
        self.result: str | None = None
        self.move = "finish"
        self.error: str | None = None

    @property
    def has_children(self) -> bool:
        """Whether child tasks are added."""
        return bool(self._children)

    def weigh(self, cost: float) -> None:
        """Set the share of this task in its job's work, where its children do the rest."""
        mine = {"task": self._row.id}
        before = self.connection.scalar(_COST, mine)
        self.connection.execute(_WEIGH, mine | {"weight": cost})
        self._added_cost += cost - (before or 0.0)

    def skip(self, why: str) -> None:
        """End the task as skipped: there is nothing left to do."""
        self.move, self.error = "skip", why

    def fail(self, why: str) -> None:
        """End the task as failed, and keep what this transaction writes."""
        self.move, self.error = "fail", why

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()
    ) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, if any."""
        found = self.connection.execute(sa.text(sql), parameters or None)
        return [tuple(row) for row in found] if found.returns_rows else []

    def finish(self, result: Any) -> None:
        """Set the task's result."""
        self.result = _encoded(result, "finish()")

    def spawn(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        cost: float = 1.0,
        after: Sequence[int] = (),
        after_failure: str = "cancel",
        about: About = NOTHING,
    ) -> int:
        """Add a child task to the job; returns its number, for `after` of later children."""
        child = ChildTask(
            kind, json.dumps(dict(payload or {}), allow_nan=False), cost, None, tuple(after),
            after_failure, about,
        )  # fmt: skip
        if any(not 0 <= each < len(self._children) for each in child.after):
            raise Refused(f"spawn({kind!r}): `after` names a child that was not spawned before it")
        self._children.append(child)
        return len(self._children) - 1

    def insert_children(self) -> None:
        """Insert the children before the parent ends, so that the job never looks finished."""
        if not self._children and not self._added_cost:
            return
        conn, now = self.connection, self.now
        known = kinds.by_name(conn)
        if unknown := sorted({child.kind for child in self._children} - set(known)):
            raise Refused(
                f"spawn: no job kind {', '.join(unknown)}. Known kinds: {', '.join(known)}."
            )
        awaited = {each for child in self._children for each in child.after}
        children = [
            new_tasks.NewTask(
                job_id=self._row.job_id,
                kind=known[child.kind],
                priority=self._row.priority,
                cost=child.cost,
                payload=child.payload,
                parent_id=self._row.id,
                waits=len(set(child.after)),
                has_successors=at in awaited,
                about=child.about,
            )
            for at, child in enumerate(self._children)
        ]
        owner = owners.by_id(conn, self.owner_id)
        added = sum(child.cost for child in children) + self._added_cost
        ids = new_tasks.add_to_job(
            conn, owner, self._row.job_id, children, added_cost=added, now=now
        )
        waiting = [
            (None, ids[before], ids[at], child.after_failure)
            for at, child in enumerate(self._children)
            for before in sorted(set(child.after))
        ]
        dependencies.add(conn, waiting)


@contextlib.contextmanager
def ending(
    db: Database,
    task_id: int,
    fence: int,
    *,
    worker_id: str | None,
    began_at: float = 0.0,
    spent: float | None = None,
) -> Iterator[Transaction]:
    """Open the last transaction of a task: the block's writes and the end commit together.

    The run began at `began_at`, or `spent` seconds ago: the clock of a host may be wrong.
    """
    with confirm_commit(db, task_id, fence), db.begin() as conn:
        now = db.now(conn)
        began_at = began_at if spent is None else now.wall - spent
        row = settle.hold(conn, task_id, fence)
        transaction = Transaction(conn, row, now)
        yield transaction
        transaction.insert_children()
        done = Settlement(
            task_id, fence, row.job_id, transaction.move, TASK_MOVES[transaction.move].target,
            result=transaction.result, error=transaction.error, began_at=began_at,
            duration=max(now.wall - began_at, 0.0), worker_id=worker_id,
        )  # fmt: skip
        if not settle.settle(conn, [done], now=now):
            raise LeaseLost(f"task {task_id}: fence {fence} is no longer current")
        dialect.notify(conn)


@contextlib.contextmanager
def confirm_commit(db: Database, task_id: int, fence: int) -> Iterator[None]:
    """Suppress a lost connection if the COMMIT has happened: then the attempt has its row."""
    try:
        yield
    except DatabaseUnavailable:
        with db.begin() as conn:
            if commit_recovery.outcome_of(conn, task_id, fence) not in _OWN_ENDS:
                raise


def write(db: Database, task_id: int, fence: int, act: Any) -> Any:
    """Write under the fence of a task that keeps running; a retry of the task writes again."""

    def whole(conn: sa.Connection, now: Instant) -> Any:
        row = settle.hold(conn, task_id, fence)
        transaction = Transaction(conn, row, now)
        result = act(transaction)
        settle.require_active(conn, row)
        transaction.insert_children()
        return result

    return db.write(whole)


def find_step(db: Database, task_id: int, name: str) -> tuple[bool, Any]:
    """Return whether a step is done, and its result."""
    with db.read() as conn:
        is_done, text = _stored_step(conn, task_id, name)
    return is_done, _decoded(text)


def _stored_step(conn: sa.Connection, task_id: int, name: str) -> tuple[bool, str | None]:
    mine = steps.c.task_id == task_id, steps.c.name == name
    row = conn.execute(sa.select(steps.c.result).where(*mine)).one_or_none()
    return (False, None) if row is None else (True, row.result)


def step(
    db: Database, task_id: int, fence: int, name: str, compute: Any, takes_transaction: bool
) -> Any:
    """Return the stored result of a step, or compute it and store it under the fence."""
    is_done, value = find_step(db, task_id, name)
    if is_done:
        return value
    value = None if takes_transaction else compute()

    def act(conn: sa.Connection, now: Instant) -> Any:
        row = settle.hold(conn, task_id, fence)
        is_done, text = _stored_step(conn, task_id, name)
        if is_done:  # by an earlier call whose COMMIT got no reply
            return _decoded(text)
        transaction = Transaction(conn, row, now)
        result = compute(transaction) if takes_transaction else value
        settle.require_active(conn, row)
        transaction.insert_children()
        if takes_transaction:
            dialect.notify(conn)
        text = _encoded(result, f"step {name!r}")
        step = {"task_id": task_id, "name": name, "fence": fence, "result": text, "at": now.wall}
        conn.execute(sa.insert(steps).values(**step))
        return result

    return db.write(act)


def _encoded(value: Any, what: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Permanent(f"{what}: the result cannot be written as JSON: {error}") from error


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
