"""The verbs on users and tokens. Each change leaves a row in the audit.

A token is shown once, when it is made; what is stored of it is a hash.
"""

import hashlib
import secrets
from collections.abc import Iterable
from typing import Any

from quire.clock import Instant
from quire.control import submission_checks
from quire.control.caller import Caller, query, verb
from quire.control.refusals import noted
from quire.errors import BadInput, Conflict, Forbidden, NotFound
from quire.model.access import MAY, Role, Scope, with_lesser, written
from quire.store import Connection
from quire.store.access import audit, sessions, users
from quire.store.access.users import Admins, User
from quire.store.documents import corpora

PREFIX = "quire_"
DAY = 86_400.0
#: Days after which a token expires if nothing else is asked for, and the most.
TOKEN_DAYS, LONGEST_DAYS = 90.0, 3650.0


def digest(secret: str) -> str:
    """Return the hash under which a token, cookie or link is stored."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


@noted("user.create")
@verb
def create_user(
    caller: Caller, conn: Connection, now: Instant, name: str, role: str
) -> dict[str, Any]:
    """Add a user, or enable a disabled one; old tokens stay revoked."""
    wanted = _role(role)
    check_name("user", name)
    _check_grant(caller, wanted)
    action = "user.create"
    if not users.add_user(conn, caller.tenant, name, wanted, now=now):
        found = locked_user(conn, caller, name)
        if found.disabled_at is None:
            raise Conflict(
                f"user {name}: already exists, as {found.role}. Nothing was changed; "
                f"`quire user role {name} ROLE` changes the role."
            )
        check_rank(caller, found)
        users.set_user(conn, found.id, role=wanted, disabled_at=None)
        action = "user.enable"
    note(conn, caller, action, name, {"role": wanted}, now)
    return locked_user(conn, caller, name).as_json()


@noted("user.role")
@verb
def set_role(
    caller: Caller, conn: Connection, now: Instant, name: str, role: str
) -> dict[str, Any]:
    """Change the role of a user, from the next request on."""
    wanted = _role(role)
    _check_grant(caller, wanted)
    others = users.admins(conn, caller.tenant)
    found = locked_user(conn, caller, name)
    check_rank(caller, found)
    _not_the_last(found, others, wanted)
    if found.role != wanted:
        users.set_user(conn, found.id, role=wanted)
        detail = {"role": wanted, "before": found.role}
        note(conn, caller, "user.role", name, detail, now)
    return found._replace(role=wanted).as_json()


@noted("user.disable")
@verb
def disable_user(caller: Caller, conn: Connection, now: Instant, name: str) -> dict[str, Any]:
    """Disable a user: tokens, sessions and links end at once; an OpenID identity is forgotten."""
    others = users.admins(conn, caller.tenant)
    found = locked_user(conn, caller, name)
    check_rank(caller, found)
    _not_the_last(found, others)
    if found.disabled_at is None:
        users.set_user(conn, found.id, disabled_at=now.wall, issuer=None, subject=None)
        users.revoke_all(conn, found.id, now=now)
        note(conn, caller, "user.disable", name, None, now)
        found = found._replace(disabled_at=now.wall)
    return found.as_json()


list_users = query(users.list_users)


@noted("token.create")
def create_token(
    caller: Caller,
    name: str,
    scopes: Iterable[str] | None = None,
    days: float | None = None,
    *,
    user: str | None = None,
    corpus: str | None = None,
) -> dict[str, Any]:
    """Create a token for the caller or another user; its `token` is not shown again.

    Without scopes it may do what its user may. Without days it expires after `TOKEN_DAYS`; with 0
    it never does. With a corpus it reads, searches and ingests there, and nothing else.
    """
    check_name("token", name)
    asked = _scopes(scopes)
    days = TOKEN_DAYS if days is None else days
    if not 0 <= days <= LONGEST_DAYS:
        raise BadInput(f"days: {days:g} is not between 0 (never) and {LONGEST_DAYS:,.0f}.")
    whose = caller.user if user is None else user
    if user is None:
        ensure_admin(caller)
    plain = PREFIX + secrets.token_urlsafe(32)

    def act(conn: Connection, now: Instant) -> dict[str, Any]:
        owner = locked_user(conn, caller, whose)
        if owner.disabled_at is not None:
            raise Conflict(f"user {whose}: is disabled. No token was created.")
        check_rank(caller, owner)
        given = _allowed(owner, asked, is_bound=corpus is not None)
        corpus_id = None if corpus is None else _corpus_id(conn, caller, corpus)
        expires_at = now.wall + days * DAY if days else None
        token_id = users.add_token(
            conn, owner, name, digest(plain), given,
            corpus_id=corpus_id, expires_at=expires_at, now=now,
        )  # fmt: skip
        detail = {"token": token_id, "user": whose, "scopes": written(given)}
        detail |= {"corpus": corpus} if corpus is not None else {}
        note(conn, caller, "token.create", name, detail, now)
        [made] = users.tokens_of(conn, caller.tenant, ids=[token_id], now=now)
        return {**made, "token": plain}

    return caller.db.write(act)


def list_tokens(
    caller: Caller, *, user: str | None = None, limit: int = 1000, before: int | None = None
) -> list[dict[str, Any]]:
    """List the tokens of the tenant or of one user, latest first."""
    with caller.db.read() as conn:
        now = caller.db.now(conn)
        return users.tokens_of(conn, caller.tenant, user=user, before=before, limit=limit, now=now)


@noted("token.revoke")
@verb
def revoke_token(
    caller: Caller, conn: Connection, now: Instant, token_id: int, *, user: str | None = None
) -> dict[str, Any]:
    """Revoke a token of the tenant, or of one user."""

    def look() -> list[dict[str, Any]]:
        return users.tokens_of(conn, caller.tenant, user=user, ids=[token_id], now=now)

    if not (found := look()):
        raise NotFound(f"token {token_id}: no such token. `quire token list` lists them.")
    check_rank(caller, locked_user(conn, caller, found[0]["user"]))
    if users.revoke(conn, caller.tenant, token_id, now=now):
        detail = {"token": token_id, "user": found[0]["user"]}
        note(conn, caller, "token.revoke", found[0]["name"], detail, now)
    return look()[0]


def list_sessions(
    caller: Caller, *, user: str | None = None, csrf: str | None = None
) -> list[dict[str, Any]]:
    """List the sessions of the tenant or of one user, latest first; that of `csrf` is current."""
    with caller.db.read() as conn:
        now = caller.db.now(conn)
        return sessions.listed(conn, caller.tenant, user=user, csrf=csrf, now=now)


@noted("session.end")
@verb
def end_session(
    caller: Caller, conn: Connection, now: Instant, session_id: int, *, user: str | None = None
) -> dict[str, Any]:
    """End a session of the tenant, or of one user; returns it."""
    found = sessions.listed(conn, caller.tenant, user=user, session_id=session_id, now=now)
    if found:
        check_rank(caller, locked_user(conn, caller, found[0]["user"]))
    if not found or not sessions.end_by_id(conn, session_id):
        raise NotFound(f"session {session_id}: no such session. `quire user sessions` lists them.")
    detail = {"session": session_id, "user": found[0]["user"]}
    note(conn, caller, "session.end", found[0]["user"], detail, now)
    return found[0]


@verb
def end_other_sessions(caller: Caller, conn: Connection, now: Instant, csrf: str) -> int:
    """End the caller's sessions but that of this CSRF token; returns how many there were."""
    count = sessions.end_others(conn, caller.tenant, caller.user, csrf)
    if count:
        note(conn, caller, "session.end", caller.user, {"others": count}, now)
    return count


