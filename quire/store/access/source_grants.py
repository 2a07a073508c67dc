"""Source grants: what the users of a tenant may ingest over the API beside uploads and the web."""

from typing import Any

import sqlalchemy as sa

from quire.clock import Instant, iso
from quire.store.db.schema.access import source_grants
from quire.store.db.schema.queue import jobs, owners

g = source_grants.c
_OF_TENANT = sa.select(g.place).where(g.tenant == sa.bindparam("tenant")).order_by(g.place)
_OF_JOB = (
    sa.select(g.place)
    .join(owners, owners.c.tenant == g.tenant)
    .join(jobs, jobs.c.owner_id == owners.c.id)
    .where(jobs.c.id == sa.bindparam("job_id"))
    .order_by(g.place)
)


def add(conn: sa.Connection, tenant: str, place: str, user: str, *, now: Instant) -> bool:
    """Add a grant; returns False if it is there already."""
    found = conn.scalar(sa.select(g.id).where(g.tenant == tenant, g.place == place))
    if found is not None:
        return False
    row = {"tenant": tenant, "place": place, "created_by": user, "created_at": now.wall}
    conn.execute(sa.insert(source_grants).values(row))
    return True


def remove(conn: sa.Connection, tenant: str, place: str) -> bool:
    """Remove a grant; returns False if there is none."""
    gone = sa.delete(source_grants).where(g.tenant == tenant, g.place == place)
    return conn.execute(gone).rowcount > 0


def of_tenant(conn: sa.Connection, tenant: str) -> list[str]:
    """List the places that a tenant may use."""
    return list(conn.scalars(_OF_TENANT, {"tenant": tenant}))


def of_job(conn: sa.Connection, job_id: int) -> list[str]:
    """List the places that the tenant of a job may use."""
    return list(conn.scalars(_OF_JOB, {"job_id": job_id}))


def list_all(conn: sa.Connection, tenant: str | None) -> list[dict[str, Any]]:
    """List the grants of a tenant, or of all, with who made them."""
    query = sa.select(source_grants).order_by(g.tenant, g.place)
    rows = conn.execute(query if tenant is None else query.where(g.tenant == tenant))
    return [
        {
            "tenant": row.tenant,
            "place": row.place,
            "created_by": row.created_by,
            "created_at": iso(row.created_at),
        }
        for row in rows
    ]
