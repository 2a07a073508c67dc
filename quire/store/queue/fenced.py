"""A handler's own writes: in one transaction with the end of its task, under its fence."""

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
from quire.store.db.schema.queue import tasks as tasks_table
from quire.store.queue import (
    counters,
    dependencies,
    job_transition,
    kinds,
    new_tasks,
    owners,
    settle,
    steps,
)

NOTHING = About()
#: How a run ends that its own transaction ended.
_OWN_ENDS = (TaskState.DONE, TaskState.SKIPPED, TaskState.FAILED)
_MINE = tasks_table.c.id == sa.bindparam("task")
_COST = sa.select(tasks_table.c.cost).where(_MINE)
_WEIGH = sa.update(tasks_table).where(_MINE).values(cost=sa.bindparam("weight"))


class Transaction:
    """What a handler writes through; its statements take `:name` parameters on every database."""

    def __init__(self, conn: sa.Connection, row: Any, now: Instant) -> None:
        self._conn = conn
        self._row = row
        self._now = now
        self._seeds: list[ChildTask] = []
        self._heavier = 0.0
        self.result: str | None = None
        self.move = "finish"
        self.error: str | None = None

    @property
    def has_seeds(self) -> bool:
        """Tell whether it adds tasks."""
        return bool(self._seeds)

    @property
    def connection(self) -> sa.Connection:
        """The connection, for Quire's own statements."""
        return self._conn

    @property
    def now(self) -> Instant:
        """The moment of the transaction."""
        return self._now

    @property
    def owner_id(self) -> int:
        """Whose job it is."""
        return int(self._row.owner_id)

    def weigh(self, cost: float) -> None:
        """Say how much of its job's work this task was, where its children do the rest."""
        mine = {"task": self._row.id}
        before = self._conn.scalar(_COST, mine)
        self._conn.execute(_WEIGH, mine | {"weight": cost})
        self._heavier += cost - (before or 0.0)

    def skip(self, why: str) -> None:
        """End the task as skipped: there was nothing left to do."""
        self.move, self.error = "skip", why

    def fail(self, why: str) -> None:
        """End the task as failed, and keep what this transaction writes."""
        self.move, self.error = "fail", why

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()
    ) -> list[tuple[Any, ...]]:
        """Run a statement; returns its rows, if it has any."""
        found = self._conn.execute(sa.text(sql), parameters or None)
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
        """Add a child task to the job; returns its number, for `after` of later ones."""
        seed = ChildTask(
            kind, json.dumps(dict(payload or {}), allow_nan=False), cost, None, tuple(after),
            after_failure, about,
        )  # fmt: skip
        if any(not 0 <= each < len(self._seeds) for each in seed.after):
            raise Refused(f"spawn({kind!r}): `after` names a child that was not spawned before it")
        self._seeds.append(seed)
        return len(self._seeds) - 1

    def plant(self) -> None:
        """Insert the children, before the parent leaves: the job never looks finished between."""
        if not self._seeds and not self._heavier:
            return
        conn, now = self._conn, self._now
        known = kinds.by_name(conn)
        if unknown := sorted({s.kind for s in self._seeds} - set(known)):
            raise Refused(
                f"spawn: no job kind {', '.join(unknown)}. Known kinds: {', '.join(known)}."
            )
        awaited = {each for seed in self._seeds for each in seed.after}
        plantings = [
            new_tasks.NewTask(
                job_id=self._row.job_id,
                kind=known[seed.kind],
                priority=self._row.priority,
                cost=seed.cost,
                payload=seed.payload,
                parent_id=self._row.id,
                waits=len(set(seed.after)),
                has_successors=at in awaited,
                about=seed.about,
            )
            for at, seed in enumerate(self._seeds)
        ]
        ids = dialect.reserve_ids(conn, tasks_table, len(plantings))
        owner = owners.by_id(conn, self._row.owner_id)
        planted = new_tasks.plan(conn, owner, plantings, ids, now=now)
        new_tasks.insert(conn, planted)
        arrows = [
            (None, ids[before], ids[at], seed.after_failure)
            for at, seed in enumerate(self._seeds)
            for before in sorted(set(seed.after))
        ]
        dependencies.add(conn, arrows)
        deltas = counters.Deltas()
        delta = deltas[self._row.job_id]
        for state in planted.states:
            delta.move(None, state)
        delta.cost_total = sum(p.cost for p in plantings) + self._heavier
        job_transition.update_counters(conn, deltas, now=now)


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
    """Open a task's last transaction: the block's writes and the task's end commit together.

    It began at `began_at`, or `spent` seconds ago: a host's own clock may be wrong.
    """
    with confirm_commit(db, task_id, fence), db.begin() as conn:
        now = db.now(conn)
        began_at = began_at if spent is None else now.wall - spent
        row = settle.hold(conn, task_id, fence)
        transaction = Transaction(conn, row, now)
        yield transaction
        transaction.plant()
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
    """After an error around COMMIT, ask whether it happened: the attempt's row is the judge."""
    try:
        yield
    except DatabaseUnavailable:
        with db.begin() as conn:
            if settle.was_settled(conn, task_id, fence) not in _OWN_ENDS:
                raise


def write(db: Database, task_id: int, fence: int, act: Any) -> Any:
    """Make a write of a task that goes on, under its fence; it may be made again by a retry."""

    def whole(conn: sa.Connection, now: Instant) -> Any:
        transaction = Transaction(conn, settle.hold(conn, task_id, fence), now)
        result = act(transaction)
        transaction.plant()
        return result

    return db.write(whole)


def find_step(db: Database, task_id: int, name: str) -> tuple[bool, Any]:
    """Return whether a step was made, and its result."""
    with db.read() as conn:
        is_made, text = steps.found(conn, task_id, name)
    return is_made, _decoded(text)


def step(
    db: Database, task_id: int, fence: int, name: str, compute: Any, takes_transaction: bool
) -> Any:
    """Return the step's stored result, or make it and store it under the fence."""
    is_made, value = find_step(db, task_id, name)
    if is_made:
        return value
    value = None if takes_transaction else compute()

    def act(conn: sa.Connection, now: Instant) -> Any:
        row = settle.hold(conn, task_id, fence)
        is_made, text = steps.found(conn, task_id, name)
        if is_made:  # our own COMMIT of an earlier call went through unseen
            return _decoded(text)
        result = value
        if takes_transaction:
            transaction = Transaction(conn, row, now)
            result = compute(transaction)
            transaction.plant()
            dialect.notify(conn)
        steps.store(conn, task_id, name, fence, _encoded(result, f"step {name!r}"), now=now)
        return result

    return db.write(act)


def _encoded(value: Any, what: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Permanent(f"{what}: the result cannot be written as JSON: {error}") from error


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
