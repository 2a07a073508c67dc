"""Limit request bodies: too large ones are refused before they are held in memory."""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.api.problems import problem

#: Maximum bytes of a body; uploads have their own limit.
MAX_BYTES = 1 << 20
#: Paths whose bodies are streamed to disk.
_UPLOADS = re.compile(r"/api/documents/?|/documents(/upload)?/?")


class BodyLimitMiddleware:
    """Refuses bodies above the limit, with or without Content-Length."""

    def __init__(self, app: ASGIApp, most: int = MAX_BYTES) -> None:
        self.app = app
        self.most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond 413."""
        if scope["type"] != "http" or (
            scope["method"] == "POST" and _UPLOADS.fullmatch(scope["path"])
        ):
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length[:20]) > self.most:
            await self._refuse(scope, receive, send)
            return
        got, is_refused = 0, False

        async def counted() -> Message:
            nonlocal got, is_refused
            message = await receive()
            got += len(message.get("body", b""))
            if got > self.most and not is_refused:
                is_refused = True
                await self._refuse(scope, receive, send)
            # The client has its response already; the route sees a disconnect.
            return {"type": "http.disconnect"} if is_refused else message

        async def once(message: Message) -> None:
            if not is_refused:
                await send(message)

        await self.app(scope, counted, once)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = (
            f"body: larger than the limit of {self.most:,} bytes. Nothing was changed. Upload "
            "files with POST /api/documents."
        )
        answer = problem(413, "Too large", detail, headers={"Connection": "close"})
        await answer(scope, receive, send)
