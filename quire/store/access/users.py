"""Users and their API tokens. Reads are limited to one tenant, except the lookup by token hash."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant, json_values
from quire.model.access import BoundCorpus, Role, Scope, written
from quire.store.db import bulk
from quire.store.db.schema.access import links, sessions, tokens, users
from quire.store.db.schema.documents import corpora

#: Minimum seconds between updates of when a token or session was last used.
TOUCH_SECONDS = 60.0
u, t = users.c, tokens.c


class User(NamedTuple):
    """A user of a tenant."""

    id: int
    tenant: str
    name: str
    role: Role
    created_at: float
    signed_in_at: float | None
    disabled_at: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the user as shown by commands and the API."""
        return json_values(self, [name for name in self._fields if name != "tenant"])


class TokenRow(NamedTuple):
    """A token with its user."""

    id: int
    tenant: str
    user: str
    role: Role
    scopes: frozenset[Scope]
    expires_at: float | None
    revoked_at: float | None
    disabled_at: float | None
    last_used_at: float | None
    corpus: BoundCorpus | None


def role_of(row: Any) -> Role:
    """Return the role of a row with `role` and `operates`."""
    role = Role(row.role)
    return Role.INSTANCE_ADMIN if role is Role.ADMIN and row.operates else role


def _stored(role: Role) -> dict[str, Any]:
    operates = role is Role.INSTANCE_ADMIN
    return {"role": (Role.ADMIN if operates else role).value, "operates": operates}


def _user(row: Any) -> User:
    values = {name: row._mapping[name] for name in User._fields}
    return User(**{**values, "role": role_of(row)})


def find_user(conn: sa.Connection, tenant: str, name: str, *, lock: bool = False) -> User | None:
    """Return a tenant's user; `lock` the row before a change that depends on its state."""
    query = sa.select(users).where(u.tenant == tenant, u.name == name)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _user(row)


def list_users(conn: sa.Connection, tenant: str) -> list[dict[str, Any]]:
    """List a tenant's users by name, as JSON."""
    rows = conn.execute(sa.select(users).where(u.tenant == tenant).order_by(u.name))
    return [_user(row).as_json() for row in rows]


def has_users(conn: sa.Connection, tenant: str | None = None, *, signed_in: bool = False) -> bool:
    """Tell whether a tenant, or any, has a user, or one who has signed in."""
    any_user = sa.exists().where(u.id > 0 if tenant is None else u.tenant == tenant)
    if signed_in:
        any_user = any_user.where(u.signed_in_at.is_not(None))
    return bool(conn.scalar(sa.select(any_user)))


def add_user(conn: sa.Connection, tenant: str, name: str, role: Role, *, now: Instant) -> bool:
    """Add a user; returns whether it is new."""
    columns = ("tenant", "name", "role", "operates", "created_at")
    stored = _stored(role)
    row = [tenant, name, stored["role"], stored["operates"], now.wall]
    return bool(bulk.insert_missing(conn, users, columns, [row], ("id",)))


def set_user(conn: sa.Connection, user_id: int, *, role: Role | None = None, **values: Any) -> None:
    """Update the role and columns of a user."""
    if role is not None:
        values |= _stored(role)
    conn.execute(sa.update(users).where(u.id == user_id).values(**values))


class Admins(NamedTuple):
    """Ids of enabled admins, of any kind."""

    of_tenant: list[int]
    of_instance: list[int]


def admins(conn: sa.Connection, tenant: str) -> Admins:
    """Lock and list the enabled admins of a tenant, and those of the instance in all tenants."""
    is_admin = sa.and_(u.role == Role.ADMIN.value, u.disabled_at.is_(None))
    query = sa.select(u.id, u.tenant, u.role, u.operates).where(
        is_admin, sa.or_(u.tenant == tenant, u.operates.is_(True))
    )
    found = conn.execute(query.order_by(u.id).with_for_update()).all()
    return Admins(
        [row.id for row in found if row.tenant == tenant],
        [row.id for row in found if row.operates],
    )


def find_by_identity(conn: sa.Connection, issuer: str, subject: str) -> User | None:
    """Return the user of an identity, with its row locked."""
    query = sa.select(users).where(u.issuer == issuer, u.subject == subject)
    row = conn.execute(query.with_for_update()).one_or_none()
    return None if row is None else _user(row)


def bind_identity(conn: sa.Connection, user_id: int, issuer: str, subject: str) -> bool:
    """Bind a user to an identity; returns False if another one is bound to it."""
    free = sa.update(users).where(u.id == user_id, u.issuer.is_(None))
    return conn.execute(free.values(issuer=issuer, subject=subject)).rowcount == 1


