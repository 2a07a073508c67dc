"""The audit log: changes of a tenant's users and tokens, and refused sign-ins."""

import json
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant, iso
from quire.store.db.dialect import sanitize_text
from quire.store.db.schema.access import audit

#: Maximum length of text that a client may have chosen.
MAX_SUBJECT = 500
a = audit.c


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
