"""Renders page images in a box (`quire.sandbox`), one at a time, with a time limit.

Whoever asks waits in a queue of its own, which is short and shared fairly: too many requests get
503 at once, and the threads of other routes never wait for a picture.
"""

import atexit
import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio

from quire.errors import Transient, Unreadable
from quire.parse.boxed_reader import SERVER
from quire.sandbox.box import BoxDied, RemoteError, Sandbox, TookTooLong
from quire.sandbox.confine import Limits

#: Seconds for one image.
SECONDS = 20.0
#: Requests that wait or are drawn: of all tenants, and of one.
MAX_REQUESTS, MAX_OF_TENANT = 5, 2
#: Address space of the box that draws.
MEMORY_BYTES = 768 << 20
_RETRY_AFTER = 2.0
_STALE_SECONDS = 24 * 3600


class DrawingQueue:
    """The requests for page images of one API process; used by its event loop only."""

    def __init__(self) -> None:
        self.limiter = anyio.CapacityLimiter(1)
        self._asked: Counter[str] = Counter()

    @contextlib.contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Take a place in the queue, or raise Transient if there is none."""
        if self._asked.total() >= MAX_REQUESTS or self._asked[tenant] >= MAX_OF_TENANT:
            raise Transient(
                "page images: too many are being drawn. Try again in a moment.",
                retry_after=_RETRY_AFTER,
            )
        self._asked[tenant] += 1
        try:
            yield
        finally:
            self._asked[tenant] -= 1
            self._asked += Counter()  # drops tenants without requests


class PageRenderer:
    """The box that draws; opened on first use and replaced after it was ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        #: One thread, because a box draws one page at a time.
        self._thread: ThreadPoolExecutor | None = None
        self._sandbox: Sandbox | None = None
        self._scratch: Path | None = None

    def draw(
        self, path: Path, media_type: str, page: int, width: int, *,
        tenant: str, scratch: Path, is_confined: bool = True,
    ) -> bytes:  # fmt: skip
        """Return a page as PNG, or raise Unreadable. The box's folder is made in `scratch`."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "quire-draw")
        request = {"do": "draw", "media_type": media_type, "page": page, "width": width}
        return self._thread.submit(
            self._draw, self._box(scratch, is_confined), tenant, request, path
        ).result()

    def close(self) -> None:
        """End the box, if there is one."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def _box(self, scratch: Path, is_confined: bool) -> Sandbox:
        if self._sandbox is not None and scratch != self._scratch:
            self._sandbox.close()
            self._sandbox = None
        if self._sandbox is None:
            _remove_stale(scratch)
            folder, self._scratch = scratch / f"images-{os.getpid()}", scratch
            limits = Limits(memory=MEMORY_BYTES)
            self._sandbox = Sandbox(
                SERVER, folder, limits=limits, quiet=True, is_confined=is_confined
            )
        return self._sandbox

    def _draw(self, box: Sandbox, tenant: str, request: dict[str, object], path: Path) -> bytes:
        page, until = request["page"], time.monotonic() + self.seconds
        try:
            [drawn] = box.ask(tenant, request, path, until=until)
        except TookTooLong:
            why = f"it takes longer than {self.seconds:g} s"
        except BoxDied:
            why = "the rendering process crashed"
        except ValueError:
            why = "the rendering process sent no picture"
        except RemoteError as error:
            if error.kind == "Unreadable":
                raise Unreadable(str(error)) from None
            why = "it needs too much memory" if error.kind == "MemoryError" else str(error)
        else:
            return drawn.body
        raise Unreadable(f"page {page}: cannot be rendered ({why}). Its text is not affected.")


def _remove_stale(scratch: Path) -> None:
    """Remove what killed processes have left; their pids may be those of another container."""
    for folder in scratch.glob("images-*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(folder)


#: One per API process.
shared = PageRenderer()
atexit.register(shared.close)
