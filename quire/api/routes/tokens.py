"""Tokens: users manage their own; admins manage all of the tenant."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from quire.api.auth.authenticate import Reader, address_of
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import CreatedToken, NewToken, Token
from quire.api.responses import ApiResponse, returns
from quire.api.state import app_state_of
from quire.control import access
from quire.errors import Forbidden
from quire.model.access import Scope, Viewer

router = APIRouter(prefix="/api/tokens", tags=["access"])
TokenId = Annotated[int, Path(ge=1, le=requests.LARGEST_ID, description="Id of the token.")]


@router.get("", summary="List tokens", **returns(models.ListOf[Token]))
def listing(
    request: Request,
    viewer: Reader,
    user: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List your tokens, or as an admin those of the tenant; latest first."""
    found = access.list_tokens(
        app_state_of(request).caller(viewer),
        user=user if viewer.may(Scope.ADMIN) else viewer.user,
        limit=limit + 1,
        before=cursor,
    )
    return ApiResponse({"items": found[:limit], "next": following(found, limit)})


@router.post("", summary="Create a token", **returns(CreatedToken, 404, 409, status=201))
def create(request: Request, viewer: Reader, body: NewToken) -> Response:
    """Create a token. Only this response contains the token itself.

    A token can create another one only with the permission admin; otherwise an expiring token
    could extend its own life.
    """
    refuse_tokens(viewer)
    if body.user not in (None, viewer.user) and not viewer.may(Scope.ADMIN):
        raise Forbidden(
            f"user {viewer.user}: only admins can create tokens for others. No token was created."
        )
    made = access.create_token(
        app_state_of(request).caller(viewer),
        body.name,
        body.scopes,
        body.days,
        user=None if body.user == viewer.user else body.user,
        address=address_of(request),
    )
    return ApiResponse(made, 201, headers={"Cache-Control": "no-store"})


@router.delete("/{token_id}", summary="Revoke a token", **returns(Token, 404))
def revoke(request: Request, viewer: Reader, token_id: TokenId) -> Response:
    """Revoke a token; doing it again has no effect."""
    refuse_tokens(viewer)
    return ApiResponse(
        access.revoke_token(
            app_state_of(request).caller(viewer),
            token_id,
            user=None if viewer.may(Scope.ADMIN) else viewer.user,
            address=address_of(request),
        )
    )


def following(found: list[dict[str, int]], limit: int) -> str | None:
    """Return the cursor of the next page, if there is one."""
    return str(found[limit - 1]["id"]) if len(found) > limit else None


def refuse_tokens(viewer: Viewer) -> None:
    """Refuse requests by a token without the permission admin."""
    if viewer.csrf is None and not viewer.may(Scope.ADMIN):
        raise Forbidden(
            f"user {viewer.user}: a token needs the permission admin to manage tokens. Sign in to "
            "the dashboard, or use `quire token` on the machine that runs Quire."
        )
