"""Counters of a tenant: jobs and tasks by state, runs, pages and bytes. Nothing here writes.

Attempts, tasks and generations are deleted with their jobs, so a count may fall. The metrics
endpoint turns them into monotonic counters by adding up the increases.
"""

from typing import Any

import sqlalchemy as sa

from quire.model.states import TaskState
from quire.store.db import dialect
from quire.store.db.schema.documents import contents, documents, generations
from quire.store.db.schema.queue import attempts, is_state, jobs, owners, tasks

j, t, a, g, d = jobs.c, tasks.c, attempts.c, generations.c, documents.c
#: Keys of the reuse statistics: pages read as text, by OCR, and vectors.
REUSE_KEYS = ("pages", "ocr", "vectors")


def tasks_by_kind(conn: sa.Connection, tenant: str) -> dict[tuple[str, str], int]:
    """Count tasks by kind and state."""
    query = sa.select(t.kind, t.state, sa.func.count()).group_by(t.kind, t.state)
    return {(kind, state): n for kind, state, n in conn.execute(_of(conn, query, tenant))}


def waiting_since(conn: sa.Connection, tenant: str) -> dict[str, float]:
    """Return since when the oldest ready task of each kind has been ready."""
    query = (
        sa.select(t.kind, sa.func.min(t.ready_at))
        .where(is_state(t.state, TaskState.READY), t.ready_at.is_not(None))
        .group_by(t.kind)
    )
    return dict(conn.execute(_of(conn, query, tenant)).all())


def runs(conn: sa.Connection, tenant: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Count attempts by kind and outcome, with their total duration in seconds."""
    query = (
        sa.select(t.kind, a.outcome, sa.func.count(), sa.func.sum(a.duration))
        .select_from(attempts)
        .join(tasks, t.id == a.task_id)
        .group_by(t.kind, a.outcome)
    )
    found = conn.execute(_of(conn, query, tenant))
    return {(kind, outcome): (n, float(spent or 0.0)) for kind, outcome, n, spent in found}


def work(conn: sa.Connection, tenant: str) -> dict[str, int]:
    """Sum the reuse statistics of all generations: computed and reused."""
    keys = [f"{name}_{how}" for name in REUSE_KEYS for how in ("made", "reused")]
    sums = [sa.func.sum(dialect.json_number(conn, g.reused, key)) for key in keys]
    row = conn.execute(sa.select(*sums).where(g.tenant == tenant)).one()
    return {key: int(value or 0) for key, value in zip(keys, row, strict=True)}


def bytes_kept(conn: sa.Connection, tenant: str) -> int:
    """Return the total size of all stored files."""
    query = sa.select(sa.func.sum(contents.c.size)).where(contents.c.tenant == tenant)
    return int(conn.scalar(query) or 0)


def _of(conn: sa.Connection, query: sa.Select[Any], tenant: str) -> sa.Select[Any]:
    """Restrict to a tenant's tasks; unnecessary if it is the only tenant."""
    all_tenants = set(conn.scalars(sa.select(owners.c.tenant).distinct()))
    if all_tenants <= {tenant}:
        return query
    own = sa.select(owners.c.id).where(owners.c.tenant == tenant)
    return query.where(t.owner_id.in_(own))
