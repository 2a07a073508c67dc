"""Users, the audit log, and the user of the request."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from quire.api.auth.authenticate import Admin, Reader, address_of, is_https
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import AuditEntry, Me, NewRole, NewUser, SignInLink, User
from quire.api.responses import ApiResponse, returns
from quire.api.routes.tokens import following
from quire.api.state import app_state_of
from quire.control import access, sign_in
from quire.control.submission_checks import LONGEST
from quire.model.access import Scope

router = APIRouter(prefix="/api", tags=["access"])
Name = Annotated[str, Path(min_length=1, max_length=LONGEST, description="Name of the user.")]
NO_STORE = {"Cache-Control": "no-store"}


@router.get("/me", summary="Show the current user", **returns(Me))
def me(viewer: Reader) -> Response:
    """Show the user of this token or session, and its permissions."""
    shown = {**viewer._asdict(), "scopes": [each for each in Scope if viewer.may(each)]}
    return ApiResponse(shown, headers=NO_STORE)


@router.get("/users", summary="List users", **returns(models.ListOf[User]))
def listing(request: Request, viewer: Admin) -> Response:
    """List the tenant's users by name; there is no next page."""
    found = access.list_users(app_state_of(request).caller(viewer))
    return ApiResponse({"items": found, "next": None})


@router.post("/users", summary="Add a user", **returns(User, 409, status=201))
def add(request: Request, viewer: Admin, body: NewUser) -> Response:
    """Add a user, or enable a disabled one; old tokens stay revoked."""
    caller = app_state_of(request).caller(viewer)
    made = access.create_user(caller, body.name, body.role, address=address_of(request))
    return ApiResponse(made, 201)


@router.post("/users/{name}/role", summary="Change a role", **returns(User, 404, 409))
def role(request: Request, viewer: Admin, name: Name, body: NewRole) -> Response:
    """Change the role of a user, from the next request on."""
    caller = app_state_of(request).caller(viewer)
    return ApiResponse(access.set_role(caller, name, body.role, address=address_of(request)))


@router.post("/users/{name}/disable", summary="Disable a user", **returns(User, 404, 409))
def disable(request: Request, viewer: Admin, name: Name) -> Response:
    """Disable a user: tokens, sessions and sign-in links end immediately."""
    caller = app_state_of(request).caller(viewer)
    return ApiResponse(access.disable_user(caller, name, address=address_of(request)))


@router.post(
    "/users/{name}/link",
    summary="Create a sign-in link",
    **returns(SignInLink, 404, 409, status=201),
)
def link(request: Request, viewer: Admin, name: Name) -> Response:
    """Create a link that signs a user in once, within 15 minutes."""
    caller = app_state_of(request).caller(viewer)
    made = sign_in.sign_in_link(caller, name, address=address_of(request))
    path = f"/sign-in/{made.pop('link')}"
    scheme = "https" if is_https(request) else "http"
    url = f"{scheme}://{request.url.netloc}{path}"
    return ApiResponse({**made, "path": path, "url": url}, 201, headers=NO_STORE)


@router.get("/audit", summary="List the audit log", **returns(models.ListOf[AuditEntry]))
def audit(
    request: Request,
    viewer: Admin,
    user: requests.Text = None,
    action: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List changes to users and tokens, sign-ins and refused requests, latest first."""
    caller = app_state_of(request).caller(viewer)
    found = access.read_audit(caller, user=user, action=action, limit=limit + 1, before=cursor)
    return ApiResponse({"items": found[:limit], "next": following(found, limit)})
