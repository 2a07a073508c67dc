"""Limit request bodies: too large ones are refused before they are held in memory."""

import json
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        if scope["type"] != "http" or self._is_upload(scope):
            await self.app(scope, receive, send)
            return
        if _content_length(scope) > self.most:
            await self._refuse(send)
            return
        got, is_refused = 0, False

        async def counted() -> Message:
            nonlocal got, is_refused
            message = await receive()
            got += len(message.get("body", b""))
            if got > self.most and not is_refused:
                is_refused = True
                await self._refuse(send)
            # The client has its response already; the route sees a disconnect.
            return {"type": "http.disconnect"} if is_refused else message

        async def once(message: Message) -> None:
            if not is_refused:
                await send(message)

        await self.app(scope, counted, once)

    @staticmethod
    def _is_upload(scope: Scope) -> bool:
        return scope["method"] == "POST" and bool(_UPLOADS.fullmatch(scope["path"]))

    async def _refuse(self, send: Send) -> None:
        body = {
            "type": "about:blank",
            "title": "Too large",
            "status": 413,
            "detail": f"body: larger than the limit of {self.most:,} bytes.",
            "remedy": "Nothing was changed. Upload files with POST /api/documents.",
        }
        headers = [(b"content-type", b"application/problem+json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
