"""Limit request bodies: their size, their time, and who may send one at all.

The body of a request is read before a route asks who sent it. So a body of nobody is not read:
the route sees an empty one, and refuses the request. Uploads stream, and have limits of their own.
"""

import contextlib
import re
from time import monotonic

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.api.auth import authenticate
from quire.api.problems import problem
from quire.errors import QuireError

#: Maximum bytes of a body; uploads have their own limit.
MAX_BYTES = 1 << 20
#: A body may take this long, and longer by its size at this rate.
SECONDS, BYTES_PER_SECOND = 10.0, 50_000
#: Paths whose bodies are streamed to disk.
_UPLOADS = re.compile(r"/api/documents/?|/documents(/upload)?/?")


class BodyLimitMiddleware:
    """Refuses bodies above the limits, with or without Content-Length."""

    seconds = SECONDS

    def __init__(self, app: ASGIApp, most: int = MAX_BYTES) -> None:
        self.app = app
        self.most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond 408 or 413."""
        if scope["type"] != "http" or (
            scope["method"] == "POST" and _UPLOADS.fullmatch(scope["path"])
        ):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > self.most:
            await self._refuse(scope, receive, send)
            return
        has_body = length not in ("", "0") or "transfer-encoding" in headers
        if has_body and not await anyio.to_thread.run_sync(_is_known, Request(scope)):
            await self.app(scope, _no_body(receive), send)
            return
        body = _Body(self, scope, receive, send)
        await self.app(scope, body.receive, body.send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = (
            f"body: larger than the limit of {self.most:,} bytes. Nothing was changed. Upload "
            "files with POST /api/documents."
        )
        answer = problem(413, "Too large", detail, headers={"Connection": "close"})
        await answer(scope, receive, send)

    async def _time_out(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = (
            f"body: did not arrive within {self.seconds:g} s and {BYTES_PER_SECOND:,} bytes a "
            "second. Nothing was changed. Send it again."
        )
        answer = problem(408, "Too slow", detail, headers={"Connection": "close"})
        await answer(scope, receive, send)

    async def next(self, receive: Receive, began: float, got: int) -> Message | None:
        """Return the next part of a body, or None if it is late."""
        left = began + self.seconds + got / BYTES_PER_SECOND - monotonic()
        with contextlib.suppress(TimeoutError), anyio.fail_after(max(left, 0)):
            return await receive()
        return None


class _Body:
    """The body of one request, counted and timed."""

    def __init__(self, limits: BodyLimitMiddleware, scope: Scope, receive: Receive, send: Send):
        self._limits = limits
        self._scope, self._receive, self._send = scope, receive, send
        self._began = monotonic()
        self._got = 0
        self._is_whole = self._is_refused = False

    async def receive(self) -> Message:
        """Return the next part; a disconnect once the client has its refusal."""
        if self._is_refused:
            return {"type": "http.disconnect"}
        if self._is_whole:  # waits for the end of the connection, which may take long
            return await self._receive()
        message = await self._limits.next(self._receive, self._began, self._got)
        if message is None:
            self._is_refused = True
            await self._limits._time_out(self._scope, self._receive, self._send)
            return {"type": "http.disconnect"}
        self._got += len(message.get("body", b""))
        self._is_whole = not message.get("more_body")
        if self._got > self._limits.most:
            self._is_refused = True
            await self._limits._refuse(self._scope, self._receive, self._send)
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """Pass on what the route answers, unless the request was refused."""
        if not self._is_refused:
            await self._send(message)


def _no_body(receive: Receive) -> Receive:
    """Return an empty body, then wait for the end of the connection without keeping a byte."""
    is_told = False

    async def empty() -> Message:
        nonlocal is_told
        if not is_told:
            is_told = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await receive())["type"] != "http.disconnect":
            pass
        return message

    return empty


def _is_known(request: Request) -> bool:
    """Tell whether a request is of somebody who may send a body; the route decides the rest."""
    try:
        return authenticate.is_known(request)
    except QuireError:
        return False  # the route meets the same error, and says so
