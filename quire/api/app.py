"""The web application: routes, errors, security headers."""

from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire import plugins
from quire.api import problems
from quire.api.auth import authenticate
from quire.api.body_limits import BodyLimitMiddleware
from quire.api.request_ids import RequestIdMiddleware
from quire.api.routes import (
    corpora,
    documents,
    events,
    health,
    interactive_docs,
    jobs,
    kinds,
    metrics,
    search,
    sessions,
    sign_in,
    single_sign_on,
    status,
    synonyms,
    tenants,
    tokens,
    uploads,
    users,
)
from quire.api.state import AppState
from quire.api.stream import EventBroadcaster
from quire.api.tenant_turns import TurnMiddleware
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

ROUTES = (
    health, metrics, events, sign_in, single_sign_on, sessions, tokens, users, tenants, jobs,
    kinds, uploads, documents, search, corpora, synonyms, status,
    interactive_docs,
)  # fmt: skip
_DESCRIPTION = (
    "Submit and manage jobs, upload and search documents. Authenticate with "
    "`Authorization: Bearer TOKEN`; `quire token create` creates a token. Errors are "
    "problem+json: `detail` says what happened, `remedy` what to do. Lists return `items` and "
    "`next`; pass `next` as `cursor` to get the next page."
)


def create_api(app: App, *more: APIRouter) -> FastAPI:
    """Create the FastAPI application; `more` are routers besides the API's own."""
    api = FastAPI(
        title="Quire",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    plugins.equip(app.registry)  # settings may name a plugin's parser
    api.state.app_state = AppState(app)
    api.state.meters = metrics.MetricsExporter(app)
    api.state.tail = EventBroadcaster(app.db, app.settings.api_max_streams)
    problems.install(api)
    # The last one added is the outermost: every response gets an ID and headers, errors too.
    api.add_middleware(BodyLimitMiddleware)
    api.add_middleware(TurnMiddleware)
    api.add_middleware(RequestIdMiddleware, observe=api.state.meters.observe)
    api.add_middleware(SecurityHeadersMiddleware)
    for router in (*(each.router for each in ROUTES), *more):
        api.include_router(router)
    return api


class SecurityHeadersMiddleware:
    """Adds security headers; pure ASGI, so that uploads and streams are not buffered."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if authenticate.is_https(Request(scope)):
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        await self.app(scope, receive, secured if scope["type"] == "http" else send)
