"""Authentication by token, by session, and by one-time sign-in link."""

import secrets
from typing import Any, NamedTuple

from quire.clock import Instant, iso
from quire.control import access as verbs
from quire.control.access import digest
from quire.control.caller import Caller
from quire.control.refusals import noted
from quire.errors import Conflict, DatabaseUnavailable, NotSignedIn
from quire.model.access import MAY, Scope, Viewer
from quire.store import Connection
from quire.store.access import audit, sessions, users
from quire.store.db.engine import Database

LINK_SECONDS = 900.0
DAY = 86_400.0
AGAIN = "Ask for a link with `quire user link` on the machine that runs Quire."
FRESH = "Make one with `quire token create`, or in the dashboard."


class Entry(NamedTuple):
    """A new session: the cookie's value, its expiry and its user."""

    cookie: str
    expires_at: float
    viewer: Viewer


@noted("link.create")
def sign_in_link(caller: Caller, user: str) -> dict[str, Any]:
    """Create a link that signs a user in once, within 15 minutes."""
    secret = secrets.token_urlsafe(32)
    if user == caller.user:
        verbs.ensure_admin(caller)

    def act(conn: Connection, now: Instant) -> dict[str, Any]:
        found = verbs.locked_user(conn, caller, user)
        if found.disabled_at is not None:
            raise Conflict(f"user {user}: is disabled. No link was created.")
        verbs.check_rank(caller, found)
        until = now.wall + LINK_SECONDS
        sessions.add_link(conn, found.id, digest(secret), expires_at=until, now=now)
        verbs.note(conn, caller, "link.create", user, None, now)
        return {"user": user, "link": secret, "expires_at": iso(until)}

    return caller.db.write(act)


def first_start(caller: Caller) -> str | None:
    """Return a sign-in link as long as nobody of the tenant has ever signed in.

    Where the tenant has no user yet, the caller's user becomes its admin. Where nobody is an
    instance admin, the admins of the tenant become it.
    """
    verbs.ensure_admin(caller)
    verbs.ensure_instance_admin(caller)
    with caller.db.read() as conn:
        if users.has_users(conn, caller.tenant, signed_in=True):
            return None
        found = users.find_user(conn, caller.tenant, caller.user)
    if found is None or found.disabled_at is not None:
        return None
    secret: str = sign_in_link(caller, caller.user)["link"]
    return secret


def user_of_link(db: Database, secret: str) -> str:
    """Return the user of a link without using it up, or raise NotSignedIn."""
    with db.read() as conn:
        now = db.now(conn)
        found = sessions.find_link(conn, digest(secret))
    if reason := _refused_link(found, now):
        raise NotSignedIn(f"sign-in link: {reason}. {AGAIN}")
    assert found is not None  # noqa: S101
    return found.user


def sign_in(
    db: Database,
    secret: str,
    *,
    days: float,
    tenant: str,
    address: str | None = None,
    is_noted: bool = True,
) -> Entry:
    """Use up a link and start a session; a refusal is logged in the audit if `is_noted`.

    `tenant` gets the audit of a link that nobody knows.
    """
    cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)

    def act(conn: Connection, now: Instant) -> Entry | str:
        found = sessions.find_link(conn, digest(secret))
        used = sessions.use_link(conn, digest(secret), now=now) if found else None
        if found is None or used is None or not sessions.lock_enabled(conn, used):
            reason = _refused_link(found, now) or "was used already"
            if is_noted:
                _refuse(conn, now, found or tenant, "link", reason, address)
            return reason
        return begin(
            conn, used, found.tenant, found.user, cookie, csrf,
            until=now.wall + days * DAY, address=address, by="link", now=now,
        )  # fmt: skip

    # Returned, not raised, so that the audit entry of a refusal is committed.
    entry = db.write(act)
    if isinstance(entry, str):
        raise NotSignedIn(f"sign-in link: {entry}. {AGAIN}")
    return entry