@verb
def ensure_admin(caller: Caller, conn: Connection, now: Instant) -> bool:
    """Make the caller the admin of a tenant without users; returns whether there were none.

    The first user of a database is its instance admin.
    """
    check_name("user", caller.user)
    if users.has_users(conn, caller.tenant):
        return False
    role = Role.ADMIN if users.has_users(conn) else Role.INSTANCE_ADMIN
    _check_grant(caller, role)
    if not users.add_user(conn, caller.tenant, caller.user, role, now=now):
        return False  # another process was first
    note(conn, caller, "user.create", caller.user, {"role": role}, now)
    return True


@verb
def ensure_instance_admin(caller: Caller, conn: Connection, now: Instant) -> None:
    """Make the admins of the caller's tenant instance admins where nobody is one.

    That is so after an upgrade from a release in which the admins of the server's tenant were.
    """
    found = users.admins(conn, caller.tenant)
    if found.of_instance:
        return
    for each in users.list_users(conn, caller.tenant):
        if each["id"] in found.of_tenant:
            users.set_user(conn, each["id"], role=Role.INSTANCE_ADMIN)
            detail = {"role": Role.INSTANCE_ADMIN, "before": each["role"]}
            note(conn, caller, "user.role", each["name"], detail, now)


read_audit = query(audit.list_entries)


