"""Bytes kept under their own SHA-256: a folder of files that are written once.

A blob is put by rename after fsync, so that it is whole or absent. Its bytes are hashed again
when they are first read in a life of the file; a mismatch is an error, never a result.
"""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from quire.errors import BadInput, Conflict, Damaged, FetchFailed, Gone, Refused
from quire.fetch.names import safe_name
from quire.fetch.transfer.part_file import disk_words, remove

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Life = tuple[int, int, int, int]


class Blobs(Protocol):
    """Where the bytes of documents are kept."""

    def scratch(self, name: str) -> Path:
        """Return the place of a part; the same name gives the same place."""
        ...

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        """Keep a part's bytes, whose SHA-256 the caller has computed.

        They are hashed again, unless the part `is_own`: no one else has known its name.
        """
        ...

    def path(self, digest: str) -> Path:
        """Return where the bytes are."""
        ...

    def checked_path(self, digest: str, size: int) -> Path:
        """Return where the bytes are, after they were verified, or raise Damaged."""
        ...

    def verify(self, digest: str) -> bool:
        """Hash the bytes again and tell whether they are what they were."""
        ...

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the sizes of those of these blobs that are there."""
        ...

    def require(self) -> None:
        """Raise BlobsUnavailable where blobs could not be kept a moment ago, and still cannot."""
        ...

    def probe(self) -> list[str]:
        """Say what is wrong with the place that blobs are kept in; nothing, if all is well."""
        ...

    def link(self, digest: str, name: str, media_type: str, *, shown: bool) -> str | None:
        """Return a URL that gives these bytes for some minutes, where the store signs such."""
        ...

    def link_drawn(self, digest: str, name: str, draw: Callable[[], bytes]) -> str | None:
        """Return such a URL of a PNG that is drawn from a blob, and drawn only if it is missing."""
        ...

    def abandoned(self, before: float) -> list[Path]:
        """Return the parts that nobody has written to since a moment of the wall clock."""
        ...

    def delete(self, digest: str) -> None:
        """Remove the bytes, if they are there."""
        ...

    def save_as(self, digest: str, name: str, target: Path, *, replace: bool = False) -> Path:
        """Write the original to a file, or under its own name into a folder."""
        ...


class BlobFolder:
    """Blobs in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: dict[str, _Life] = {}

    def scratch(self, name: str) -> Path:
        """Return the place of a part; the same name gives the same place."""
        plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(os.fsencode(name)).hexdigest()
        folder = self.root / "parts"
        with disk_words(name, folder / plain):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{plain}.part"

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        """Keep a part's bytes, whose SHA-256 the caller has computed."""
        place = self.path(digest)
        # Under a name of its own first: a worker that was given up may still know the old one.
        own = part.with_name(f"{part.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        with disk_words(digest, own):
            os.replace(part, own)  # noqa: PTH105
            try:
                self._adopt(own, place, digest, is_known=is_own)
            finally:
                own.unlink(missing_ok=True)
        remove(part)

    def _adopt(self, own: Path, place: Path, digest: str, *, is_known: bool) -> None:
        if not is_known and (got := _sha256(own)) != digest:
            raise FetchFailed(
                f"{own.name}: was changed after it was checked (expected sha256 {digest}, got "
                f"{got}). The partial file was removed; the work is tried again."
            )
        if place.exists() and self._is_whole(digest, own.stat().st_size):
            return
        own.chmod(0o444)
        _sync(own)
        _make_folder(place.parent)
        os.replace(own, place)  # noqa: PTH105
        _sync(place.parent)
        self._verified[digest] = self._life(place)

    def path(self, digest: str) -> Path:
        """Return where the bytes are, or would be."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a SHA-256: {digest!r}")
        return self.root / digest[:2] / digest[2:]

    def verify(self, digest: str) -> bool:
        """Hash the bytes again and tell whether they are what they were."""
        return self._digest_of(digest) == digest

    def checked_path(self, digest: str, size: int) -> Path:
        """Return where the bytes are, hashed once for each life of the file, or raise Damaged."""
        place = self.path(digest)
        life = self._life(place)
        if self._verified.get(digest) == life and life[2] == size:
            return place
        if life[2] != size:
            raise _damaged(digest, f"{size:,} bytes", f"{life[2]:,}")
        if (got := self._digest_of(digest)) != digest:
            raise _damaged(digest, f"sha256 {digest}", got)
        self._verified[digest] = life
        return place

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the sizes of those of these blobs that are there."""
        found = {}
        for digest in digests:
            with suppress(OSError, ValueError):
                found[digest] = self.path(digest).stat().st_size
        return found

    def require(self) -> None:
        """Do nothing: a folder is there, or says why not when it is written to."""

    def probe(self) -> list[str]:
        """Find nothing: a folder says what is wrong with it when it is used."""
        return []

    def link(self, digest: str, name: str, media_type: str, *, shown: bool) -> str | None:
        """Return None: the bytes of a folder go through the API."""
        return None

    def link_drawn(self, digest: str, name: str, draw: Callable[[], bytes]) -> str | None:
        """Return None, as `link` does."""
        return None

    def delete(self, digest: str) -> None:
        """Remove the bytes, if they are there."""
        self._verified.pop(digest, None)
        self.path(digest).unlink(missing_ok=True)

    def save_as(self, digest: str, name: str, target: Path, *, replace: bool = False) -> Path:
        """Write the original to a file, or under its own name into a folder."""
        place = self.checked_path(digest, self._life(self.path(digest))[2])
        return copied(place, name, target, replace=replace)

    def abandoned(self, before: float) -> list[Path]:
        """Return the parts that nobody has written to since a moment of the wall clock."""
        found = []
        for entry in os.scandir(folder) if (folder := self.root / "parts").is_dir() else ():
            with suppress(FileNotFoundError):
                if not entry.name.endswith(".note") and entry.stat().st_mtime < before:
                    found.append(folder / entry.name)
        return sorted(found)

    def _is_whole(self, digest: str, size: int) -> bool:
        # Good bytes take the place of a blob that was damaged on the disk.
        try:
            self.checked_path(digest, size)
        except (Damaged, Gone):
            return False
        return True

    def _life(self, place: Path) -> _Life:
        try:
            stat = place.stat()
        except FileNotFoundError:
            raise Gone(
                f"blob {place.parent.name}{place.name}: its file is missing from {self.root}. "
                "Fetch the document again."
            ) from None
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _digest_of(self, digest: str) -> str:
        place = self.path(digest)
        self._life(place)
        return _sha256(place)


def copied(place: Path, name: str, target: Path, *, replace: bool) -> Path:
    """Copy a file to another, or under a name into a folder, whole or not at all."""
    try:
        goal = target / safe_name(name) if target.is_dir() else target
        if goal.exists() and not replace:
            raise Conflict(f"{goal}: exists already. Name another place, or remove it first.")
        if not goal.parent.is_dir():
            raise BadInput(
                f"{goal.parent}: there is no such folder. Nothing was saved; make it first, or "
                "name another place."
            )
        _copy(place, goal)
    except OSError as error:
        # Somebody waits for this one: nothing tries it again.
        raise Refused(
            f"{name}: cannot be written to {target} ({error.strerror or error}). Nothing was "
            "saved; name another place."
        ) from error
    return goal


def _copy(place: Path, goal: Path) -> None:
    # The goal's own name may have no room for a suffix.
    fresh = goal.with_name(f".{(place.parent.name + place.name)[:16]}.part")
    try:
        shutil.copyfile(place, fresh)
        _sync(fresh)
        os.replace(fresh, goal)  # noqa: PTH105
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


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
    """Make what was written to a file, or renamed in a folder, survive a power cut."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
