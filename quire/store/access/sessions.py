"""Dashboard sessions and one-time sign-in links, both looked up by the hash of their secret."""

from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant, iso
from quire.model.access import Role
from quire.store.access.users import TOUCH_SECONDS, role_of
from quire.store.db.schema.access import links, sessions, users

u, s, k = users.c, sessions.c, links.c


class Session(NamedTuple):
    """A session with its user."""

    id: int
    tenant: str
    user: str
    role: Role
    csrf: str
    expires_at: float
    disabled_at: float | None
    last_seen_at: float


class Link(NamedTuple):
    """A sign-in link with its user."""

    user_id: int
    tenant: str
    user: str
    expires_at: float
    used_at: float | None
    disabled_at: float | None


def add_link(
    conn: sa.Connection, user_id: int, sha256: str, *, expires_at: float, now: Instant
) -> None:
    """Store a one-time sign-in link."""
    values = {"user_id": user_id, "sha256": sha256, "created_at": now.wall}
    conn.execute(sa.insert(links).values(**values, expires_at=expires_at))


def find_link(conn: sa.Connection, sha256: str) -> Link | None:
    """Return the link with this hash, of any tenant, without using it."""
    row = conn.execute(
        sa.select(k.user_id, u.tenant, u.name.label("user"), k.expires_at, k.used_at, u.disabled_at)
        .join(users, u.id == k.user_id)
        .where(k.sha256 == sha256)
    ).one_or_none()
    return None if row is None else Link(*row)


def use_link(conn: sa.Connection, sha256: str, *, now: Instant) -> int | None:
    """Mark a link as used; returns its user's id, or None if it was used or has expired."""
    user_id: int | None = conn.scalar(
        sa.update(links)
        .where(k.sha256 == sha256, k.used_at.is_(None), k.expires_at > now.wall)
        .values(used_at=now.wall)
        .returning(k.user_id)
    )
    return user_id


def lock_enabled(conn: sa.Connection, user_id: int) -> bool:
    """Lock a user's row and tell whether the user is enabled."""
    query = sa.select(u.disabled_at).where(u.id == user_id).with_for_update()
    return conn.execute(query).scalar_one() is None


def begin(
    conn: sa.Connection,
    user_id: int,
    sha256: str,
    csrf: str,
    *,
    expires_at: float,
    address: str | None,
    now: Instant,
) -> None:
    """Store a new session."""
    conn.execute(
        sa.insert(sessions).values(
            user_id=user_id,
            sha256=sha256,
            csrf=csrf,
            created_at=now.wall,
            expires_at=expires_at,
            last_seen_at=now.wall,
            address=address,
        )
    )


_SESSION = (
    sa.select(
        s.id, u.tenant, u.name.label("user"), u.role, u.operates, s.csrf, s.expires_at,
        u.disabled_at, s.last_seen_at,
    )
    .join(users, u.id == s.user_id)
    .where(s.sha256 == sa.bindparam("sha256"))
)  # fmt: skip


def find_session(conn: sa.Connection, sha256: str) -> Session | None:
    """Return the session with this hash, of any tenant."""
    row = conn.execute(_SESSION, {"sha256": sha256}).one_or_none()
    if row is None:
        return None
    values = {name: row._mapping[name] for name in Session._fields}
    return Session(**{**values, "role": role_of(row)})


def touch(conn: sa.Connection, session_id: int, *, address: str | None, now: Instant) -> None:
    """Update when and from where a session was last seen, at most once a minute."""
    old = s.last_seen_at <= now.wall - TOUCH_SECONDS
    conn.execute(
        sa.update(sessions)
        .where(s.id == session_id, old)
        .values(last_seen_at=now.wall, address=address)
    )


def end(conn: sa.Connection, sha256: str) -> bool:
    """Delete a session; returns whether it existed."""
    return conn.execute(sa.delete(sessions).where(s.sha256 == sha256)).rowcount == 1


def listed(
    conn: sa.Connection,
    tenant: str,
    *,
    user: str | None = None,
    session_id: int | None = None,
    csrf: str | None = None,
    now: Instant,
) -> list[dict[str, Any]]:
    """List the sessions of a tenant, or of one user, that have not ended; latest first.

    The current one is that of this CSRF token.
    """
    query = (
        sa.select(
            s.id,
            u.name.label("user"),
            s.address,
            s.created_at,
            s.last_seen_at,
            s.expires_at,
            (s.csrf == (csrf or "")).label("current"),
        )
        .join(users, u.id == s.user_id)
        .where(u.tenant == tenant, s.expires_at > now.wall, u.disabled_at.is_(None))
        .order_by(s.id.desc())
    )
    if user is not None:
        query = query.where(u.name == user)
    if session_id is not None:
        query = query.where(s.id == session_id)
    times = ("created_at", "last_seen_at", "expires_at")
    return [
        {
            **row._mapping,
            "current": bool(row.current),
            **{name: iso(row._mapping[name]) for name in times},
        }
        for row in conn.execute(query)
    ]


def end_by_id(conn: sa.Connection, session_id: int) -> bool:
    """Delete a session by its id; returns whether it existed."""
    return conn.execute(sa.delete(sessions).where(s.id == session_id)).rowcount == 1


def end_others(conn: sa.Connection, tenant: str, user: str, csrf: str) -> int:
    """Delete the sessions of a user but that of this CSRF token; returns how many."""
    own = sa.select(u.id).where(u.tenant == tenant, u.name == user)
    others = sa.delete(sessions).where(s.user_id.in_(own), s.csrf != csrf)
    return conn.execute(others).rowcount


def prune(conn: sa.Connection, *, before: float, limit: int = 5000) -> dict[str, int]:
    """Delete sessions and links that expired before a time; returns how many, by table."""
    gone: dict[str, Any] = {}
    for table in (sessions, links):
        old = sa.select(table.c.id).where(table.c.expires_at < before).limit(limit)
        gone[table.name] = conn.execute(sa.delete(table).where(table.c.id.in_(old))).rowcount
    return gone
