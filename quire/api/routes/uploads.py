"""Uploads: files stream from the network to the disk while they are hashed, then become documents.

The event loop reads ahead by a few blocks; one thread of a small pool writes. Whatever goes wrong
before the last byte, nothing is kept.
"""

import math
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from time import monotonic
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from quire.api import multipart
from quire.api.auth.authenticate import Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import Answer, giving
from quire.api.state import AppState, app_state_of
from quire.control.uploads import MAX_FILES, UploadedFile, upload
from quire.errors import BadInput, SourceRefused, TooLarge
from quire.fetch.names import safe_name
from quire.fetch.transfer import part_file
from quire.model.access import Viewer

router = APIRouter(prefix="/api/documents", tags=["documents"])
#: Bytes that are gathered before a thread is asked to write them, and blocks that may wait.
BLOCK, AHEAD = 1 << 20, 4
#: Uploads that are written at a time; more wait.
AT_ONCE = 8
#: Seconds without a byte after which an upload counts as cut off.
PATIENCE = 120.0
_FIELDS = ("files", "file")
#: A page's form has its csrf in it, which the gate wants in the address instead.
_TEXTS = ("corpus", "csrf")
_CUT = "upload: the connection ended before all had come. Nothing was stored; send it again."

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of one file (then `name` says how it is called), or a form.",
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


@router.post(
    "",
    summary="Upload files",
    openapi_extra=_BODY,
    **giving(models.Uploaded, 409, 413, 502, status=201),
)
async def receive(
    request: Request,
    viewer: Writer,
    name: Annotated[str | None, Query(max_length=1000, description="Name of the file.")] = None,
    corpus: Annotated[str | None, Query(max_length=100)] = None,
    key: requests.Key = None,
) -> Response:
    """Take in one file or a form of several; they become documents of one ingest job."""
    taking = Taking(app_state_of(request), viewer, request.headers.get("content-type", ""), key)
    taking.check(name, request.headers.get("content-length"))
    sender, receiver = anyio.create_memory_object_stream[bytes](AHEAD)
    pump = _Pump(request, sender)
    made: dict[str, Any] | Exception
    async with anyio.create_task_group() as group:
        group.start_soon(pump.run)
        try:
            made = await anyio.to_thread.run_sync(
                lambda: taking.run(pump.pieces(receiver), name, corpus), limiter=_limiter(request)
            )
        except Exception as error:
            made = error  # the group would wrap it
        receiver.close()
        group.cancel_scope.cancel()
    if isinstance(made, Exception):
        raise made
    return Answer(made, 201, headers={"Location": f"/api/jobs/{made['id']}"})


def _limiter(request: Request) -> anyio.CapacityLimiter:
    found: anyio.CapacityLimiter | None = getattr(request.app.state, "uploading", None)
    if found is None:
        found = request.app.state.uploading = anyio.CapacityLimiter(AT_ONCE)
    return found


class _Pump:
    """Carries blocks from the network to the thread that writes."""

    def __init__(self, request: Request, sender: MemoryObjectSendStream[bytes]) -> None:
        self._request = request
        self._sender = sender
        self._is_cut = False

    async def run(self) -> None:
        """Send blocks until the body ends, is cut off, or nobody wants more."""
        with self._sender:
            try:
                # Over again with each block, not with each piece: setting a timer is dear.
                with anyio.fail_after(PATIENCE) as patience:
                    async for block in self._blocks():
                        patience.deadline = math.inf  # the disk may take its time
                        await self._sender.send(block)
                        patience.deadline = anyio.current_time() + PATIENCE
            except (ClientDisconnect, TimeoutError):
                self._is_cut = True
            except anyio.BrokenResourceError:
                return

    async def _blocks(self) -> AsyncIterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        began = monotonic()
        async for piece in self._request.stream():
            gathered.append(piece)
            size += len(piece)
            # A sender that trickles is heard of in time, though its block is not full.
            if size >= BLOCK or monotonic() > began + PATIENCE / 4:
                yield b"".join(gathered)
                gathered, size, began = [], 0, monotonic()
        if size:
            yield b"".join(gathered)

    def pieces(self, receiver: MemoryObjectReceiveStream[bytes]) -> Iterator[bytes]:
        """Yield the blocks, in a thread."""
        while True:
            try:
                yield anyio.from_thread.run(receiver.receive)
            except anyio.EndOfStream:
                break
        if self._is_cut:
            raise BadInput(_CUT)


class Taking:
    """One upload on its way to the disk."""

    def __init__(
        self, app_state: AppState, viewer: Viewer, content_type: str, key: str | None
    ) -> None:
        self.app_state = app_state
        self.viewer = viewer
        self.content_type = content_type
        self.key = key
        self.most = app_state.settings.fetch_max_bytes
        self.is_form = content_type.lower().startswith("multipart/form-data")

    def check(self, name: str | None, told: str | None) -> None:
        """Refuse what can be refused before a byte is read."""
        if self.is_form:
            multipart.boundary_of(self.content_type)
            return
        if not name:
            raise BadInput(
                "upload: how is the file called? Add ?name=, or send multipart/form-data."
            )
        if told is not None and told.isdigit() and int(told[:20]) > self.most:
            raise self._too_large(name)

    def run(self, pieces: Iterator[bytes], name: str | None, corpus: str | None) -> dict[str, Any]:
        """Write the files, keep them, and make their documents; or leave nothing."""
        received: list[UploadedFile] = []
        try:
            if self.is_form:
                corpus = self._form(pieces, received) or corpus
            else:
                self._file(name or "", pieces, received)
            self._check_all(received)
            return upload(
                self.app_state.caller(self.viewer), self.app_state.blobs, received,
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
                    f"form field {event.name[:40]!r}: not known. Files go in `files`, the name "
                    "of a corpus in `corpus`; nothing was kept."
                )
        return told.get("corpus")

    def _file(self, name: str, pieces: Iterator[bytes], received: list[UploadedFile]) -> None:
        if len(received) >= MAX_FILES:
            raise TooLarge(f"upload: more than {MAX_FILES:,} files at a time. Nothing was stored.")
        shown = safe_name(name)
        part = self.app_state.blobs.part_path(f"upload-{uuid.uuid4().hex}")
        try:
            got = part_file.receive(
                pieces, part, shown, max_bytes=self.most, progress=_unseen, check=_unchecked
            )
        except SourceRefused as error:
            raise self._too_large(shown) from error
        except BaseException:
            part_file.remove(part)
            raise
        received.append(UploadedFile(shown, got.sha256, got.size, part))

    def _check_all(self, received: Sequence[UploadedFile]) -> None:
        if not received:
            raise BadInput("upload: it contains no file. Nothing was stored.")

    def _too_large(self, name: str) -> TooLarge:
        return TooLarge(
            f"{safe_name(name)}: larger than the limit of {self.most:,} bytes "
            "(QUIRE_FETCH_MAX_BYTES). Nothing was stored."
        )


def _unseen(got: int, whole: int | None) -> None:
    """Nobody watches an upload but the sender."""


def _unchecked() -> None:
    """Nothing can stop an upload but its end."""
