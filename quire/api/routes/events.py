"""The event stream (SSE).

The `id` of a message is a cursor: a client that reconnects with it (`Last-Event-ID` or
`?cursor=`) misses nothing. The last message of a stream is named `bye` and says why it ends.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from quire.api.auth.authenticate import Reader, authenticate
from quire.api.models import requests
from quire.api.responses import problem_responses
from quire.api.stream import EventBroadcaster, EventFilter, Listener, message
from quire.control import queries
from quire.errors import DatabaseUnavailable, QuireError, TooMany
from quire.model.access import Scope as Allowed
from quire.store.queue.tail import Cursor

router = APIRouter(prefix="/api/events", tags=["events"])
#: Seconds between keep-alive comments; the session is checked at the same time.
BEAT = 15.0
#: Milliseconds that a browser waits before it reconnects.
RETRY_MS = 1000
MOST_NAMES = 20

_EXAMPLE = (
    'id: 0-812\ndata: {"id":812,"at":"2026-01-31T18:00:00.000Z","job_id":77,"task_id":null,'
    '"name":"job.completed"}\n\n'
)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Messages, until either side closes the connection.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    **problem_responses(404),
}


@router.get("", summary="Follow events", responses=_ANSWERS, response_class=StreamingResponse)
async def follow(
    request: Request,
    caller: Reader,
    job: Annotated[
        int | None, Query(ge=1, le=requests.LARGEST_ID, description="Only events of this job.")
    ] = None,
    names: Annotated[
        str | None,
        Query(
            max_length=500, description="Names or prefixes, separated by commas: job,document.ready"
        ),
    ] = None,
    cursor: Annotated[
        str | None, Query(max_length=40, description="Continue after this `id`.")
    ] = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
) -> StreamingResponse:
    """Stream the tenant's events from now on, or from a cursor."""
    # A browser reconnects with its first URL, so the header takes precedence.
    given = last_event_id or cursor
    after = Cursor.parse(given) if given else None
    some = [each.strip() for each in (names or "").split(",") if each.strip()]
    wanted = EventFilter(caller.tenant, job, frozenset(some[:MOST_NAMES]))
    # Raises NotFound or DatabaseUnavailable before the stream starts.
    if job is None:
        await asyncio.to_thread(queries.last_job_id, caller)
    else:
        await asyncio.to_thread(queries.job, caller, job)
    tail: EventBroadcaster = request.app.state.tail
    listener = await tail.join(caller.user, wanted, after)
    return Stream(tail, listener, _pieces(request, tail, listener))


class Stream(StreamingResponse):
    """Frees the slot of the stream however it ends."""

    def __init__(
        self, tail: EventBroadcaster, listener: Listener, pieces: AsyncIterator[bytes]
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(pieces, media_type="text/event-stream", headers=headers)
        self._tail, self._listener = tail, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._tail.leave(self._listener)


async def _pieces(
    request: Request, tail: EventBroadcaster, listener: Listener
) -> AsyncIterator[bytes]:
    # The cursor first: a client that disconnects before the first event can continue from here.
    yield f"retry: {RETRY_MS}\n".encode() + message({}, cursor=listener.at)
    try:
        async for piece in tail.missed(listener):
            yield piece
    except QuireError as error:
        yield _bye(listener, str(error))
        return
    due = time.monotonic() + BEAT
    while True:
        if piece := await listener.take(due - time.monotonic()):
            yield piece
        elif listener.ended is not None:
            yield _bye(listener, listener.ended)
            return
        if time.monotonic() >= due:
            if why := await asyncio.to_thread(_no_longer_allowed, request):
                yield _bye(listener, why)
                return
            yield b": \n\n"
            due = time.monotonic() + BEAT


def _no_longer_allowed(request: Request) -> str | None:
    """Return why the stream must end: its session or token is no longer valid."""
    try:
        viewer, now = request.state.viewer, authenticate(request)
    except (DatabaseUnavailable, TooMany):
        return None
    except QuireError as error:
        return str(error)
    same = now.tenant == viewer.tenant and now.user == viewer.user and now.may(Allowed.READ)
    return None if same else "The session has changed. Reconnect."


def _bye(listener: Listener, why: str) -> bytes:
    return message({"why": why, "cursor": str(listener.at)}, cursor=listener.at, name="bye")
