"""Sessions of the dashboard: users see and end their own; admins all of the tenant."""

from typing import Annotated

from fastapi import Path, Response

from quire.api.auth.authenticate import Reader, Viewed
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import EndedSessions, Session
from quire.api.responses import ApiResponse, Router
from quire.api.routes.tokens import refuse_tokens
from quire.control import access
from quire.model.access import Scope

router = Router(prefix="/api/sessions", tags=["access"])
SessionId = Annotated[int, Path(ge=1, le=requests.LARGEST_ID, description="Id of the session.")]


@router.on("GET", "", "List sessions", models.ListOf[Session])
def listing(caller: Reader, viewer: Viewed) -> Response:
    """List your sessions, or as an admin those of the tenant; there is no next page."""
    user = None if viewer.may(Scope.ADMIN) else viewer.user
    return ApiResponse(
        {"items": access.list_sessions(caller, user=user, csrf=viewer.csrf), "next": None}
    )


@router.on("DELETE", "", "End your other sessions", EndedSessions)
def end_others(caller: Reader, viewer: Viewed) -> Response:
    """End all your sessions but this one; with a token of an admin, all that the admin has."""
    refuse_tokens(viewer)
    return ApiResponse({"count": access.end_other_sessions(caller, viewer.csrf or "")})


@router.on("DELETE", "/{session_id}", "End a session", Session, 404)
def end(caller: Reader, viewer: Viewed, session_id: SessionId) -> Response:
    """End a session: its next request is not signed in."""
    refuse_tokens(viewer)
    user = None if viewer.may(Scope.ADMIN) else viewer.user
    return ApiResponse(access.end_session(caller, session_id, user=user))
