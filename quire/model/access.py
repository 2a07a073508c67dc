"""Who asks, and what they may do: three roles, three scopes, each including the one before it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """What a user may do in their tenant."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


class Scope(StrEnum):
    """What a request needs, or a token gives."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


#: What the scopes of a token are written as: each set has the ones before it too.
SCOPE_SETS = tuple(" ".join(list(Scope)[: at + 1]) for at in range(len(Scope)))
#: What each role may do. A token's scopes can only narrow this.
MAY = {
    Role.VIEWER: frozenset({Scope.READ}),
    Role.MEMBER: frozenset({Scope.READ, Scope.WRITE}),
    Role.ADMIN: frozenset(Scope),
}


def with_lesser(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return the scopes and all that are included in them."""
    order = list(Scope)
    last = max((order.index(scope) for scope in scopes), default=-1)
    return frozenset(order[: last + 1])


def written(scopes: Iterable[Scope]) -> str:
    """Write scopes as they are stored."""
    kept = frozenset(scopes)
    return " ".join(scope for scope in Scope if scope in kept)


class Viewer(NamedTuple):
    """Whose request it is."""

    tenant: str
    user: str
    role: Role
    scopes: frozenset[Scope]
    #: What a form must send back with a cookie session; None where a token asks.
    csrf: str | None = None

    def may(self, scope: Scope) -> bool:
        """Tell whether the request may do what needs this scope."""
        return scope in self.scopes and scope in MAY[self.role]
