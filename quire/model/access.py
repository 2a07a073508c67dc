"""Roles and scopes, each one including the ones before it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """The role of a user: three within their tenant, and one for the whole installation."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    #: An admin of their tenant who also operates what all tenants share.
    INSTANCE_ADMIN = "instance-admin"

    @property
    def rank(self) -> int:
        """The place of the role in the order of what it may."""
        return list(Role).index(self)


class Scope(StrEnum):
    """A permission that a request needs and a token grants."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


#: How the scopes of a token are stored: each set includes the ones before it.
SCOPE_SETS = tuple(" ".join(list(Scope)[: at + 1]) for at in range(len(Scope)))
#: The scopes of each role. A token can only narrow them.
MAY = {
    Role.VIEWER: frozenset({Scope.READ}),
    Role.MEMBER: frozenset({Scope.READ, Scope.WRITE}),
    Role.ADMIN: frozenset(Scope),
    Role.INSTANCE_ADMIN: frozenset(Scope),
}


def with_lesser(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return the scopes and those they include."""
    order = list(Scope)
    last = max((order.index(scope) for scope in scopes), default=-1)
    return frozenset(order[: last + 1])


def written(scopes: Iterable[Scope]) -> str:
    """Write scopes in their stored form."""
    kept = frozenset(scopes)
    return " ".join(scope for scope in Scope if scope in kept)


class BoundCorpus(NamedTuple):
    """The only corpus that a token may use."""

    id: int
    name: str
    created_at: float


class Viewer(NamedTuple):
    """The user a request is made as."""

    tenant: str
    user: str
    role: Role
    scopes: frozenset[Scope]
    #: CSRF token that forms must return with a cookie session; None for API tokens.
    csrf: str | None = None
    #: The corpus that the token is bound to: nothing else is there for it.
    corpus: BoundCorpus | None = None

    def may(self, scope: Scope) -> bool:
        """Tell whether the request has this scope."""
        return scope in self.scopes and scope in MAY[self.role]

    @property
    def operates(self) -> bool:
        """Tell whether the request may change what all tenants share."""
        return self.role is Role.INSTANCE_ADMIN and self.may(Scope.ADMIN)
