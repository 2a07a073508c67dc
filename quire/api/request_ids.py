"""Give every request an ID, which is in the response headers and in its log lines."""

import re
import time
import uuid
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire import log

HEADER = "X-Request-Id"
#: IDs that a client may choose; anything else could inject text into the log.
_GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: A sign-in link is as good as a password.
_SECRET = re.compile(r"^(/sign-in/).*")
#: Requested every few seconds by machines; logged at debug level.
_QUIET = ("/healthz", "/readyz", "/metrics", "/static/")

#: Method, route, status and duration in seconds of a completed request.
Observe = Callable[[str, str, int, float], None]


class RequestIdMiddleware:
    """Pure ASGI, so that streaming responses are not buffered."""

    def __init__(self, app: ASGIApp, observe: Observe | None = None) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        name = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex[:16]
        began, status = time.perf_counter(), 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        scope.setdefault("state", {})["request_id"] = name
        with log.bound(request=name):
            try:
                await self._app(scope, receive, named)
            except Exception as error:
                if status:
                    raise
                # Answered here: Starlette would send the 500 without our headers.
                respond = scope["app"].exception_handlers[Exception]
                answer: Response = await respond(Request(scope), error)
                await answer(scope, receive, named)
            finally:
                self._note(scope, status or 499, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"]
        level = "debug" if path.startswith(_QUIET) and status < 500 else "info"
        log.event(
            "http",
            level=level,
            method=scope["method"],
            path=_SECRET.sub(r"\1…", path)[:200],
            status=status,
            ms=round(seconds * 1000, 1),
        )
        if self._observe is not None:
            template = str(getattr(scope.get("route"), "path", ""))
            self._observe(scope["method"], template, status, seconds)
