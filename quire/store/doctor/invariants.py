"""Invariants of jobs and tasks, as a table of named queries.

A query returns one row per violation; the first column identifies it. Constraints and foreign keys
are derived from the schema. Invariants of documents are in `document_invariants`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.states import JobState, Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import ENGINE, attempts, edges, is_state, jobs, steps, tasks
from quire.store.doctor import dependency_cycles, queries

t = tasks.c


class Invariant(NamedTuple):
    """A name, what must hold, and the query for violations."""

    name: str
    sentence: str
    query: sa.Select[Any] | Callable[[sa.Connection], sa.Select[Any] | Iterator[Any]]
    pick: Callable[[Sequence[Any]], list[Any]] | None = None  # selects violations from all rows


def violators(
    conn: sa.Connection, invariant: Invariant, clocks: dict[str, float], *, limit: int
) -> tuple[int, list[Any]]:
    """Return the number of violations and the first few of them."""
    query = invariant.query(conn) if callable(invariant.query) else invariant.query
    if isinstance(query, Iterator):  # computed in Python, where SQL would be slow
        named_ones = list(query)
        return len(named_ones), named_ones[:limit]
    if invariant.pick is not None:
        found = invariant.pick(conn.execute(query, clocks).all())
        return len(found), found[:limit]
    some = [name for name, *_ in conn.execute(query.limit(limit + 1), clocks)]
    if len(some) <= limit:
        return len(some), some
    count = sa.select(sa.func.count()).select_from(query.subquery())
    return conn.execute(count, clocks).scalar_one(), some[:limit]


def _checks(table: sa.Table) -> list[tuple[str, str]]:
    return sorted(
        (str(c.name), str(c.sqltext))
        for c in table.constraints
        if isinstance(c, sa.CheckConstraint)
    )


def row_name(table: sa.FromClause) -> sa.ColumnElement[Any]:
    """Return the name of a row: its primary key, joined by dots."""
    first, *others = table.primary_key
    if not others:
        return first
    name: sa.ColumnElement[Any] = sa.cast(first, sa.Text)
    for each in others:
        name = name + "." + sa.cast(each, sa.Text)
    return name


def constraints(table: sa.Table) -> Invariant:
    """Derive: each row satisfies the CHECK constraints of its table."""
    broken = sa.case(
        *(
            (sa.text(f"NOT ({text})"), sa.literal_column(f"'{name}'", sa.Text))
            for name, text in _checks(table)
        )
    )
    which = sa.cast(row_name(table), sa.Text) + " " + broken
    return Invariant(
        f"{table.name}.constraints",
        f"Every row of {table.name} satisfies its CHECK constraints.",
        sa.select(which).where(broken.is_not(None)),
    )


def reference(
    column: sa.Column[Any], target: sa.Column[Any], only: sa.ColumnElement[bool] | None = None
) -> Invariant:
    """Derive: a column that is not null refers to an existing row."""
    other = target.table.alias("target")
    query = (
        sa.select(row_name(column.table))
        .select_from(column.table)
        .join(other, other.c[target.name] == column, isouter=True)
        .where(column.is_not(None), other.c[target.name].is_(None))
    )
    noun = column.table.name
    return Invariant(
        f"{noun}.{column.name}",
        f"Every row of {noun} refers to an existing row of {target.table.name}.",
        query if only is None else query.where(only),
    )


def next_id(table: sa.Table) -> Invariant:
    def behind(conn: sa.Connection) -> sa.Select[Any]:
        return sa.select(table.c.id).where(
            table.c.id > sa.func.coalesce(dialect.last_reserved_id(conn, table), 0)
        )

    return Invariant(
        f"{table.name}.next_id",
        f"No id of {table.name} is above the last reserved id.",
        behind,
    )


def derived(tables: Sequence[sa.Table]) -> list[Invariant]:
    """Derive the invariants that tables declare: constraints and references."""
    return [
        *(constraints(table) for table in tables if _checks(table)),
        *(
            reference(key.parent, key.column)
            for table in tables
            for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
        ),
    ]


_OPEN_EDGE = edges.c.satisfied_at.is_(None)

#: Invariants of jobs and tasks, over all tenants.
INVARIANTS: tuple[Invariant, ...] = (
    Invariant("file.pages", "SQLite's quick_check finds no damage.", dialect.integrity_errors),
    *derived(ENGINE),
    reference(attempts.c.task_id, t.id),
    reference(steps.c.task_id, t.id),
    reference(edges.c.before_job_id, jobs.c.id, _OPEN_EDGE),
    reference(edges.c.before_task_id, t.id, _OPEN_EDGE),
    reference(t.parent_id, t.id),
    next_id(jobs),
    next_id(tasks),
    Invariant(
        "jobs.counters",
        "A job's counters equal the number of its tasks in each state.",
        queries.wrong_counters(),
    ),
    Invariant(
        "jobs.costs",
        "A job's total cost is the sum of its tasks' costs, and its done cost of the ended ones.",
        queries.wrong_costs(),
    ),
    Invariant(
        "jobs.state",
        "A job's state follows from its counters: active with open tasks, pending with none "
        "running, completed with every task successful, failed with one that failed.",
        queries.wrong_job_states(),
    ),
    Invariant(
        "jobs.swept",
        "Tasks of a stopped or cancelled job leave the queue within two sweeps.",
        queries.unswept_jobs(),
    ),
    Invariant(
        "jobs.exclusive",
        "At most one job per exclusive key runs.",
        queries.two_running(jobs, JobState.RUNNING),
    ),
    Invariant(
        "tasks.exclusive",
        "At most one task per exclusive key runs.",
        queries.two_running(tasks, TaskState.RUNNING),
    ),
    Invariant(
        "tasks.owner",
        "A task has the owner of its job, and its parent belongs to the same job.",
        queries.misowned_tasks(),
    ),
    Invariant(
        "tasks.progress",
        "A task's progress is between 0 and 1, and its fair tag is not negative.",
        sa.select(t.id).where(sa.or_(t.progress < 0, t.progress > 1, t.fair_tag < 0)),
    ),
    Invariant(
        "tasks.priority",
        "A ready task is at least as urgent as its job.",
        queries.lowered_priorities(),
    ),
    Invariant(
        "tasks.due_at",
        "A task blocked until a time (due, backoff, lock held) has a due time.",
        sa.select(t.id).where(
            is_state(t.state, TaskState.BLOCKED),
            is_state(t.reason, Reason.DUE, Reason.BACKOFF, Reason.LOCK_HELD),
            t.due_at.is_(None),
        ),
    ),
    Invariant(
        "tasks.waits",
        "An open task's wait count equals its number of open dependencies.",
        queries.wrong_waits(),
    ),
    Invariant(
        "tasks.after",
        "A task blocked by a predecessor waits for one.",
        queries.blocked_by(Reason.AFTER).where(t.waits == 0),
    ),
    Invariant(
        "tasks.ready",
        "A ready or running task waits for no predecessor.",
        sa.select(t.id).where(is_state(t.state, TaskState.READY, TaskState.RUNNING), t.waits > 0),
    ),
    Invariant(
        "tasks.user_busy",
        "A task that waits for another job of its user has such a job ahead of it.",
        queries.stuck_behind(),
    ),
    Invariant(
        "tasks.cap",
        "A task blocked by a cap has an owner with a cap.",
        queries.stuck_capped(),
    ),
    Invariant(
        "tasks.paused",
        "A task blocked by a pause is of a paused kind.",
        queries.stuck_paused(),
    ),
    Invariant(
        "leases.in_time",
        "An expired lease is reclaimed within two sweeps.",
        queries.overdue_leases(),
    ),
    Invariant(
        "leases.holder",
        "A worker that ended more than two sweeps ago holds no task.",
        queries.leases_of_ended_workers(),
    ),
    Invariant(
        "attempts.fence",
        "No attempt has a higher fence than its task, and a running task's attempt has not ended.",
        queries.fences_ahead(),
    ),
    Invariant("attempts.once", "A task is completed by one attempt.", queries.done_twice()),
    Invariant(
        "attempts.seen",
        "A completed task has the attempt that completed it, with the task's fence.",
        queries.done_without_attempt(),
    ),
    Invariant(
        "attempts.at_most_once",
        "An at-most-once task ran once, unless a user resumed or retried it.",
        queries.ran_twice(),
    ),
    Invariant(
        "edges.stale",
        "No open dependency has an ended predecessor.",
        queries.stale_edges(),
    ),
    Invariant(
        "edges.cycle",
        "Dependencies contain no cycle.",
        dependency_cycles.waits_for(),
        dependency_cycles.caught,
    ),
)
