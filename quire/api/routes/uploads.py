"""Uploads: files are hashed while they stream to disk, then become documents.

The event loop reads a few blocks ahead; a thread of a small pool writes. If anything fails before
the last byte, nothing is kept.
"""

import math
import uuid
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import Query, Request, Response
from starlette.requests import ClientDisconnect

from quire.api import multipart
from quire.api.auth.authenticate import CorpusWriter
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router
from quire.api.state import AppState, app_state_of
from quire.api.tenant_turns import end_turn
from quire.control import queries, tenants
from quire.control.caller import Caller
from quire.control.uploads import MAX_FILES, UploadedFile, upload
from quire.errors import BadInput, SourceRefused, TooLarge
from quire.fetch.names import safe_name
from quire.fetch.transfer import part_file

router = Router(prefix="/api/documents", tags=["documents"])
#: Bytes per block that is handed to the writing thread, and blocks that may wait.
BLOCK, AHEAD = 1 << 20, 4
#: Seconds without a byte after which an upload is aborted.
IDLE_SECONDS = 60.0
#: Bytes a second that an upload must bring, and the seconds of waiting over which they count.
LEAST_RATE, RATE_SECONDS = 10_000, 60.0
_FIELDS = ("files", "file")
#: `csrf` is ignored here: authentication reads it from the URL.
_TEXTS = ("corpus", "csrf")
_LOST = "upload: the connection was lost. Nothing was stored; upload it again."
_SLOW = (
    f"upload: slower than {LEAST_RATE:,} bytes a second for {RATE_SECONDS:g} s. Nothing was "
    "stored; upload it again over a faster connection."
)

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of one file (`name` is then required), or a form.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {
                            "type": "array",
                            "maxItems": MAX_FILES,
                            "items": {"type": "string", "format": "binary"},
                        },
                        "corpus": {"type": "string", "maxLength": 100},
                    },
                }
            },
        },
    }
}


@router.on(
    "POST", "", "Upload files", models.Uploaded, 409, 413, 502, status=201, openapi_extra=_BODY
)
async def receive(
    request: Request,
    caller: CorpusWriter,
    name: Annotated[str | None, Query(max_length=1000, description="Name of the file.")] = None,
    corpus: Annotated[str | None, Query(max_length=100)] = None,
    key: requests.Key = None,
) -> Response:
    """Upload one file, or a form with several; one ingest job indexes them."""
    app_state = app_state_of(request)
    queries.corpus_for(caller, corpus or None)  # before the body is read
    taking = UploadReceiver(app_state, caller, request.headers.get("content-type", ""), key)
    length = request.headers.get("content-length")
    taking.check(name, length)
    size = int(length[:20]) if length and length.isdigit() else 0
    if key is None:  # what is sent again may add nothing
        await anyio.to_thread.run_sync(tenants.require_room, caller, size)
    end_turn(request)  # uploads have places of their own
    sender, receiver = anyio.create_memory_object_stream[bytes](AHEAD)
    pump = _Pump(request, sender)
    made: dict[str, Any] | Exception
    # Nothing of the body is read before there is a place for it.
    async with (
        app_state.slots.taken(caller.tenant, caller.user),
        anyio.create_task_group() as group,
    ):
        group.start_soon(pump.run)
        try:
            made = await anyio.to_thread.run_sync(
                lambda: taking.run(pump.pieces(receiver), name, corpus), limiter=app_state.uploading
            )
        except Exception as error:
            made = error  # the task group would wrap it in a group
        receiver.close()
        group.cancel_scope.cancel()
    if isinstance(made, Exception):
        raise made
    return ApiResponse(made, 201, headers={"Location": f"/api/jobs/{made['id']}"})


class _TooSlow(Exception):
    """An upload brings fewer bytes than it must."""


