"""Limits of tenants, and what they use of them, counted from the rows themselves.

A limit is checked in the transaction that adds to what it limits. Tenants without limits cost one
probe of a primary key. Transactions that run at the same time may pass a limit together, each by
what it adds; the next one is refused.
"""

from typing import Any

import sqlalchemy as sa

from quire.errors import TooLarge, TooMany
from quire.model.states import JOB_ACTIVE
from quire.store.db import dialect
from quire.store.db.schema.access import tenants
from quire.store.db.schema.documents import contents, documents
from quire.store.db.schema.queue import is_state, jobs, owners

DAY = 86_400
#: What can be limited, and how a sentence names it. The columns are named max_*.
LIMITS = {
    "bytes": "bytes of stored files",
    "documents": "documents",
    "pages": "pages",
    "jobs": "unfinished jobs",
    "requests": "requests a day",
}
_MINE = sa.bindparam("tenant", type_=sa.Text)


@dialect.statement
def _limits(_: sa.Connection) -> sa.Select[Any]:
    return sa.select(tenants).where(tenants.c.tenant == _MINE)


def _total(what: str) -> sa.Select[Any]:
    """Select how much a tenant uses."""
    if what == "bytes":
        return sa.select(sa.func.coalesce(sa.func.sum(contents.c.size), 0)).where(
            contents.c.tenant == _MINE
        )
    if what == "pages":
        return sa.select(sa.func.coalesce(sa.func.sum(documents.c.pages), 0)).where(
            documents.c.tenant == _MINE
        )
    if what == "documents":
        return sa.select(sa.func.count()).where(documents.c.tenant == _MINE)
    return (
        sa.select(sa.func.count())
        .select_from(jobs.join(owners, owners.c.id == jobs.c.owner_id))
        .where(owners.c.tenant == _MINE, is_state(jobs.c.state, *sorted(JOB_ACTIVE)))
    )


def require(conn: sa.Connection, tenant: str, what: str, more: int = 0, *, added: int = 0) -> bool:
    """Refuse what would add `more` to what a tenant uses, or has just `added` too much.

    Returns whether the tenant has such a limit.
    """
    row = conn.execute(_limits(conn), {"tenant": tenant}).one_or_none()
    most = None if row is None else getattr(row, f"max_{what}")
    if most is None:
        return False
    used = int(conn.execute(_total(what), {"tenant": tenant}).scalar_one())
    if used + more > most:
        raise _exceeded(tenant, what, most, used - added)
    return True


def require_room(conn: sa.Connection, tenant: str, what: str) -> None:
    """Refuse a tenant that has used up a limit."""
    require(conn, tenant, what, 1)


def change(conn: sa.Connection, tenant: str, limits: dict[str, int | None]) -> None:
    """Set limits of a tenant by their columns; those left out do not change."""
    values = {"tenant": tenant, **limits}
    dialect.upsert(conn, tenants, values, ["tenant"], list(limits))


def listed(conn: sa.Connection, day: int) -> list[dict[str, Any]]:
    """List every tenant with its limits and what it uses."""
    known = sa.union(
        *(sa.select(column) for column in (tenants.c.tenant, owners.c.tenant, documents.c.tenant))
    )
    names = sorted(conn.scalars(known))
    return [described(conn, name, day) for name in names]


def described(conn: sa.Connection, tenant: str, day: int) -> dict[str, Any]:
    """Describe the limits of a tenant and what it uses."""
    row = conn.execute(_limits(conn), {"tenant": tenant}).one_or_none()
    given = {"tenant": tenant}
    used = {
        what: int(conn.execute(_total(what), given).scalar_one())
        for what in LIMITS
        if what != "requests"
    }
    # Only the requests of tenants with a limit of them are counted.
    used["requests"] = row.requests if row is not None and row.day == day else 0
    return {
        "name": tenant,
        "limits": {what: None if row is None else getattr(row, f"max_{what}") for what in LIMITS},
        "used": used,
    }


def max_requests(conn: sa.Connection, tenant: str) -> int | None:
    """Return the limit of a tenant's requests a day."""
    row = conn.execute(_limits(conn), {"tenant": tenant}).one_or_none()
    return None if row is None else row.max_requests


def count_requests(conn: sa.Connection, tenant: str, count: int, day: int) -> int:
    """Add requests of a day to those of a tenant with limits; returns their number."""
    t = tenants.c
    before = sa.case((t.day == day, t.requests), else_=0)
    changed = (
        sa.update(tenants)
        .where(t.tenant == tenant)
        .values(day=day, requests=before + count)
        .returning(t.requests)
    )
    return conn.execute(changed).scalar_one_or_none() or 0


def exceeded_requests(tenant: str, most: int, used: int, seconds_left: float) -> TooMany:
    """Return the error of a tenant that has sent its requests of the day."""
    error = _exceeded(tenant, "requests", most, used)
    assert isinstance(error, TooMany)  # noqa: S101
    error.retry_after = seconds_left
    return error


def _exceeded(tenant: str, what: str, most: int, used: int) -> TooMany | TooLarge:
    told = (
        f"tenant {tenant}: its limit is {most:,} {LIMITS[what]}, and {used:,} are used. Nothing "
        "was changed. "
    )
    if what == "requests":
        return TooMany(f"{told}Wait until midnight (UTC), or ask the operator for more.")
    if what == "jobs":
        return TooMany(
            f"{told}Wait until some have ended, or ask the operator for more.", retry_after=60
        )
    return TooLarge(f"{told}Delete documents, or ask the operator for more.")
