"""Blobs, stored under their SHA-256 in a folder of write-once files.

A blob is stored by rename after fsync, so it is complete or absent. Its bytes are hashed again at
the first read of each inode; a mismatch is an error.
"""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from quire.errors import BadInput, Conflict, Damaged, FetchFailed, Gone, Refused
from quire.fetch.names import safe_name
from quire.fetch.transfer.part_file import disk_errors, remove
from quire.home import make_folder

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FileIdentity = tuple[int, int, int, int]


class BlobFolder:
    """Blobs in a local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: dict[str, _FileIdentity] = {}

    def part_path(self, name: str) -> Path:
        """Return the path of a part; equal names give equal paths."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(os.fsencode(name)).hexdigest()
        folder = self.root / "parts"
        with disk_errors(name, folder / plain):
            make_folder(folder)
        return folder / f"{plain}.part"

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        """Store a part; the caller has computed its SHA-256.

        The bytes are hashed again unless the part `is_own`: nobody else knew its name.
        """
        path = self.path(digest)
        # Rename first: a worker that lost its lease may still write to the old name.
        own = part.with_name(f"{part.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        with disk_errors(digest, own):
            os.replace(part, own)  # noqa: PTH105
            try:
                self._adopt(own, path, digest, is_known=is_own)
            finally:
                own.unlink(missing_ok=True)
        remove(part)

    def _adopt(self, own: Path, path: Path, digest: str, *, is_known: bool) -> None:
        if not is_known and (got := _sha256(own)) != digest:
            raise FetchFailed(
                f"{own.name}: changed after it was verified (expected sha256 {digest}, got "
                f"{got}). The partial file was removed."
            )
        # Good bytes replace a blob that was damaged on disk.
        with suppress(Damaged, Gone):
            self.checked_path(digest, own.stat().st_size)
            return
        own.chmod(0o400)
        _sync(own)
        if not path.parent.is_dir():
            make_folder(path.parent)
            _sync(path.parent.parent)
        os.replace(own, path)  # noqa: PTH105
        _sync(path.parent)
        self._verified[digest] = self._identity(path)

    def path(self, digest: str) -> Path:
        """Return the path of a blob, whether it exists or not."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a SHA-256: {digest!r}")
        return self.root / digest[:2] / digest[2:]

    def verify(self, digest: str) -> bool:
        """Hash the bytes again and tell whether they match the digest."""
        return self._digest_of(digest) == digest

    def checked_path(self, digest: str, size: int) -> Path:
        """Return the path of the bytes, hashed once per inode, or raise Damaged."""
        path = self.path(digest)
        identity = self._identity(path)
        if self._verified.get(digest) == identity and identity[2] == size:
            return path
        if identity[2] != size:
            raise _damaged(digest, f"{size:,} bytes", f"{identity[2]:,}")
        if (got := self._digest_of(digest)) != digest:
            raise _damaged(digest, f"sha256 {digest}", got)
        self._verified[digest] = identity
        return path

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the blobs that exist."""
        found = {}
        for digest in digests:
            with suppress(OSError, ValueError):
                found[digest] = self.path(digest).stat().st_size
        return found

    def check_available(self) -> None:
        """Do nothing: a folder reports its problems when it is written to."""

    def probe(self) -> list[str]:
        """Return no problems: a folder reports them when it is used."""
        return []

    def presigned_url(self, digest: str, name: str, media_type: str, *, inline: bool) -> str | None:
        """Return None: a folder's bytes are served by the API."""
        return None

    def presigned_image(self, digest: str, name: str, draw: Callable[[], bytes]) -> str | None:
        """Return None: a folder's images are served by the API."""
        return None

    def delete(self, digest: str) -> None:
        """Delete a blob if it exists."""
        self._verified.pop(digest, None)
        self.path(digest).unlink(missing_ok=True)

    def save_as(self, digest: str, name: str, target: Path, *, replace: bool = False) -> Path:
        """Write the original to a file, or under its own name to a folder."""
        path = self.checked_path(digest, self._identity(self.path(digest))[2])
        return copy_to(path, name, target, replace=replace)

    def abandoned_parts(self, before: float) -> list[Path]:
        """Return the parts not written to since a wall-clock time."""
        found = []
        for entry in os.scandir(folder) if (folder := self.root / "parts").is_dir() else ():
            with suppress(FileNotFoundError):
                if not entry.name.endswith(".note") and entry.stat().st_mtime < before:
                    found.append(folder / entry.name)
        return sorted(found)

    def _identity(self, path: Path) -> _FileIdentity:
        try:
            stat = path.stat()
        except FileNotFoundError:
            raise Gone(
                f"blob {path.parent.name}{path.name}: missing from {self.root}. "
                "Fetch the document again."
            ) from None
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _digest_of(self, digest: str) -> str:
        path = self.path(digest)
        self._identity(path)
        return _sha256(path)


def copy_to(path: Path, name: str, target: Path, *, replace: bool) -> Path:
    """Copy a file atomically to a path, or under a name to a folder."""
    try:
        target_file = target / safe_name(name) if target.is_dir() else target
        if target_file.exists() and not replace:
            raise Conflict(
                f"{target_file}: already exists. Choose another path, or delete it first."
            )
        if not target_file.parent.is_dir():
            raise BadInput(
                f"{target_file.parent}: no such folder. Nothing was saved; create it, or choose "
                "another path."
            )
        _copy(path, target_file)
    except OSError as error:
        # A person waits for this copy, so the error is final.
        raise Refused(
            f"{name}: cannot be written to {target} ({error.strerror or error}). Nothing was "
            "saved; choose another path."
        ) from error
    return target_file


def _copy(path: Path, target_file: Path) -> None:
    # The target's name may be too long for a suffix.
    fresh = target_file.with_name(f".{(path.parent.name + path.name)[:16]}.part")
    try:
        shutil.copyfile(path, fresh)
        _sync(fresh)
        os.replace(fresh, target_file)  # noqa: PTH105
    except OSError:
        remove(fresh)
        raise


def _damaged(digest: str, expected: str, got: str) -> Damaged:
    return Damaged(
        f"blob {digest[:12]}…: the stored bytes have changed (expected {expected}, got {got}). "
        "Check the disk, then fetch the document again."
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Sync a file, or a folder's entries, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