def locked_user(conn: Connection, caller: Caller, name: str) -> User:
    """Return a user of the tenant with its row locked, or raise NotFound."""
    is_storable = "\0" not in name and submission_checks.is_unicode(name)
    found = users.find_user(conn, caller.tenant, name, lock=True) if is_storable else None
    if found is None:
        raise NotFound(f"user {name[:100]!r}: no such user. `quire user list` lists them.")
    return found


def note(
    conn: Connection,
    caller: Caller,
    action: str,
    subject: str,
    detail: dict[str, Any] | None,
    now: Instant,
) -> None:
    """Write what a caller did into the audit log."""
    who = (caller.tenant, caller.user)
    audit.record(
        conn, *who, action, subject=subject, detail=detail, address=caller.address, now=now
    )


def check_rank(caller: Caller, found: User) -> None:
    """Refuse changes to a user whose role is above the caller's, and secrets in their name."""
    if found.role.rank > caller.role.rank:
        raise Forbidden(
            f"user {found.name}: is {_with_article(found.role)}, whom only "
            f"{_with_article(found.role)} may change. Nothing was changed."
        )


def _check_grant(caller: Caller, wanted: Role) -> None:
    if wanted.rank > caller.role.rank:
        raise Forbidden(
            f"role {wanted}: is above your own, {caller.role}. Nothing was changed. Ask "
            f"{_with_article(wanted)}, or use `quire user role` on the machine that runs Quire."
        )


def _with_article(role: Role) -> str:
    return f"{'an' if role[0] in 'ai' else 'a'} {role}"


def _not_the_last(found: User, admins: Admins, wanted: Role = Role.VIEWER) -> None:
    if wanted.rank < Role.ADMIN.rank and admins.of_tenant == [found.id]:
        raise Conflict(
            f"user {found.name}: is the last admin of the tenant. Nothing was changed; make "
            "another user an admin first."
        )
    if wanted is not Role.INSTANCE_ADMIN and admins.of_instance == [found.id]:
        raise Conflict(
            f"user {found.name}: is the last instance admin. Nothing was changed; make another "
            "user an instance-admin first."
        )


def _role(text: str) -> Role:
    if text not in list(Role):
        raise BadInput(f"role: {text[:40]!r} is not one of {', '.join(Role)}.")
    return Role(text)


def _scopes(given: Iterable[str] | None) -> frozenset[Scope] | None:
    if given is None:
        return None
    names = list(given)
    for each in names:
        if each not in list(Scope):
            raise BadInput(f"scope: {each[:40]!r} is not one of {', '.join(Scope)}.")
    if not names:
        raise BadInput(f"scopes: none was named. Name one or more of {', '.join(Scope)}.")
    return with_lesser(Scope(each) for each in names)


def _corpus_id(conn: Connection, caller: Caller, name: str) -> int:
    found = corpora.find(conn, caller.tenant, name)
    if found is None:
        raise NotFound(f"corpus {name[:100]}: no such corpus. `quire corpus list` lists them.")
    return found.id


def _allowed(owner: User, asked: frozenset[Scope] | None, *, is_bound: bool) -> frozenset[Scope]:
    may = MAY[owner.role]
    if is_bound:
        may -= {Scope.ADMIN}
        if asked is not None and Scope.ADMIN in asked:
            raise BadInput(
                "scopes: admin is for the whole tenant, and the token is bound to a corpus. "
                "No token was created; choose read or write."
            )
    if asked is not None and not asked <= may:
        beyond = written(asked - may).replace(" ", ", ")
        raise BadInput(
            f"scopes: {beyond} exceeds the permissions of user {owner.name} as {owner.role}. "
            f"No token was created; choose from {written(may).replace(' ', ', ')}."
        )
    return may if asked is None else asked


def check_name(what: str, name: str) -> None:
    """Refuse names that are not printable or not usable in a path."""
    odd = name.strip() != name or not name.isprintable() or "/" in name or not name.strip(".")
    if odd or not 0 < len(name) <= submission_checks.LONGEST:
        raise BadInput(
            f"{what} {name[:60]!r}: a name has 1 to {submission_checks.LONGEST} printable "
            "characters, none of them a slash, no space at its ends, and not only dots."
        )
