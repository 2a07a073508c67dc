"""The dashboard: its routers, and error pages in place of problem+json for browsers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException

from quire.web import admin, assets, corpora, documents, jobs, overview, search
from quire.web.rendering import error_page, wants_page


def routers() -> Sequence[APIRouter]:
    """Return the routers of all pages."""
    places = (overview, jobs, documents, corpora, search, admin, assets)
    return [each.router for each in places]


def install(api: FastAPI) -> None:
    """Answer unknown addresses with a page when a browser asks."""
    known: Callable[[Request, Any], Awaitable[Response]] = api.exception_handlers[HTTPException]  # type: ignore[assignment]

    async def answer(request: Request, error: Exception) -> Response:
        if not wants_page(request):
            return await known(request, error)
        return error_page(request, error)

    api.add_exception_handler(HTTPException, answer)
