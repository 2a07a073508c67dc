"""Pages for settings, tokens, users and the audit log."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response

from quire import format
from quire.api.auth.authenticate import Admin, InstanceAdmin, Reader, Viewed, Writer, public_url
from quire.api.routes.sessions import SessionId
from quire.api.routes.tokens import TokenId, following, refuse_tokens
from quire.api.state import app_state_of
from quire.control import access, corpora, shown_settings, sign_in, sources, tenants
from quire.control.caller import Caller
from quire.errors import BadInput
from quire.model.access import Role, Scope, Viewer
from quire.web.rendering import PageRoute, back, cursor_of, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
PAGE = 50
Text = Annotated[str, Form(max_length=200)]
Asked = Annotated[str, Query(max_length=200)]


@router.get("/settings")
def settings(request: Request, caller: InstanceAdmin) -> Response:
    """List the settings in force."""
    items = shown_settings.listed(app_state_of(request).settings)
    for each in items:
        each["text"] = format.setting(each["value"])
    return page(request, "settings.html", settings=items)


@router.get("/tenants")
def tenants_page(request: Request, caller: InstanceAdmin) -> Response:
    """List tenants with their limits and what they use, and the sources granted to them."""
    return page(
        request, "tenants.html", tenants=tenants.listed(caller), what=tenants.LIMITS,
        grants=sources.grants_of_all(caller),
    )  # fmt: skip


@router.get("/tokens")
def tokens(request: Request, caller: Reader, viewer: Viewed) -> Response:
    """List tokens: an admin sees all of the tenant, others their own."""
    return _tokens(request, caller, viewer)


@router.post("/tokens")
def make_token(
    request: Request,
    caller: Writer,
    viewer: Viewed,
    name: Text,
    scope: Text = "read",
    days: Text = "",
    corpus: Text = "",
) -> Response:
    """Create a token and show it once."""
    refuse_tokens(viewer)
    order = list(Scope)
    if scope not in order or Scope(scope) not in viewer.scopes:
        raise BadInput(
            f"scope: {scope[:40]!r} is not one of your permissions. No token was created."
        )
    try:
        lasting = float(days) if days else None
    except ValueError as error:
        raise BadInput(f"days: {days[:40]!r} is not a number. No token was created.") from error
    made = access.create_token(caller, name, [scope], lasting, corpus=corpus or None)
    return _tokens(request, caller, viewer, made)


@router.post("/tokens/{token_id}/revoke")
def revoke_token(caller: Writer, viewer: Viewed, token_id: TokenId) -> Response:
    """Revoke a token."""
    refuse_tokens(viewer)
    whose = None if viewer.may(Scope.ADMIN) else viewer.user
    access.revoke_token(caller, token_id, user=whose)
    return back("/tokens")


def _tokens(
    request: Request, caller: Caller, viewer: Viewer, made: dict[str, Any] | None = None
) -> Response:
    whose = None if viewer.may(Scope.ADMIN) else viewer.user
    listed = access.list_tokens(caller, user=whose, limit=200)
    own = [scope for scope in Scope if viewer.may(scope)]
    names = [each["name"] for each in corpora.listed(caller)]
    return page(request, "tokens.html", tokens=listed, made=made, scopes=own, corpora=names)


@router.get("/account")
def account(request: Request, caller: Reader, viewer: Viewed) -> Response:
    """List one's own sessions and tokens."""
    return page(
        request, "account.html",
        sessions=access.list_sessions(caller, user=viewer.user, csrf=viewer.csrf),
        tokens=access.list_tokens(caller, user=viewer.user, limit=200),
    )  # fmt: skip


@router.post("/account/sessions/end-others")
def end_other_sessions(caller: Reader, viewer: Viewed) -> Response:
    """End one's sessions but this one."""
    refuse_tokens(viewer)
    access.end_other_sessions(caller, viewer.csrf or "")
    return back("/account")


@router.post("/account/sessions/{session_id}/end")
def end_session(caller: Reader, viewer: Viewed, session_id: SessionId) -> Response:
    """End one of one's sessions."""
    refuse_tokens(viewer)
    access.end_session(caller, session_id, user=viewer.user)
    return back("/account")


@router.post("/account/tokens/{token_id}/revoke")
def revoke_own(caller: Reader, viewer: Viewed, token_id: TokenId) -> Response:
    """Revoke one of one's tokens."""
    refuse_tokens(viewer)
    access.revoke_token(caller, token_id, user=viewer.user)
    return back("/account")


@router.get("/users")
def users(request: Request, caller: Admin) -> Response:
    """List the tenant's users."""
    return _users(request, caller)


@router.post("/users")
def add_user(caller: Admin, name: Text, role: Text) -> Response:
    """Add a user, or enable a disabled one."""
    access.create_user(caller, name, role)
    return back("/users")


@router.post("/users/role")
def set_role(caller: Admin, name: Text, role: Text) -> Response:
    """Change the role of a user."""
    access.set_role(caller, name, role)
    return back("/users")


@router.post("/users/disable")
def disable(caller: Admin, name: Text) -> Response:
    """Disable a user."""
    access.disable_user(caller, name)
    return back("/users")


@router.post("/users/link")
def link(request: Request, caller: Admin, name: Text) -> Response:
    """Create a one-time sign-in link and show it."""
    made = sign_in.sign_in_link(caller, name)
    made["address"] = public_url(request, f"/sign-in/{made['link']}")
    return _users(request, caller, made)


def _users(request: Request, caller: Caller, made: dict[str, Any] | None = None) -> Response:
    listed = access.list_users(caller)
    roles = [role for role in Role if role.rank <= caller.role.rank]
    return page(request, "users.html", users=listed, link=made, roles=roles)


@router.get("/audit")
def audit(
    request: Request, caller: Admin, user: Asked = "", action: Asked = "", cursor: Asked = ""
) -> Response:
    """List the audit log, latest first."""
    kept = {"user": user.strip(), "action": action.strip(), "cursor": cursor}
    wanted = {name: kept[name].replace("\0", "") or None for name in ("user", "action")}
    found = access.read_audit(caller, **wanted, limit=PAGE + 1, before=cursor_of(cursor))
    for each in found:
        told = {k: ", ".join(v) if isinstance(v, list) else v for k, v in each["detail"].items()}
        each["words"] = "; ".join(f"{name} {value}" for name, value in told.items())
    return page(
        request, "audit.html", rows=found[:PAGE], next=following(found, PAGE), kept=kept,
        is_filtered=any(wanted.values()),
    )  # fmt: skip
