"""Users, the audit log, and the user of the request."""

from typing import Annotated

from fastapi import Path, Request, Response

from quire.api.auth.authenticate import Admin, CorpusReader, Viewed, public_url
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import AuditEntry, Me, NewRole, NewUser, SignInLink, User
from quire.api.responses import ApiResponse, Router
from quire.api.routes.tokens import following
from quire.control import access, sign_in
from quire.control.submission_checks import LONGEST
from quire.model.access import Scope

router = Router(prefix="/api", tags=["access"])
Name = Annotated[str, Path(min_length=1, max_length=LONGEST, description="Name of the user.")]
NO_STORE = {"Cache-Control": "no-store"}


@router.on("GET", "/me", "Show the current user", Me)
def me(caller: CorpusReader, viewer: Viewed) -> Response:
    """Show the user of this token or session, and its permissions."""
    shown = {
        **viewer._asdict(),
        "scopes": [each for each in Scope if viewer.may(each)],
        "corpus": viewer.corpus.name if viewer.corpus else None,
    }
    return ApiResponse(shown, headers=NO_STORE)


@router.on("GET", "/users", "List users", models.ListOf[User])
def listing(caller: Admin) -> Response:
    """List the tenant's users by name; there is no next page."""
    found = access.list_users(caller)
    return ApiResponse({"items": found, "next": None})


@router.on("POST", "/users", "Add a user", User, 409, status=201)
def add(caller: Admin, body: NewUser) -> Response:
    """Add a user, or enable a disabled one; old tokens stay revoked."""
    made = access.create_user(caller, body.name, body.role)
    return ApiResponse(made, 201)


@router.on("POST", "/users/{name}/role", "Change a role", User, 404, 409)
def role(caller: Admin, name: Name, body: NewRole) -> Response:
    """Change the role of a user, from the next request on."""
    return ApiResponse(access.set_role(caller, name, body.role))


@router.on("POST", "/users/{name}/disable", "Disable a user", User, 404, 409)
def disable(caller: Admin, name: Name) -> Response:
    """Disable a user: tokens, sessions and sign-in links end immediately."""
    return ApiResponse(access.disable_user(caller, name))


@router.on("POST", "/users/{name}/link", "Create a sign-in link", SignInLink, 404, 409, status=201)
def link(request: Request, caller: Admin, name: Name) -> Response:
    """Create a link that signs a user in once, within 15 minutes."""
    made = sign_in.sign_in_link(caller, name)
    path = f"/sign-in/{made.pop('link')}"
    url = public_url(request, path)
    return ApiResponse({**made, "path": path, "url": url}, 201, headers=NO_STORE)


@router.on("GET", "/audit", "List the audit log", models.ListOf[AuditEntry])
def audit(
    caller: Admin,
    user: requests.Text = None,
    action: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List changes to users and tokens, sign-ins and refused requests, latest first."""
    found = access.read_audit(caller, user=user, action=action, limit=limit + 1, before=cursor)
    return ApiResponse({"items": found[:limit], "next": following(found, limit)})
