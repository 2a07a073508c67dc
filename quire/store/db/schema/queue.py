"""The tables of the queue, with indexes and constraints; states come from `model.states`.

Times are seconds since 1970 UTC, except `tasks.expires_at`, which is on the lease clock.
JSON is stored as text, because the queue never looks into it.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from quire.model.states import JOB_ACTIVE, TASK_OPEN, JobState, Reason, TaskState

metadata = sa.MetaData()

# INTEGER on SQLite, where it is the rowid; BIGINT on PostgreSQL.
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.Double


def one_of(column: str, values: Iterable[str], name: str) -> sa.CheckConstraint:
    """Constrain a column to the values of an enum."""
    quoted = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({quoted})", name=name)


def unfinished_while(name: str, states: Iterable[str]) -> sa.CheckConstraint:
    """Constrain `finished_at` to be set exactly in the states that are final."""
    quoted = ", ".join(f"'{state}'" for state in states)
    return sa.CheckConstraint(f"(finished_at IS NULL) = (state IN ({quoted}))", name=name)


def is_state(column: sa.ColumnElement[str], *states: str) -> sa.ColumnElement[bool]:
    """Compare with literal states: a partial index is only used where the planner sees them."""
    quoted: list[Any] = [sa.literal_column(f"'{state}'") for state in states]
    return column == quoted[0] if len(quoted) == 1 else column.in_(quoted)


def has_state(column: sa.ColumnElement[str], *states: str) -> sa.ColumnElement[bool]:
    """Compare with parameters, where rows are found by their ids.

    A plan for any values of its parameters then uses no partial index. Where the planner sees the
    states, it may walk the index of all rows in them, whose number it guesses.
    """
    given = [sa.literal(str(state)) for state in states]
    return sa.or_(*(column == each for each in given))


def partial_index(
    name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool] | str, unique: bool = False
) -> sa.Index:
    """Index the rows for which a condition holds."""
    which = sa.text(where) if isinstance(where, str) else where
    index = sa.Index(name, *columns, unique=unique, sqlite_where=which)
    on_postgresql(index, where=which)
    return index


def on_postgresql(item: sa.Index | sa.Table, **options: Any) -> None:
    """Set options for PostgreSQL when the item is created there.

    Named as arguments they would make SQLAlchemy import that dialect, which takes 20 ms, in every
    process.
    """

    @sa.event.listens_for(item, "before_create")
    def set_options(target: Any, conn: sa.Connection, **_: Any) -> None:
        if conn.dialect.name == "postgresql":
            target.dialect_options["postgresql"].update(options)


meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

owners = sa.Table(
    "owners",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user_name", sa.Text, nullable=False),
    sa.Column("weight", sa.Double, nullable=False, server_default="1"),
    sa.Column("policy", sa.Text),
    sa.Column("max_running", sa.Integer),
    sa.UniqueConstraint("tenant", "user_name", name="uq_owners"),
    sa.CheckConstraint("weight > 0", name="ck_owners_weight"),
    sa.CheckConstraint("max_running > 0", name="ck_owners_max_running"),
)

kinds = sa.Table(
    "kinds",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("at_most_once", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("paused_at", Time),
    # Users of the API may not submit it. Null: they may.
    sa.Column("is_internal", sa.Boolean),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("owner_id", Id, sa.ForeignKey("owners.id"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("platform", sa.Text),
    sa.Column("account", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("run_at", Time),
    sa.Column("exclusive_key", sa.Text),
    sa.Column("has_successors", sa.Boolean, nullable=False, server_default=sa.false()),
    # The job still lists files, so progress has no total yet.
    sa.Column("is_growing", sa.Boolean, nullable=False, server_default=sa.false()),
    # Resumed, retried or reprioritised, while some tasks have yet to follow.
    sa.Column("is_reviving", sa.Boolean, nullable=False, server_default=sa.false()),
    # Which ended tasks have yet to run again: see `job_actions.REVIVALS`.
    sa.Column("revives", sa.Text),
    *(
        sa.Column(f"tasks_{state}", sa.Integer, nullable=False, server_default="0")
        for state in TaskState
    ),
    sa.Column("cost_total", sa.Double, nullable=False, server_default="0"),
    sa.Column("cost_done", sa.Double, nullable=False, server_default="0"),
    sa.Column("progress", sa.Double, nullable=False, server_default="0"),
    sa.Column("message", sa.Text),
    sa.Column("retry_count", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("worker_id", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("started_at", Time),
    sa.Column("finished_at", Time),
    # Who stopped or cancelled it; a policy has no name, but a reason.
    sa.Column("stopped_by", sa.Text),
    sa.Column("stopped_why", sa.Text),
    # Where it was submitted: `local` or `api`. Null is unknown, and counts as `api`.
    sa.Column("origin", sa.Text),
    one_of("state", JobState, "ck_jobs_state"),
    sa.CheckConstraint("priority BETWEEN 1 AND 10", name="ck_jobs_priority"),
    sa.CheckConstraint("progress BETWEEN 0 AND 1", name="ck_jobs_progress"),
    *(
        sa.CheckConstraint(f"tasks_{state} >= 0", name=f"ck_jobs_tasks_{state}")
        for state in TaskState
    ),
    unfinished_while("ck_jobs_finished_at", JOB_ACTIVE),
)
# Completed jobs are most of the table: listing them needs no index.
partial_index("ix_jobs_state", jobs.c.state, jobs.c.id, where="state <> 'completed'")
sa.Index("ix_jobs_owner", jobs.c.owner_id, jobs.c.id)
partial_index(
    "ix_jobs_platform", jobs.c.platform, jobs.c.account, where=jobs.c.platform.is_not(None)
)
#: For lists of one kind, platform or account, newest first.
JOB_LISTS = (
    sa.Index("ix_jobs_by_kind", jobs.c.kind, jobs.c.id),
    *(
        partial_index(f"ix_jobs_by_{c.name}", c, jobs.c.id, where=c.is_not(None))
        for c in (jobs.c.platform, jobs.c.account)
    ),
)
#: Stopped or cancelled jobs with tasks still in the queue; few at any time.
HALTING = (
    "((state IN ('stopped', 'cancelled') AND tasks_ready > 0)"
    " OR (state = 'cancelled' AND tasks_blocked > 0))"
)
partial_index("ix_jobs_halting", jobs.c.id, where=HALTING)
partial_index("ix_jobs_reviving", jobs.c.id, where=jobs.c.is_reviving)
#: Includes the id, so that an owner's oldest jobs are found without sorting.
JOBS_ACTIVE = partial_index(
    "ix_jobs_active", jobs.c.owner_id, jobs.c.id, where=is_state(jobs.c.state, *JOB_ACTIVE)
)
_exclusive = sa.and_(is_state(jobs.c.state, JobState.RUNNING), jobs.c.exclusive_key.is_not(None))
partial_index("uq_jobs_exclusive", jobs.c.exclusive_key, where=_exclusive, unique=True)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("job_id", Id, sa.ForeignKey("jobs.id"), nullable=False),
    sa.Column("owner_id", Id, nullable=False),
    sa.Column("parent_id", Id),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("due_at", Time),
    sa.Column("run_at", Time),
    sa.Column("waits", sa.Integer, nullable=False, server_default="0"),
    sa.Column("has_successors", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("fair_tag", sa.Double, nullable=False, server_default="0"),
    sa.Column("ready_at", Time),
    sa.Column("cost", sa.Double, nullable=False, server_default="1"),
    sa.Column("payload", sa.Text),
    # The part of a document that the task works on; null for other tasks.
    sa.Column("document_id", Id),
    sa.Column("generation", sa.Integer),
    sa.Column("from_page", sa.Integer),
    sa.Column("to_page", sa.Integer),
    sa.Column("digest", sa.Text),
    # At most one task per key runs.
    sa.Column("exclusive_key", sa.Text),
    sa.Column("lock_tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("crashes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("at_most_once", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("fence", sa.Integer, nullable=False, server_default="0"),
    sa.Column("worker_id", sa.Text),
    sa.Column("expires_at", Time),
    sa.Column("begin_at", Time),
    sa.Column("progress", sa.Double, nullable=False, server_default="0"),
    sa.Column("progress_at", Time),
    sa.Column("message", sa.Text),
    sa.Column("result", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("finished_at", Time),
    one_of("state", TaskState, "ck_tasks_state"),
    one_of("reason", Reason, "ck_tasks_reason"),
    sa.CheckConstraint("(state = 'blocked') = (reason IS NOT NULL)", name="ck_tasks_blocked"),
    sa.CheckConstraint(
        "(state = 'running') = (worker_id IS NOT NULL AND expires_at IS NOT NULL)",
        name="ck_tasks_lease",
    ),
    unfinished_while("ck_tasks_finished_at", TASK_OPEN),
    sa.CheckConstraint("waits >= 0 AND attempt >= 0 AND crashes >= 0", name="ck_tasks_counts"),
    sa.CheckConstraint("due_at IS NULL OR state = 'blocked'", name="ck_tasks_due_at"),
)
on_postgresql(tasks, **{"with": {"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02}})
t = tasks.c
_ready = "state = 'ready'"
#: The order in which tasks are claimed.
partial_index("ix_tasks_ready", t.queue, t.priority, t.fair_tag, t.id, where=_ready)
#: An owner's last fair tag, for the next task's tag.
partial_index("ix_tasks_ready_owner", t.owner_id, t.queue, t.priority, t.fair_tag, where=_ready)
partial_index("ix_tasks_due", t.due_at, where="state = 'blocked' AND due_at IS NOT NULL")
_waiting = "state = 'blocked' AND reason NOT IN ('due', 'backoff')"
partial_index("ix_tasks_blocked", t.reason, t.kind, t.id, where=_waiting)
partial_index("ix_tasks_running", t.worker_id, where="state = 'running'")
sa.Index("ix_tasks_job", t.job_id, t.state, t.id)
partial_index(
    "ix_tasks_document", t.document_id, t.generation, t.state, where=t.document_id.is_not(None)
)
_exclusive = sa.and_(is_state(t.state, TaskState.RUNNING), t.exclusive_key.is_not(None))
partial_index("uq_tasks_exclusive", t.exclusive_key, where=_exclusive, unique=True)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("fence", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("worker_id", sa.Text),
    sa.Column("began_at", Time),
    sa.Column("finished_at", Time, nullable=False),
    sa.Column("duration", sa.Double),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("traceback", sa.Text),
    sa.Column("peak_rss", sa.BigInteger),
    sqlite_with_rowid=False,
)

edges = sa.Table(
    "edges",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("before_job_id", Id),
    sa.Column("before_task_id", Id),
    sa.Column("task_id", Id, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("on_failure", sa.Text, nullable=False, server_default="cancel"),
    sa.Column("satisfied_at", Time),
    sa.CheckConstraint(
        "(before_job_id IS NULL) <> (before_task_id IS NULL)", name="ck_edges_before"
    ),
    sa.CheckConstraint("on_failure IN ('cancel', 'run')", name="ck_edges_on_failure"),
)
_open_edge = edges.c.satisfied_at.is_(None)
for _name, _column in (("job", edges.c.before_job_id), ("task", edges.c.before_task_id)):
    partial_index(f"ix_edges_before_{_name}", _column, where=_open_edge)
sa.Index("ix_edges_task", edges.c.task_id)

steps = sa.Table(
    "steps",
    metadata,
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("result", sa.Text),
    sa.Column("at", Time, nullable=False),
)

submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("owner_id", Id, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("body_hash", sa.Text, nullable=False),
    sa.Column("job_ids", sa.Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
)
sa.Index("ix_submissions_created", submissions.c.created_at)

bands = sa.Table(
    "bands",
    metadata,
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("priority", sa.Integer, primary_key=True),
    sa.Column("claimed_tag", sa.Double, nullable=False),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("pid_start", sa.Text, nullable=False),
    sa.Column("lock_path", sa.Text, nullable=False),
    sa.Column("queues", sa.Text, nullable=False),
    sa.Column("kinds", sa.Text, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("started_at", Time, nullable=False),
    sa.Column("heartbeat_at", Time, nullable=False),
    sa.Column("stopped_at", Time),
    sa.Column("broker", sa.Text),
    sa.Column("alone_since", Time),
    one_of("state", ("running", "draining", "stopped", "dead"), "ck_workers_state"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", Id, primary_key=True),
    # Transaction id on PostgreSQL, where ids may become visible out of order.
    sa.Column("xid", sa.BigInteger),
    sa.Column("at", Time, nullable=False),
    sa.Column("job_id", Id),
    sa.Column("task_id", Id),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("detail", sa.Text),
    # Set if no job, or only a deleted one, tells the tenant.
    sa.Column("tenant", sa.Text),
)
sa.Index("ix_events_job", events.c.job_id, events.c.id)

#: Doorbells sent through a broker and the broker's health, one row per queue.
doorbells = sa.Table(
    "doorbells",
    metadata,
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("broker", sa.Text, nullable=False),
    sa.Column("rung_at", Time),
    sa.Column("looked_at", Time),
    sa.Column("failing_since", Time),
    sa.Column("error", sa.Text),
)

#: The tables of the queue, in order of creation.
ENGINE = tuple(metadata.sorted_tables)
