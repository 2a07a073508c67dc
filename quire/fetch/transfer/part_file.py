"""Partial downloads (`.part` files): bytes are hashed as they are written.

A note beside the part records which version of which item it holds, so an interrupted transfer
resumes only if the source still has the same bytes.
"""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from quire.errors import FetchFailed, SourceRefused
from quire.fetch.items import Check, Fetched, Progress
from quire.home import make_folder

CHUNK_BYTES = 1 << 20
_DISK_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_DISK_FULL[errno.EFBIG] = "the file would be larger than this system allows"
_NOT_WRITABLE = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "writing is not permitted",
}
_NOT_WRITABLE[errno.EPERM] = "writing is not permitted"


class PartFile:
    """A file that collects the bytes of one item, with their hashes.

    Each run creates a new inode: a worker that lost its lease but still runs keeps writing to an
    unlinked file.
    """

    def __init__(self, path: Path, subject: str, *, keep: int = 0, with_md5: bool = True) -> None:
        self.path = path
        self.subject = subject
        self.size = 0
        self._with_md5 = with_md5
        self._start_hashes()
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        with disk_errors(subject, fresh):
            make_folder(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._number = os.open(fresh, flags, 0o600)
        try:
            self._take_over(keep)
            with disk_errors(subject, fresh):
                os.replace(fresh, path)  # noqa: PTH105
        except BaseException:
            os.close(self._number)
            fresh.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._number)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes so far."""
        return self._sha256.hexdigest()

    @property
    def md5(self) -> str | None:
        """The MD5 of the bytes so far, if requested."""
        return self._md5.hexdigest() if self._with_md5 else None

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        rest = memoryview(piece)
        with disk_errors(self.subject, self.path):
            while rest:
                rest = rest[os.write(self._number, rest) :]
        self._sha256.update(piece)
        if self._with_md5:
            self._md5.update(piece)
        self.size += len(piece)

    def refuse_above(self, most: int, size: int) -> None:
        """Remove the part and raise if a size is above the limit."""
        if size > most:
            remove(self.path)
            raise too_large(self.subject, size, most)

    def clear(self) -> None:
        """Discard all bytes."""
        note_path(self.path).unlink(missing_ok=True)
        os.ftruncate(self._number, 0)
        self.size = 0
        self._start_hashes()

    def sync(self) -> None:
        """Sync the file to disk."""
        with disk_errors(self.subject, self.path):
            os.fsync(self._number)

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        return os.pread(self._number, count, 0)

    def _take_over(self, most: int) -> None:
        """Copy the bytes of an earlier run and sync them before the old part is replaced."""
        if most == 0:
            note_path(self.path).unlink(missing_ok=True)
            return
        with self.path.open("rb") as left:
            while self.size < most and (piece := left.read(min(CHUNK_BYTES, most - self.size))):
                self.write(piece)
        self.sync()

    def _start_hashes(self) -> None:
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)


@contextmanager
def disk_errors(subject: str, path: Path) -> Iterator[None]:
    """Translate disk errors; a part that fills the disk is deleted."""
    try:
        yield
    except OSError as error:
        if reason := _DISK_FULL.get(error.errno or 0):
            remove(path)
            raise FetchFailed(
                f"{subject}: cannot be written to {path.parent} ({reason}). The partial file was "
                "removed; free some space."
            ) from error
        reason = _NOT_WRITABLE.get(error.errno or 0) or str(error.strerror or error)
        raise FetchFailed(
            f"{subject}: cannot be written to {path.parent} ({reason}). Make the folder writable "
            "for Quire."
        ) from error


def note_path(path: Path) -> Path:
    """Return the path of a part's note."""
    return path.with_name(path.name + ".note")


def digest_of(uri: str) -> str:
    """Return what a note holds in place of a URI, which may have a password in it."""
    return hashlib.blake2b(uri.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def write_note(path: Path, note: dict[str, object]) -> None:
    """Record which item a part belongs to."""
    note_file = note_path(path)
    fresh = note_file.with_name(note_file.name + ".tmp")
    with disk_errors(path.name, path):
        fresh.write_text(json.dumps(note))
        os.replace(fresh, note_file)  # noqa: PTH105


def read_note(path: Path) -> dict[str, object]:
    """Return the note of a part, empty if there is none."""
    try:
        note = json.loads(note_path(path).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def remove(path: Path) -> None:
    """Remove a part and its note."""
    path.unlink(missing_ok=True)
    note_path(path).unlink(missing_ok=True)


def too_large(subject: str, size: int, most: int) -> SourceRefused:
    """Return the error for a file above the size limit."""
    return SourceRefused(
        f"{subject}: larger than the limit (at most {most:,} bytes, got {size:,} or more). "
        "Nothing was stored; raise the limit to ingest it."
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
    """Write a stream of bytes, such as an upload or a local file, to a new part."""
    with closing(PartFile(part, subject, with_md5=with_md5)) as file:
        for piece in pieces:
            check()
            file.refuse_above(max_bytes, file.size + len(piece))
            file.write(piece)
            progress(file.size, total)
        return Fetched(file.size, file.sha256, file.md5)
