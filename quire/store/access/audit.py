"""The audit log: changes of a tenant's users, tokens and grants, and what was refused."""

import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant, iso
from quire.store.db.dialect import sanitize_text
from quire.store.db.schema.access import audit

#: Maximum length of text that a client may have chosen.
MAX_SUBJECT = 500
#: Most refusals that are recorded within an hour, of a user and of a tenant.
MOST_OF_USER, MOST_OF_TENANT = 30, 300
HOUR = 3_600.0
a = audit.c


class Refusal(NamedTuple):
    """What somebody tried, in vain."""

    tenant: str
    user: str | None
    action: str
    subject: str
    reason: str
    address: str | None


def record(
    conn: sa.Connection,
    tenant: str,
    user: str | None,
    action: str,
    *,
    subject: str | None = None,
    detail: dict[str, Any] | None = None,
    address: str | None = None,
    now: Instant,
) -> None:
    """Append an entry."""
    conn.execute(
        sa.insert(audit).values(
            at=now.wall,
            tenant=tenant,
            user_name=user,
            action=action,
            subject=None if subject is None else sanitize_text(subject)[:MAX_SUBJECT],
            detail=json.dumps(detail) if detail else None,
            address=address,
        )
    )


def has_enough(conn: sa.Connection, refusal: Refusal, *, now: Instant) -> bool:
    """Tell whether as many refusals were recorded within an hour as may be."""
    return _left(conn, refusal, now) <= 0


def record_refusal(conn: sa.Connection, refusal: Refusal, *, now: Instant) -> None:
    """Append an entry, unless there are enough; the last one says that there may have been more."""
    if (left := _left(conn, refusal, now)) <= 0:
        return
    detail = {"reason": sanitize_text(refusal.reason)[:MAX_SUBJECT]}
    if left == 1:
        detail["more"] = "further refusals within the hour are not recorded"
    who = (refusal.tenant, refusal.user, refusal.action)
    record(conn, *who, subject=refusal.subject, detail=detail, address=refusal.address, now=now)


def _left(conn: sa.Connection, refusal: Refusal, now: Instant) -> int:
    recent = sa.select(a.user_name).where(
        a.tenant == refusal.tenant, a.at > now.wall - HOUR, a.action.endswith(".refused")
    )
    users = list(conn.scalars(recent.limit(MOST_OF_TENANT)))
    return min(MOST_OF_TENANT - len(users), MOST_OF_USER - users.count(refusal.user))


def list_entries(
    conn: sa.Connection,
    tenant: str,
    *,
    user: str | None = None,
    action: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """List a tenant's entries, newest first; optionally of a user, an action, or before an id."""
    query = sa.select(audit).where(a.tenant == tenant).order_by(a.id.desc()).limit(limit)
    for column, wanted in ((a.user_name, user), (a.action, action)):
        if wanted is not None:
            query = query.where(column == wanted)
    if before is not None:
        query = query.where(a.id < before)
    return [
        {
            "id": row.id,
            "at": iso(row.at),
            "user": row.user_name,
            "action": row.action,
            "subject": row.subject,
            "detail": json.loads(row.detail) if row.detail else {},
            "address": row.address,
        }
        for row in conn.execute(query)
    ]


def prune(conn: sa.Connection, *, before: float, limit: int = 5000) -> int:
    """Delete entries older than a time; returns how many."""
    old = sa.select(a.id).where(a.at < before).order_by(a.at).limit(limit)
    return conn.execute(sa.delete(audit).where(a.id.in_(old))).rowcount
