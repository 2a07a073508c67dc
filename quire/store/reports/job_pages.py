"""Finds the jobs of one page of a list, within milliseconds among a million.

A page is read backwards along one index, so that nothing is sorted or counted. Which index that
is depends on what was asked: a planner without statistics picks one that has to be sorted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.states import JobState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, jobs, owners

j = jobs.c
#: A tenant with no more jobs than this is read whole: others' jobs are not even looked at.
FEW = 2_000
#: Owners whose jobs are merged; of a tenant with more, the table is read from its end.
MOST_OWNERS = 32
#: Columns that have an index of their own, with the id behind them.
INDEXED = ("kind", "platform", "account")
_OWNERS = sa.select(owners.c.id).where(owners.c.tenant == sa.bindparam("tenant"))
_OWNER = _OWNERS.where(owners.c.user_name == sa.bindparam("user"))


class Branch(NamedTuple):
    """What one query looks for: along which index, and what else is compared."""

    way: str  # "few", "owner", "state", or "" for whatever the other conditions have
    names: tuple[str, ...]
    state: str = ""  # in the statement's text, where the way is a state
    has_states: bool = False
    has_cursor: bool = False


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
    plain = Branch("", tuple(sorted(given)), "", bool(states), cursor is not None)
    given.update(whose=dialect.encode_ids(conn, whose), states=states, cursor=cursor, most=limit)
    found: set[int] = set()
    for branch, owner_id in _branches(conn, plain, whose, states):
        query = _query(conn, branch)
        found.update(conn.scalars(query, {**given, "owner": owner_id}))
    return sorted(found, reverse=True)[:limit]


def _owners(conn: sa.Connection, tenant: str, user: str | None) -> list[int]:
    query = _OWNERS if user is None else _OWNER
    return list(conn.scalars(query, {"tenant": tenant, "user": user}))


def _branches(
    conn: sa.Connection, plain: Branch, whose: Sequence[int], states: Sequence[str]
) -> list[tuple[Branch, int | None]]:
    """Say what each query looks for; each reads one index in the order of ids."""
    if _are_few(conn, whose):
        return [(plain._replace(way="few"), None)]
    if states and JobState.COMPLETED not in states:
        each = plain._replace(way="state", has_states=False)
        return [(each._replace(state=state), None) for state in states]
    if len(whose) > MOST_OWNERS or any(name in INDEXED for name in plain.names):
        return [(plain, None)]
    return [(plain._replace(way="owner"), owner_id) for owner_id in whose]


def _query(conn: sa.Connection, branch: Branch) -> sa.Select[Any]:
    return dialect.cached(conn, branch, lambda: _built(conn, branch))


def _built(conn: sa.Connection, branch: Branch) -> sa.Select[Any]:
    found: list[sa.ColumnElement[bool]] = [_whose(conn, branch.way)]
    if branch.state:
        # Said as the partial index says it: SQLite concludes nothing.
        unlike: sa.ColumnElement[bool] = sa.text("jobs.state <> 'completed'")  # type: ignore[assignment]
        found += [is_state(j.state, branch.state), unlike]
    if branch.has_states:
        found.append(j.state.in_(sa.bindparam("states", expanding=True)))
    found += [j[name] == sa.bindparam(name) for name in branch.names]
    if branch.has_cursor:
        found.append(j.id < sa.bindparam("cursor"))
    return sa.select(j.id).where(*found).order_by(j.id.desc()).limit(sa.bindparam("most"))


def _whose(conn: sa.Connection, way: str) -> sa.ColumnElement[bool]:
    if way == "owner":
        return j.owner_id == sa.bindparam("owner")
    if way == "few":
        return dialect.id_in(conn, j.owner_id, "whose")
    # The plus keeps planners from the owners' index, whose rows they would have to sort.
    return dialect.id_in(conn, sa.literal_column("+jobs.owner_id", sa.BigInteger), "whose")


def _are_few(conn: sa.Connection, whose: Sequence[int]) -> bool:
    if len(whose) > MOST_OWNERS:
        return False
    query = dialect.cached(conn, "are few", lambda: _counting(conn))
    given = {"whose": dialect.encode_ids(conn, whose), "most": FEW + 1}
    return (conn.scalar(query, given) or 0) <= FEW


def _counting(conn: sa.Connection) -> sa.Select[Any]:
    mine = dialect.id_in(conn, j.owner_id, "whose")
    some = sa.select(j.id).where(mine).limit(sa.bindparam("most")).subquery()
    return sa.select(sa.func.count()).select_from(some)
