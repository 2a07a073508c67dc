"""Puts the API together: routes, errors, security headers."""

from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, FastAPI, Request, Response

from quire.api import problems
from quire.api.office import Office
from quire.app import App

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'; "
        "base-uri 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def build(app: App, *more: APIRouter) -> FastAPI:
    """Make the web application of an app; `more` are routers beside the API's own."""
    api = FastAPI(title="Quire", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    api.state.office = Office(app)
    problems.install(api)
    api.middleware("http")(_secured)
    for router in (*routers(), *more):
        api.include_router(router)
    return api


def routers() -> Sequence[APIRouter]:
    """Return the routers of all resources."""
    from quire.api import jobs

    return [jobs.router]


async def _secured(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