def begin(
    conn: Connection,
    user_id: int,
    tenant: str,
    user: str,
    cookie: str,
    csrf: str,
    *,
    until: float,
    address: str | None,
    by: str,
    now: Instant,
) -> Entry:
    """Begin a session of a user, within the transaction that has found out who it is."""
    sessions.begin(conn, user_id, digest(cookie), csrf, expires_at=until, address=address, now=now)
    users.set_user(conn, user_id, signed_in_at=now.wall)
    detail = None if by == "link" else {"by": by}
    audit.record(conn, tenant, user, "sign_in", detail=detail, address=address, now=now)
    session = sessions.find_session(conn, digest(cookie))
    assert session is not None  # noqa: S101
    return Entry(cookie, until, _seen(session))


def sign_out(db: Database, cookie: str, viewer: Viewer, *, address: str | None = None) -> None:
    """End a session."""

    def act(conn: Connection, now: Instant) -> None:
        if sessions.end(conn, digest(cookie)):
            audit.record(conn, viewer.tenant, viewer.user, "sign_out", address=address, now=now)

    db.write(act)


def viewer_by_token(db: Database, token: str, address: str | None = None) -> Viewer:
    """Return the user of a token, or raise NotSignedIn."""
    with db.read() as conn:
        now = db.now(conn)
        found = users.find_token(conn, digest(token))
    if found is None:
        raise NotSignedIn(f"token: unknown. {FRESH}")
    if found.disabled_at is not None:
        raise NotSignedIn(
            "token: its user is disabled. An admin of the tenant can enable the user."
        )
    if found.revoked_at is not None:
        raise NotSignedIn(f"token: was revoked. {FRESH}")
    if found.expires_at is not None and found.expires_at <= now.wall:
        raise NotSignedIn(f"token: has expired. {FRESH}")
    if _is_old(found.last_used_at, now):
        _touch(db, lambda conn, now: users.touch_token(conn, found.id, address=address, now=now))
    scopes = found.scopes & MAY[found.role]
    return Viewer(found.tenant, found.user, found.role, scopes, corpus=found.corpus)


def viewer_by_session(db: Database, cookie: str, address: str | None = None) -> Viewer:
    """Return the user of a session, or raise NotSignedIn."""
    with db.read() as conn:
        now = db.now(conn)
        found = sessions.find_session(conn, digest(cookie))
    if found is None or found.disabled_at is not None or found.expires_at <= now.wall:
        raise NotSignedIn(f"session: has ended. {AGAIN}")
    if _is_old(found.last_seen_at, now):
        _touch(db, lambda conn, now: sessions.touch(conn, found.id, address=address, now=now))
    return _seen(found)


def note_refused_token(
    db: Database, token: str, reason: str, *, tenant: str, address: str | None
) -> None:
    """Log a refused token in the audit of its tenant, or of `tenant`."""

    def act(conn: Connection, now: Instant) -> None:
        found = users.find_token(conn, digest(token))
        _refuse(conn, now, found or tenant, "token", reason, address)

    _touch(db, act)


def _seen(session: sessions.Session) -> Viewer:
    scopes: frozenset[Scope] = MAY[session.role]
    return Viewer(session.tenant, session.user, session.role, scopes, session.csrf)


def _refused_link(found: sessions.Link | None, now: Instant) -> str | None:
    if found is None:
        return "is not known here"
    if found.used_at is not None:
        return "was used already"
    if found.expires_at <= now.wall:
        return "has expired"
    return "is of a user who is disabled" if found.disabled_at is not None else None


def _refuse(
    conn: Connection,
    now: Instant,
    whose: users.TokenRow | sessions.Link | str,
    what: str,
    reason: str,
    address: str | None,
) -> None:
    tenant, user = (whose, None) if isinstance(whose, str) else (whose.tenant, whose.user)
    detail = {"by": what, "reason": reason}
    audit.record(conn, tenant, user, "sign_in.refused", detail=detail, address=address, now=now)


def _is_old(at: float | None, now: Instant) -> bool:
    return at is None or at <= now.wall - users.TOUCH_SECONDS


def _touch(db: Database, act: Any) -> None:
    """Write something optional; a busy database is no reason to fail."""
    try:
        db.write(act)
    except DatabaseUnavailable:
        return
