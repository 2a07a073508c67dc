"""Users of the tenant, for its admins; what was done about access; and who asks."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from quire.api.auth.authenticate import Admin, Reader, address_of, is_https
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import AuditRow, Me, RoleBody, SignInLink, User, UserBody
from quire.api.responses import Answer, giving
from quire.api.routes.tokens import following
from quire.api.state import app_state_of
from quire.control import access, sign_in
from quire.control.submission_checks import LONGEST
from quire.model.access import Scope

router = APIRouter(prefix="/api", tags=["access"])
Name = Annotated[str, Path(min_length=1, max_length=LONGEST, description="Name of the user.")]
UNKEPT = {"Cache-Control": "no-store"}


@router.get("/me", summary="Show who asks", **giving(Me))
def me(viewer: Reader) -> Response:
    """Show whose token or session it is, and what it may do."""
    shown = {**viewer._asdict(), "scopes": [each for each in Scope if viewer.may(each)]}
    return Answer(shown, headers=UNKEPT)


@router.get("/users", summary="List users", **giving(models.Listed[User]))
def listing(request: Request, viewer: Admin) -> Response:
    """List the tenant's users by name; there is no next page."""
    found = access.list_users(app_state_of(request).caller(viewer))
    return Answer({"items": found, "next": None})


@router.post("/users", summary="Add a user", **giving(User, 409, status=201))
def add(request: Request, viewer: Admin, body: UserBody) -> Response:
    """Add a user, or let one who was disabled in again; old tokens stay revoked."""
    caller = app_state_of(request).caller(viewer)
    made = access.create_user(caller, body.name, body.role, address=address_of(request))
    return Answer(made, 201)


@router.post("/users/{name}/role", summary="Give a role", **giving(User, 404, 409))
def role(request: Request, viewer: Admin, name: Name, body: RoleBody) -> Response:
    """Give a user another role; it counts from the next request on."""
    caller = app_state_of(request).caller(viewer)
    return Answer(access.set_role(caller, name, body.role, address=address_of(request)))


@router.post("/users/{name}/disable", summary="Disable a user", **giving(User, 404, 409))
def disable(request: Request, viewer: Admin, name: Name) -> Response:
    """Shut a user out: tokens, sessions and links end at once."""
    caller = app_state_of(request).caller(viewer)
    return Answer(access.disable_user(caller, name, address=address_of(request)))


@router.post(
    "/users/{name}/link",
    summary="Make a sign-in link",
    **giving(SignInLink, 404, 409, status=201),
)
def link(request: Request, viewer: Admin, name: Name) -> Response:
    """Make a link that signs a user in to the dashboard once, within 15 minutes."""
    caller = app_state_of(request).caller(viewer)
    made = sign_in.sign_in_link(caller, name, address=address_of(request))
    path = f"/sign-in/{made.pop('link')}"
    scheme = "https" if is_https(request) else "http"
    url = f"{scheme}://{request.url.netloc}{path}"
    return Answer({**made, "path": path, "url": url}, 201, headers=UNKEPT)


@router.get("/audit", summary="List the audit", **giving(models.Listed[AuditRow]))
def audit(
    request: Request,
    viewer: Admin,
    user: requests.Text = None,
    action: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List what was done about access, the latest first, and who was not let in."""
    caller = app_state_of(request).caller(viewer)
    found = access.read_audit(caller, user=user, action=action, limit=limit + 1, before=cursor)
    return Answer({"items": found[:limit], "next": following(found, limit)})
