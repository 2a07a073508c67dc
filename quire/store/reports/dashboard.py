"""Queries of the dashboard: queued work, recent attempts, page ranges.

Each reads a bounded number of rows along an index, whatever the size of the tables.
"""

from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.states import JOB_ACTIVE, JobState
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import attempts, is_state, jobs, owners, tasks

j, t, d, g = jobs.c, tasks.c, documents.c, generations.c
#: Jobs that are read to report what is queued: per owner, and in total.
FEW_JOBS = 1000
ALL_JOBS = 5000
#: Owners that are read.
MOST_OWNERS = 200
#: Attempts that the charts show.
RUNS = 4000
#: Page ranges that are drawn one by one.
CELLS = 250


class Waiting(NamedTuple):
    """Queued work of one owner and kind; `first` is the job that has waited longest."""

    kind: str
    user: str
    jobs: int
    tasks: int
    first: int
    since: float
    reason: str | None
    is_all: bool


def has_owners(conn: sa.Connection, tenant: str) -> bool:
    """Tell whether a user of the tenant has ever submitted a job."""
    return bool(conn.scalar(sa.select(sa.exists().where(owners.c.tenant == tenant))))


_ACTIVE = is_state(j.state, *JOB_ACTIVE)
_BUSY = (
    sa.select(owners.c.id, owners.c.user_name)
    .where(owners.c.tenant == sa.bindparam("tenant"))
    .where(sa.exists().where(j.owner_id == owners.c.id, _ACTIVE))
    .order_by(owners.c.user_name)
    .limit(MOST_OWNERS)
)
_OLDEST = (
    sa.select(j.id, j.kind, j.created_at, (j.tasks_ready + j.tasks_blocked).label("tasks"))
    .where(j.owner_id == sa.bindparam("owner"), _ACTIVE)
    .order_by(j.id)
    .limit(sa.bindparam("most"))
    .subquery()
)
_waits = _OLDEST.c.tasks > 0
_GROUPED = sa.select(
    _OLDEST.c.kind,
    sa.func.count().filter(_waits).label("jobs"),
    sa.func.sum(_OLDEST.c.tasks).label("tasks"),
    sa.func.min(_OLDEST.c.id).filter(_waits).label("first"),
    sa.func.min(_OLDEST.c.created_at).filter(_waits).label("since"),
    sa.func.count().label("seen"),
).group_by(_OLDEST.c.kind)


_order = sa.case({"ready": 0}, value=t.state, else_=1)
_FIRST_REASON = (
    sa.select(t.reason)
    .where(t.job_id == sa.bindparam("job"), is_state(t.state, "ready", "blocked"))
    .order_by(_order, t.id)
    .limit(1)
)


def waiting(conn: sa.Connection, tenant: str, *, explained: int) -> list[Waiting]:
    """List queued work by owner and kind, oldest first; the first `explained` with the reason.

    The number of jobs read is bounded in total, however many owners there are.
    """
    groups: list[Waiting] = []
    busy = conn.execute(_BUSY, {"tenant": tenant}).all()
    left = ALL_JOBS
    for at, (owner_id, user) in enumerate(busy):
        most = min(max(left // (len(busy) - at), 1), FEW_JOBS)
        rows = conn.execute(_GROUPED, {"owner": owner_id, "most": most}).all()
        seen = sum(row.seen for row in rows)
        left -= seen
        groups += [
            Waiting(row.kind, user, row.jobs, int(row.tasks), row.first, row.since, None,
                    seen < most)
            for row in rows if row.jobs
        ]  # fmt: skip
    groups.sort(key=lambda one: (one.since, one.first))
    for at, one in enumerate(groups[:explained]):
        # The first waiting task of a job tells why it waits; None if one is ready.
        groups[at] = one._replace(reason=conn.scalar(_FIRST_REASON, {"job": one.first}))
    return groups


def active(conn: sa.Connection, tenant: str, *, most: int = FEW_JOBS) -> int:
    """Count a tenant's running jobs, up to `most`."""
    own = sa.select(owners.c.id).where(owners.c.tenant == tenant)
    some = (
        sa.select(j.id)
        # Repeats the condition of the partial index, which SQLite does not infer.
        .where(is_state(j.state, JobState.RUNNING), sa.text("jobs.state <> 'completed'"))
        .where(j.owner_id.in_(own))
        .limit(most)
        .subquery()
    )
    return conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0


class Run(NamedTuple):
    """One finished attempt."""

    finished_at: float
    duration: float | None
    outcome: str
    cost: float


def recent_runs(
    conn: sa.Connection, tenant: str, *, since: float
) -> tuple[list[Run], float | None]:
    """List a tenant's attempts among the latest of all; and since when none is missing, if any."""
    a = attempts.c
    latest = (
        sa.select(a.task_id, a.finished_at, a.duration, a.outcome)
        .order_by(a.task_id.desc(), a.fence.desc())
        .limit(RUNS)
        .subquery()
    )
    count, first = conn.execute(sa.select(sa.func.count(), sa.func.min(latest.c.finished_at))).one()
    rows = conn.execute(
        sa.select(latest.c.finished_at, latest.c.duration, latest.c.outcome, t.cost)
        .join(tasks, t.id == latest.c.task_id)
        .join(owners, owners.c.id == t.owner_id)
        .where(owners.c.tenant == tenant, latest.c.finished_at >= since)
    )
    return [Run(*row) for row in rows], first if count == RUNS else None


def ranges_of(
    conn: sa.Connection, tenant: str, *, job_id: int | None = None, document_id: int | None = None
) -> list[Any]:
    """List the page ranges of a job, or of a document's newest generation.

    They are in the order of documents and pages, and one more than are shown.
    """
    wanted = [t.document_id == document_id, t.generation == d.generation]
    if job_id is not None:
        wanted = [t.job_id == job_id]
    query = (
        sa.select(t.document_id, t.from_page, t.to_page, t.state, t.progress, d.name, t.kind)
        .join(documents, d.id == t.document_id)
        .where(*wanted, d.tenant == tenant)
        .where(t.from_page.is_not(None), t.to_page.is_not(None), t.state != "skipped")
        .order_by(t.document_id, t.from_page, t.id)
    )
    return list(conn.execute(query.limit(CELLS + 1)))
