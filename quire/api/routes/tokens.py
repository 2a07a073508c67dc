"""Tokens: everyone has their own; admins see and revoke all of the tenant."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from quire.api.auth.authenticate import Reader, address_of
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.models.access import MadeToken, Token, TokenBody
from quire.api.responses import Answer, giving
from quire.api.state import app_state_of
from quire.control import access
from quire.errors import Forbidden
from quire.model.access import Scope, Viewer

router = APIRouter(prefix="/api/tokens", tags=["access"])
TokenId = Annotated[int, Path(ge=1, le=requests.LARGEST_ID, description="Id of the token.")]


@router.get("", summary="List tokens, the latest first", **giving(models.Listed[Token]))
def listing(
    request: Request,
    viewer: Reader,
    user: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List one's own tokens; of an admin, those of the tenant."""
    found = access.list_tokens(
        app_state_of(request).caller(viewer),
        user=user if viewer.may(Scope.ADMIN) else viewer.user,
        limit=limit + 1,
        before=cursor,
    )
    return Answer({"items": found[:limit], "next": following(found, limit)})


@router.post("", summary="Make a token", **giving(MadeToken, 404, 409, status=201))
def create(request: Request, viewer: Reader, body: TokenBody) -> Response:
    """Make a token. Only this answer has the token itself.

    A token can make another one only if it has the scope admin: else one that expires could be
    made to last.
    """
    refuse_tokens(viewer)
    if body.user not in (None, viewer.user) and not viewer.may(Scope.ADMIN):
        raise Forbidden(f"user {viewer.user}: only admins make tokens for others. None was made.")
    made = access.create_token(
        app_state_of(request).caller(viewer),
        body.name,
        body.scopes,
        body.days,
        user=None if body.user == viewer.user else body.user,
        address=address_of(request),
    )
    return Answer(made, 201, headers={"Cache-Control": "no-store"})


@router.delete("/{token_id}", summary="Revoke a token", **giving(Token, 404))
def revoke(request: Request, viewer: Reader, token_id: TokenId) -> Response:
    """Revoke a token at once; again makes no difference."""
    refuse_tokens(viewer)
    return Answer(
        access.revoke_token(
            app_state_of(request).caller(viewer),
            token_id,
            user=None if viewer.may(Scope.ADMIN) else viewer.user,
            address=address_of(request),
        )
    )


def following(found: list[dict[str, int]], limit: int) -> str | None:
    """Return the cursor behind a page, where more was found than it takes."""
    return str(found[limit - 1]["id"]) if len(found) > limit else None


def refuse_tokens(viewer: Viewer) -> None:
    """Refuse a token that would make or end tokens without the scope admin."""
    if viewer.csrf is None and not viewer.may(Scope.ADMIN):
        raise Forbidden(
            f"user {viewer.user}: a token changes tokens only with the scope admin. Sign in to the "
            "dashboard, or use `quire token` on the machine that runs Quire."
        )
