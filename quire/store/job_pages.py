"""Finds the jobs of one page of a list, within milliseconds among a million.

A page is read backwards along one index, so that nothing is sorted or counted. Which index that
is depends on what was asked: a planner without statistics picks one that has to be sorted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.model.states import JobState
from quire.store.tables import is_state, jobs, owners

j = jobs.c
#: A tenant with no more jobs than this is read whole: others' jobs are not even looked at.
FEW = 2_000
#: Owners whose jobs are merged; of a tenant with more, the table is read from its end.
MOST_OWNERS = 32
#: Columns that have an index of their own, with the id behind them.
INDEXED = ("kind", "platform", "account")


def latest(
    conn: sa.Connection,
    tenant: str,
    filters: Mapping[str, Any],
    *,
    limit: int,
    cursor: int | None,
) -> list[int]:
    """Return the ids of a tenant's latest jobs that match, below the cursor, latest first."""
    given = {name: value for name, value in filters.items() if value is not None}
    whose = _owners(conn, tenant, given.pop("user", None))
    if not whose:
        return []
    states: list[str] = list(given.pop("states", ()))
    narrow = [j[name] == value for name, value in given.items()]
    if cursor is not None:
        narrow.append(j.id < cursor)
    branches = _branches(conn, whose, states, any(name in given for name in INDEXED))
    found: set[int] = set()
    for branch in branches:
        query = sa.select(j.id).where(*branch, *narrow).order_by(j.id.desc()).limit(limit)
        found.update(conn.scalars(query))
    return sorted(found, reverse=True)[:limit]


def _owners(conn: sa.Connection, tenant: str, user: str | None) -> list[int]:
    query = sa.select(owners.c.id).where(owners.c.tenant == tenant)
    return list(conn.scalars(query if user is None else query.where(owners.c.user_name == user)))


def _branches(
    conn: sa.Connection, whose: Sequence[int], states: Sequence[str], is_indexed: bool
) -> list[list[sa.ColumnElement[bool]]]:
    """Say what each query looks for; each reads one index in the order of ids."""
    in_state = [is_state(j.state, *states)] if states else []
    if _are_few(conn, whose):
        return [[j.owner_id.in_(whose), *in_state]]
    # The plus keeps planners from the owners' index, whose rows they would have to sort.
    mine = sa.literal_column("+jobs.owner_id", sa.BigInteger).in_(whose)
    if states and JobState.COMPLETED not in states:
        unlike: sa.ColumnElement[bool] = sa.text("jobs.state <> 'completed'")  # type: ignore[assignment]
        # Said as the partial index says it: SQLite concludes nothing.
        return [[mine, is_state(j.state, state), unlike] for state in states]
    if is_indexed or len(whose) > MOST_OWNERS:
        return [[mine, *in_state]]
    return [[j.owner_id == owner_id, *in_state] for owner_id in whose]


def _are_few(conn: sa.Connection, whose: Sequence[int]) -> bool:
    if len(whose) > MOST_OWNERS:
        return False
    some = sa.select(j.id).where(j.owner_id.in_(whose)).limit(FEW + 1).subquery()
    return (conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0) <= FEW
