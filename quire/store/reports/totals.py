"""Counts of all of a tenant's jobs and tasks by state, exact, in one walk over the jobs."""

from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.states import JobState, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, owners

j = jobs.c
#: A tenant with no more jobs than this is counted along the owners' index; with more, it is
#: cheaper to read the table in its own order, once.
FEW = 20_000
_MINE = sa.select(owners.c.id).where(owners.c.tenant == sa.bindparam("tenant"))


class Totals(NamedTuple):
    """How many jobs and tasks are in which state; every state is there."""

    jobs: dict[str, int]
    tasks: dict[str, int]


def of(conn: sa.Connection, tenant: str) -> Totals:
    """Count a tenant's jobs and tasks by state."""
    given = {"tenant": tenant}
    some = sa.select(j.id).where(j.owner_id.in_(_MINE)).limit(FEW + 1).subquery()
    is_small = (conn.scalar(sa.select(sa.func.count()).select_from(some), given) or 0) <= FEW
    query = dialect.cached(conn, ("totals", is_small), lambda: _counting(is_small))
    row = [int(n or 0) for n in conn.execute(query, given).one()]
    return Totals(
        dict(zip((state.value for state in JobState), row, strict=False)),
        dict(zip((state.value for state in TaskState), row[len(JobState) :], strict=True)),
    )


def _counting(is_small: bool) -> sa.Select[Any]:
    """Count without groups: to group rows that are in no order, a database sorts them first."""
    counted: list[sa.ColumnElement[Any]] = [
        *(sa.func.count().filter(is_state(j.state, state)) for state in JobState),
        *(sa.func.sum(j[f"tasks_{state.value}"]) for state in TaskState),
    ]
    whose = j.owner_id if is_small else sa.literal_column("+jobs.owner_id", sa.BigInteger)
    return sa.select(*counted).select_from(jobs).where(whose.in_(_MINE))
