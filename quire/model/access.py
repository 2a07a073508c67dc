"""Roles and scopes: three of each, every one including the one before it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """The role of a user in their tenant."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


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


class Viewer(NamedTuple):
    """The user a request is made as."""

    tenant: str
    user: str
    role: Role
    scopes: frozenset[Scope]
    #: CSRF token that forms must return with a cookie session; None for API tokens.
    csrf: str | None = None

    def may(self, scope: Scope) -> bool:
        """Tell whether the request has this scope."""
        return scope in self.scopes and scope in MAY[self.role]
