"""Owners: the users of a tenant, each with a weight in the fair order, a policy and a cap."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.model.records import Owner
from quire.store.db import dialect
from quire.store.db.schema.access import users
from quire.store.db.schema.queue import jobs, owners

#: The tenant of deleted jobs: nobody acts for it.
NOBODY = "(deleted)"
_OWNER = sa.select(owners).where(
    owners.c.tenant == sa.bindparam("tenant"), owners.c.user_name == sa.bindparam("user")
)
#: A deleted job, whose rows are still to be collected.
IS_DELETED = jobs.c.owner_id.in_(sa.select(owners.c.id).where(owners.c.tenant == NOBODY))
#: The first and the last tenant by name: each is one look into an index.
_FIRST_AND_LAST = sa.select(
    *(
        sa.select(pick(column)).where(column != NOBODY).scalar_subquery()
        for column in (owners.c.tenant, users.c.tenant)
        for pick in (sa.func.min, sa.func.max)
    )
)
_LOCKED = _OWNER.with_for_update(key_share=True)


def lock_or_create(conn: sa.Connection, tenant: str, user: str) -> Owner:
    """Return the owner with its row locked, created if missing; owners are locked first."""
    whose = {"tenant": tenant, "user": user}
    row = conn.execute(_LOCKED, whose).one_or_none()
    if row is None:
        dialect.upsert(
            conn, owners, {"tenant": tenant, "user_name": user}, ["tenant", "user_name"], []
        )
        row = conn.execute(_LOCKED, whose).one()
    return Owner(*row)


def find(conn: sa.Connection, tenant: str, user: str) -> Owner | None:
    """Return the owner, or None."""
    row = conn.execute(_OWNER, {"tenant": tenant, "user": user}).one_or_none()
    return Owner(*row) if row else None


_BY_ID = sa.select(owners).where(owners.c.id == sa.bindparam("owner"))


def by_id(conn: sa.Connection, owner_id: int) -> Owner:
    """Return an owner."""
    return Owner(*conn.execute(_BY_ID, {"owner": owner_id}).one())


def tenants_of(conn: sa.Connection, owner_ids: Sequence[int]) -> dict[int, str]:
    """Return the tenants of owners, by their ids."""
    rows = conn.execute(_tenants(conn), {"ids": dialect.encode_ids(conn, owner_ids)})
    return {row.id: row.tenant for row in rows}


@dialect.statement
def _tenants(conn: sa.Connection) -> sa.Select[Any]:
    return sa.select(owners.c.id, owners.c.tenant).where(dialect.id_in(conn, owners.c.id, "ids"))


def has_several_tenants(conn: sa.Connection) -> bool:
    """Tell whether there are users or jobs of more than one tenant."""
    return len(set(conn.execute(_FIRST_AND_LAST).one()) - {None}) > 1


def list_owners(conn: sa.Connection, tenant: str) -> list[Owner]:
    """List the owners of a tenant by name."""
    rows = conn.execute(
        sa.select(owners).where(owners.c.tenant == tenant).order_by(owners.c.user_name)
    )
    return [Owner(*row) for row in rows]


def nobody(conn: sa.Connection) -> int:
    """Return the owner of deleted jobs, whose rows are still to be collected."""
    if (found := find(conn, NOBODY, "")) is None:
        values = {"tenant": NOBODY, "user_name": ""}
        dialect.upsert(conn, owners, values, ["tenant", "user_name"], [])
        found = find(conn, NOBODY, "")
        assert found is not None  # noqa: S101
    return found.id


def change(conn: sa.Connection, owner_id: int, **values: object) -> None:
    """Set the weight, policy or cap of an owner."""
    conn.execute(sa.update(owners).where(owners.c.id == owner_id).values(**values))


def of_jobs(conn: sa.Connection, job_ids: Sequence[int], *, lock: bool = False) -> list[Owner]:
    """Return the owners of jobs; `lock` for a decision by policy."""
    query = (
        sa.select(owners)
        .where(owners.c.id.in_(sa.select(jobs.c.owner_id).where(jobs.c.id.in_(list(job_ids)))))
        .order_by(owners.c.id)
    )
    find = conn.execute(query.with_for_update(key_share=True, of=owners) if lock else query)
    return [Owner(*row) for row in find]


def has_job(
    tenant: str | sa.BindParameter[str], job_id: int | sa.BindParameter[int]
) -> sa.ColumnElement[bool]:
    """Return the condition that a job belongs to the tenant."""
    mine, whose = jobs.alias("mine"), owners.alias("whose")
    return sa.exists().where(
        mine.c.id == job_id, mine.c.owner_id == whose.c.id, whose.c.tenant == tenant
    )


def jobs_of_tenant(conn: sa.Connection, tenant: str, job_ids: Sequence[int]) -> list[int]:
    """Return which of the ids are jobs of the tenant."""
    ids = [i for i in job_ids if 0 < i < 2**63]
    return list(
        conn.scalars(
            sa.select(jobs.c.id)
            .join(owners, owners.c.id == jobs.c.owner_id)
            .where(jobs.c.id.in_(ids), owners.c.tenant == tenant)
        )
    )
