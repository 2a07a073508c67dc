"""Render page images in one child process of the API, one at a time, with a time limit."""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from quire.errors import Transient, Unreadable

#: Seconds for one image, and seconds to wait for earlier requests.
SECONDS = 20.0
PATIENCE = 30.0
_LONGEST_HEAD = 64 << 10


class PageRenderer:
    """The child process; started on first use and replaced after it was killed."""

    def __init__(self, seconds: float = SECONDS, patience: float = PATIENCE) -> None:
        self.seconds = seconds
        self.patience = patience
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def draw(self, path: Path, media_type: str, page: int, width: int) -> bytes:
        """Return a page as PNG, or raise Unreadable."""
        if not self._lock.acquire(timeout=self.patience):
            raise Transient(
                f"page {page}: too many page images are being rendered. Try again in a moment."
            )
        try:
            asked = {"path": str(path), "media_type": media_type, "page": page, "width": width}
            return self._draw(asked, page)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kill the child process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _draw(self, asked: dict[str, object], page: int) -> bytes:
        child = self._running()
        assert child.stdin is not None and child.stdout is not None  # noqa: S101
        until = time.monotonic() + self.seconds
        try:
            child.stdin.write(json.dumps(asked).encode() + b"\n")
            child.stdin.flush()
            head, _, rest = self._read_head(child.stdout.fileno(), until).partition(b"\n")
            told = json.loads(head)
            if "error" not in told:
                return self._read(child.stdout.fileno(), rest, told["size"], until)
        except TimeoutError:
            self._give_up(page, f"it takes longer than {self.seconds:g} s")
        except (OSError, ValueError):
            self._give_up(page, "the rendering process crashed")
        raise Unreadable(told["error"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "quire.parse.render"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._child

    def _give_up(self, page: int, why: str) -> NoReturn:
        self.close()
        raise Unreadable(f"page {page}: cannot be rendered ({why}). Its text is not affected.")

    def _read_head(self, number: int, until: float) -> bytes:
        got = b""
        while b"\n" not in got:
            if len(got) > _LONGEST_HEAD:
                raise ValueError("no head")
            got += _some(number, until)
        return got

    def _read(self, number: int, got: bytes, size: int, until: float) -> bytes:
        parts, have = [got], len(got)
        while have < size:
            parts.append(_some(number, until))
            have += len(parts[-1])
        return b"".join(parts)


def _some(number: int, until: float) -> bytes:
    watch = select.poll()
    watch.register(number, select.POLLIN | select.POLLHUP)
    if not watch.poll(max(until - time.monotonic(), 0.0) * 1000):
        raise TimeoutError
    if not (piece := os.read(number, 1 << 20)):
        raise OSError("the pipe has ended")
    return piece


#: One per API process.
shared = PageRenderer()
atexit.register(shared.close)