def revoke_all(conn: sa.Connection, user_id: int, *, now: Instant) -> None:
    """Revoke a user's tokens and delete the user's sessions and links."""
    conn.execute(
        sa.update(tokens)
        .where(t.user_id == user_id, t.revoked_at.is_(None))
        .values(revoked_at=now.wall)
    )
    for table in (sessions, links):
        conn.execute(sa.delete(table).where(table.c.user_id == user_id))


def add_token(
    conn: sa.Connection,
    owner: User,
    name: str,
    sha256: str,
    scopes: frozenset[Scope],
    *,
    corpus_id: int | None = None,
    expires_at: float | None,
    now: Instant,
) -> int:
    """Store a token; returns its id."""
    values = {
        "tenant": owner.tenant,
        "user_id": owner.id,
        "name": name,
        "sha256": sha256,
        "scopes": written(scopes),
        "corpus_id": corpus_id,
        "created_at": now.wall,
        "expires_at": expires_at,
    }
    made: int = conn.execute(sa.insert(tokens).values(**values).returning(t.id)).scalar_one()
    return made


def tokens_of(
    conn: sa.Connection,
    tenant: str,
    *,
    user: str | None = None,
    ids: Sequence[int] | None = None,
    before: int | None = None,
    limit: int = 1000,
    now: Instant,
) -> list[dict[str, Any]]:
    """List a tenant's tokens, newest first; optionally of one user or with these ids."""
    query = (
        sa.select(tokens, u.name.label("user"), corpora.c.name.label("corpus"))
        .join(users, u.id == t.user_id)
        .join(corpora, corpora.c.id == t.corpus_id, isouter=True)
        .where(t.tenant == tenant)
        .order_by(t.id.desc())
        .limit(limit)
    )
    if user is not None:
        query = query.where(u.name == user)
    if ids is not None:
        query = query.where(t.id.in_([i for i in ids if 0 < i < 2**63]))
    if before is not None:
        query = query.where(t.id < before)
    return [_token_json(row, now) for row in conn.execute(query)]


def _token_json(row: Any, now: Instant) -> dict[str, Any]:
    state = "active"
    if row.revoked_at is not None:
        state = "revoked"
    elif row.expires_at is not None and row.expires_at <= now.wall:
        state = "expired"
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    names = ("id", "name", "user", "corpus", "address", *times)
    return {**json_values(row, names), "scopes": row.scopes.split(), "state": state}


def revoke_of_corpus(conn: sa.Connection, corpus_id: int, *, now: Instant) -> None:
    """Revoke the tokens that are bound to a corpus."""
    bound = sa.update(tokens).where(t.corpus_id == corpus_id, t.revoked_at.is_(None))
    conn.execute(bound.values(revoked_at=now.wall))


def revoke(conn: sa.Connection, tenant: str, token_id: int, *, now: Instant) -> bool:
    """Revoke a tenant's token; returns whether it was active."""
    found = conn.execute(
        sa.update(tokens)
        .where(t.tenant == tenant, t.id == token_id, t.revoked_at.is_(None))
        .values(revoked_at=now.wall)
    )
    return found.rowcount == 1


#: One that was made in the moment in which its corpus was deleted is bound to nothing.
_REVOKED_AT = sa.case(
    (sa.and_(t.corpus_id.is_not(None), corpora.c.id.is_(None)), t.created_at),
    else_=t.revoked_at,
)
_TOKEN = (
    sa.select(
        t.id, t.tenant, u.name.label("user"), u.role, u.operates, t.scopes, t.expires_at,
        _REVOKED_AT.label("revoked_at"), u.disabled_at, t.last_used_at, t.corpus_id,
        corpora.c.name.label("corpus_name"), corpora.c.created_at.label("corpus_made_at"),
    )
    .join(users, u.id == t.user_id)
    .join(corpora, corpora.c.id == t.corpus_id, isouter=True)
    .where(t.sha256 == sa.bindparam("sha256"))
)  # fmt: skip


def find_token(conn: sa.Connection, sha256: str) -> TokenRow | None:
    """Return the token with this hash, of any tenant."""
    row = conn.execute(_TOKEN, {"sha256": sha256}).one_or_none()
    if row is None:
        return None
    scopes = frozenset(Scope(each) for each in row.scopes.split())
    bond = row.corpus_id, row.corpus_name, row.corpus_made_at
    corpus = None if row.corpus_name is None else BoundCorpus(*bond)
    own: dict[str, Any] = {"role": role_of(row), "scopes": scopes, "corpus": corpus}
    return TokenRow(
        **{name: row._mapping[name] for name in TokenRow._fields if name not in own}, **own
    )


def touch_token(conn: sa.Connection, token_id: int, *, address: str | None, now: Instant) -> None:
    """Update when and from where a token was last used, at most once a minute."""
    old = sa.or_(t.last_used_at.is_(None), t.last_used_at <= now.wall - TOUCH_SECONDS)
    conn.execute(
        sa.update(tokens)
        .where(t.id == token_id, old)
        .values(last_used_at=now.wall, address=address)
    )
