"""A `.part` file: bytes are hashed as they are written, and a full disk is said in words.

Beside the part lies a small note of whose bytes it holds, so that a transfer that was killed
goes on where it was, and only if the source still has the same bytes.
"""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from quire.errors import FetchFailed, SourceRefused
from quire.fetch.items import Check, Fetched, Progress

PIECE = 1 << 20
_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_FULL[errno.EFBIG] = "the file would be larger than this system allows"
_SHUT = {errno.EROFS: "the file system is read-only", errno.EACCES: "writing is not permitted"}
_SHUT[errno.EPERM] = "writing is not permitted"


class Part:
    """The file that bytes of one item are collected in, with the hashes of what is in it.

    Each life of a part is a file of its own: a worker that was given up but still runs goes on
    writing to one that has no name any more.
    """

    def __init__(self, path: Path, subject: str, *, keep: int = 0, with_md5: bool = True) -> None:
        self.path = path
        self.subject = subject
        self.size = 0
        self._with_md5 = with_md5
        self._start_hashes()
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        with disk_words(subject, fresh):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._number = os.open(fresh, flags, 0o600)
        try:
            self._take_over(keep)
            with disk_words(subject, fresh):
                os.replace(fresh, path)  # noqa: PTH105
        except BaseException:
            os.close(self._number)
            fresh.unlink(missing_ok=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._number)

    @property
    def sha256(self) -> str:
        """The SHA-256 of what is in the part."""
        return self._sha256.hexdigest()

    @property
    def md5(self) -> str | None:
        """The MD5 of what is in the part, where it is counted."""
        return self._md5.hexdigest() if self._with_md5 else None

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        rest = memoryview(piece)
        with disk_words(self.subject, self.path):
            while rest:
                rest = rest[os.write(self._number, rest) :]
        self._count(piece)

    def clear(self) -> None:
        """Begin again with nothing."""
        note_of(self.path).unlink(missing_ok=True)
        os.ftruncate(self._number, 0)
        self.size = 0
        self._start_hashes()

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        with disk_words(self.subject, self.path):
            os.fsync(self._number)

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        return os.pread(self._number, count, 0)

    def _take_over(self, most: int) -> None:
        """Copy what an earlier run left, safe on the disk before it takes the old one's place."""
        if most == 0:
            note_of(self.path).unlink(missing_ok=True)
            return
        with self.path.open("rb") as left:
            while self.size < most and (piece := left.read(min(PIECE, most - self.size))):
                self.write(piece)
        self.sync()

    def _count(self, piece: bytes) -> None:
        self._sha256.update(piece)
        if self._with_md5:
            self._md5.update(piece)
        self.size += len(piece)

    def _start_hashes(self) -> None:
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)


@contextmanager
def disk_words(subject: str, path: Path) -> Iterator[None]:
    """Turn an error of the disk into a plain reason; a part that fills it is removed."""
    try:
        yield
    except OSError as error:
        if reason := _FULL.get(error.errno or 0):
            remove(path)
            raise FetchFailed(
                f"{subject}: cannot be written to {path.parent} ({reason}). The partial file was "
                "removed; free some space, the work is tried again."
            ) from error
        reason = _SHUT.get(error.errno or 0) or str(error.strerror or error)
        raise FetchFailed(
            f"{subject}: cannot be written to {path.parent} ({reason}). Give Quire a folder "
            "that it may write to; the work is tried again."
        ) from error


def note_of(path: Path) -> Path:
    """Return where the note of a part lies."""
    return path.with_name(path.name + ".note")


def write_note(path: Path, note: dict[str, object]) -> None:
    """Say whose bytes a part holds."""
    place = note_of(path)
    fresh = place.with_name(place.name + ".tmp")
    with disk_words(str(note.get("uri", path.name)), path):
        fresh.write_text(json.dumps(note))
        os.replace(fresh, place)  # noqa: PTH105


def read_note(path: Path) -> dict[str, object]:
    """Return whose bytes a part holds; nothing where that is not known."""
    try:
        note = json.loads(note_of(path).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def remove(path: Path) -> None:
    """Remove a part and its note."""
    path.unlink(missing_ok=True)
    note_of(path).unlink(missing_ok=True)


def too_large(subject: str, size: int, most: int) -> SourceRefused:
    """Word that a file is larger than the limit."""
    return SourceRefused(
        f"{subject}: larger than the limit (at most {most:,} bytes, got {size:,} or more). "
        "Nothing was kept; raise the limit to take it in."
    )


def receive(
    pieces: Iterable[bytes],
    part: Path,
    subject: str,
    *,
    max_bytes: int,
    progress: Progress,
    check: Check,
    total: int | None = None,
    with_md5: bool = False,
) -> Fetched:
    """Write a stream of bytes, as an upload or a local file is, to a part of its own."""
    with Part(part, subject, with_md5=with_md5) as file:
        for piece in pieces:
            check()
            if file.size + len(piece) > max_bytes:
                remove(part)
                raise too_large(subject, file.size + len(piece), max_bytes)
            file.write(piece)
            progress(file.size, total)
        return Fetched(file.size, file.sha256, file.md5)
