"""Who may sign in with an identity of the OpenID provider, and as whom.

An identity (issuer and subject) is bound to one user, at its first sign-in: to the user whose name
is its verified e-mail address, or to a new one if the settings say so. The operator's rules decide.
"""

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from quire.clock import Instant
from quire.control import access, sign_in
from quire.control.caller import Caller
from quire.control.openid import Identity
from quire.control.sign_in import DAY, Entry
from quire.errors import BadInput, NotSignedIn
from quire.model.access import Role
from quire.settings import Settings
from quire.store import Connection
from quire.store.access import audit, users
from quire.store.access.users import User
from quire.store.db.engine import Database


class Rule(NamedTuple):
    """Who may sign in: a value of a claim, and the tenant and role of new users."""

    claim: str
    value: str
    tenant: str
    role: Role


def parse_rules(texts: Sequence[str]) -> list[Rule]:
    """Read QUIRE_OIDC_ALLOW."""
    rules = []
    for text in texts:
        who, _, whose = text.rpartition("=")
        claim, _, value = who.partition(":")
        tenant, _, role = whose.rpartition("/")
        given = set(Role) - {Role.INSTANCE_ADMIN}
        if not (claim and value and tenant) or role not in given:
            raise BadInput(
                f"QUIRE_OIDC_ALLOW: {text!r} is not CLAIM:VALUE=TENANT/ROLE with one of the roles "
                f"{', '.join(r for r in Role if r in given)}, as in "
                "domain:example.org=default/member. `quire user role` makes instance admins."
            )
        rules.append(Rule(claim, value, tenant, Role(role)))
    return rules


def enter(db: Database, settings: Settings, identity: Identity, *, address: str | None) -> Entry:
    """Begin a session for an identity, or raise NotSignedIn."""
    rules = parse_rules(settings.oidc_allow)
    rule = next((each for each in rules if _matches(each, identity)), None)
    tenant = rule.tenant if rule else settings.tenant
    cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)

    def act(conn: Connection, now: Instant) -> Entry | str:
        found: User | str = "is not among those who may sign in here"
        if rule is not None or not rules:
            new = rule.role if rule and settings.oidc_create_users else None
            found = _user_of(db, conn, now, identity, tenant, new, address)
        if isinstance(found, User) and found.disabled_at is not None:
            found = "is of a user who is disabled"
        if isinstance(found, str):
            return found
        until = now.wall + settings.session_days * DAY
        return sign_in.begin(
            conn, found.id, found.tenant, found.name, cookie, csrf,
            until=until, address=address, by="oidc", now=now,
        )  # fmt: skip

    entry = db.write(act)
    if isinstance(entry, str):
        raise NotSignedIn(
            f"single sign-on: {identity.email[:200]} {entry}. Ask an admin of Quire for an account."
        )
    return entry


def note_refused(db: Database, tenant: str, reason: str, address: str | None) -> None:
    """Write a refused sign-in into the audit."""
    detail = {"by": "oidc", "reason": reason[:300]}
    db.write(
        lambda conn, now: audit.record(
            conn, tenant, None, "sign_in.refused", detail=detail, address=address, now=now
        )
    )


def _user_of(
    db: Database,
    conn: Connection,
    now: Instant,
    identity: Identity,
    tenant: str,
    new: Role | None,
    address: str | None,
) -> User | str:
    """Return the user of an identity, who may have to be bound or added; or why there is none."""
    who = (identity.issuer, identity.subject)
    if (found := users.find_by_identity(conn, *who)) is not None:
        return found
    caller = Caller(db, tenant, identity.email, address=address)
    found = users.find_user(conn, tenant, identity.email, lock=True)
    if found is None and new is not None:
        detail: dict[str, Any] = {"role": new, "by": "oidc"}
        access.check_name("user", identity.email)
        users.add_user(conn, tenant, identity.email, new, now=now)
        access.note(conn, caller, "user.create", identity.email, detail, now)
        found = access.locked_user(conn, caller, identity.email)
    if found is None:
        return "has no account here"
    if found.disabled_at is not None:
        return found
    if not users.bind_identity(conn, found.id, *who):
        # Or the same identity was bound by a sign-in at the same time.
        return (
            users.find_by_identity(conn, *who)
            or "is the address of a user who signs in as somebody else there"
        )
    access.note(conn, caller, "user.bind", found.name, {"subject": identity.subject}, now)
    return found


def _matches(rule: Rule, identity: Identity) -> bool:
    if rule.claim == "domain":
        return identity.email.rpartition("@")[2] == rule.value.lower()
    if rule.claim == "email":
        return identity.email == rule.value.lower()
    told = identity.claims.get(rule.claim)
    return rule.value in told if isinstance(told, list) else told == rule.value
