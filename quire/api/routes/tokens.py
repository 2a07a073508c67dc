"""Tokens: users manage their own; admins manage all of the tenant."""

from typing import Annotated

from fastapi import Path, Response

from quire.api.auth.authenticate import Reader, Viewed
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import CreatedToken, NewToken, Token
from quire.api.responses import ApiResponse, Router
from quire.control import access
from quire.errors import Forbidden
from quire.model.access import Scope, Viewer

router = Router(prefix="/api/tokens", tags=["access"])
TokenId = Annotated[int, Path(ge=1, le=requests.LARGEST_ID, description="Id of the token.")]


@router.on("GET", "", "List tokens", models.ListOf[Token])
def listing(
    caller: Reader,
    viewer: Viewed,
    user: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List your tokens, or as an admin those of the tenant; latest first."""
    whose = user if viewer.may(Scope.ADMIN) else viewer.user
    found = access.list_tokens(caller, user=whose, limit=limit + 1, before=cursor)
    return ApiResponse({"items": found[:limit], "next": following(found, limit)})


@router.on("POST", "", "Create a token", CreatedToken, 404, 409, status=201)
def create(caller: Reader, viewer: Viewed, body: NewToken) -> Response:
    """Create a token. Only this response contains the token itself.

    A token can create another one only with the permission admin; otherwise an expiring token
    could extend its own life.
    """
    refuse_tokens(viewer)
    if body.user not in (None, viewer.user) and not viewer.may(Scope.ADMIN):
        raise Forbidden(
            f"user {viewer.user}: only admins can create tokens for others. No token was created."
        )
    user = None if body.user == viewer.user else body.user
    made = access.create_token(
        caller, body.name, body.scopes, body.days, user=user, corpus=body.corpus
    )
    return ApiResponse(made, 201, headers={"Cache-Control": "no-store"})


@router.on("DELETE", "/{token_id}", "Revoke a token", Token, 404)
def revoke(caller: Reader, viewer: Viewed, token_id: TokenId) -> Response:
    """Revoke a token; doing it again has no effect."""
    refuse_tokens(viewer)
    user = None if viewer.may(Scope.ADMIN) else viewer.user
    return ApiResponse(access.revoke_token(caller, token_id, user=user))


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