class _Pump:
    """Passes blocks from the network to the writing thread."""

    def __init__(self, request: Request, sender: MemoryObjectSendStream[bytes]) -> None:
        self._request = request
        self._sender = sender
        self._lost = ""
        self._waited, self._got = 0.0, 0

    async def run(self) -> None:
        """Send blocks until the body ends, the connection is lost, or the receiver closes."""
        with self._sender:
            try:
                # Reset per block, not per chunk: timers are expensive.
                with anyio.fail_after(IDLE_SECONDS) as patience:
                    async for block in self._blocks():
                        patience.deadline = math.inf  # writing may take longer
                        await self._sender.send(block)
                        patience.deadline = anyio.current_time() + IDLE_SECONDS
            except (ClientDisconnect, TimeoutError):
                self._lost = _LOST
            except _TooSlow:
                self._lost = _SLOW
            except anyio.BrokenResourceError:
                return

    async def _blocks(self) -> AsyncIterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        began = monotonic()
        async for piece in self._timed():
            gathered.append(piece)
            size += len(piece)
            # Also send partial blocks, so that a slow sender does not time out.
            if size >= BLOCK or monotonic() > began + IDLE_SECONDS / 4:
                yield b"".join(gathered)
                gathered, size, began = [], 0, monotonic()
        if size:
            yield b"".join(gathered)

    async def _timed(self) -> AsyncIterator[bytes]:
        """Yield what arrives, or raise _TooSlow; only time spent waiting for it counts."""
        stream = self._request.stream()
        while True:
            began = monotonic()
            try:
                piece = await anext(stream)
            except StopAsyncIteration:
                return
            self._waited += monotonic() - began
            self._got += len(piece)
            if self._waited >= RATE_SECONDS:
                if self._got < LEAST_RATE * self._waited:
                    raise _TooSlow
                self._waited, self._got = 0.0, 0
            yield piece

    def pieces(self, receiver: MemoryObjectReceiveStream[bytes]) -> Iterator[bytes]:
        """Yield the blocks; runs in the writing thread."""
        while True:
            try:
                yield anyio.from_thread.run(receiver.receive)
            except anyio.EndOfStream:
                break
        if self._lost:
            raise BadInput(self._lost)


class UploadReceiver:
    """Writes one upload to disk and submits its job."""

    def __init__(
        self, app_state: AppState, caller: Caller, content_type: str, key: str | None
    ) -> None:
        self.app_state = app_state
        self.caller = caller
        self.content_type = content_type
        self.key = key
        self.most = app_state.settings.fetch_max_bytes
        self.is_form = content_type.lower().startswith("multipart/form-data")

    def check(self, name: str | None, told: str | None) -> None:
        """Check what can be checked before the body is read."""
        if self.is_form:
            multipart.boundary_of(self.content_type)
            return
        if not name:
            raise BadInput(
                "upload: the file has no name. Add ?name=NAME, or send multipart/form-data."
            )
        if told is not None and told.isdigit() and int(told[:20]) > self.most:
            raise self._too_large(name)

    def run(self, pieces: Iterator[bytes], name: str | None, corpus: str | None) -> dict[str, Any]:
        """Write the files, store them and create their documents; all or nothing."""
        received: list[UploadedFile] = []
        try:
            if self.is_form:
                corpus = self._form(pieces, received) or corpus
            else:
                self._file(name or "", pieces, received)
            if not received:
                raise BadInput("upload: it contains no file. Nothing was stored.")
            return upload(
                self.caller, self.app_state.blobs, received,
                corpus=corpus or None, key=self.key,
            )  # fmt: skip
        finally:
            for each in received:
                part_file.remove(each.part)

    def _form(self, pieces: Iterator[bytes], received: list[UploadedFile]) -> str | None:
        told: dict[str, str] = {}
        stream = multipart.events(pieces, multipart.boundary_of(self.content_type))
        for event in stream:
            if not isinstance(event, multipart.Begin):
                continue
            if event.filename is None and event.name in _TEXTS:
                told[event.name] = multipart.field_of(event.name, stream)
            elif event.filename and event.name in _FIELDS:
                self._file(event.filename, multipart.until_end(stream), received)
            elif event.filename is None or event.filename:
                raise BadInput(
                    f"form field {event.name[:40]!r}: unknown. Send files in `files` and the name "
                    "of a corpus in `corpus`. Nothing was stored."
                )
        return told.get("corpus")

    def _file(self, name: str, pieces: Iterator[bytes], received: list[UploadedFile]) -> None:
        if len(received) >= MAX_FILES:
            raise TooLarge(f"upload: more than {MAX_FILES:,} files at a time. Nothing was stored.")
        shown = safe_name(name)
        part = self.app_state.blobs.part_path(f"upload-{uuid.uuid4().hex}")
        try:
            got = part_file.receive(
                pieces, part, shown, max_bytes=self.most,
                progress=lambda got, whole: None, check=lambda: None,
            )  # fmt: skip
        except SourceRefused as error:
            raise self._too_large(shown) from error
        except BaseException:
            part_file.remove(part)
            raise
        received.append(UploadedFile(shown, got.sha256, got.size, part))

    def _too_large(self, name: str) -> TooLarge:
        return TooLarge(
            f"{safe_name(name)}: larger than the limit of {self.most:,} bytes "
            "(QUIRE_FETCH_MAX_BYTES). Nothing was stored."
        )
