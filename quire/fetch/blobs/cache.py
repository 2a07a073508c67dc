"""A bounded folder of blobs whose truth is elsewhere: what was used longest ago goes first.

Who uses a file holds a shared lock on it, also over processes; the one who makes room takes the
lock for itself first, or lets the file be. A process holds the last few that it asked for.
"""

import fcntl
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quire.errors import Damaged, Gone
from quire.fetch.blobs.folder import BlobFolder
from quire.fetch.transfer.part_file import disk_words

#: Files that one process holds, and seconds in which one that was asked for never goes: between
#: asking for a path and opening it.
HELD, YOUNG = 4, 60.0
#: Room is made when this part of the limit has come in, and then down to this part of it.
EACH, DOWN_TO = 1 / 16, 0.9


class BlobCache(BlobFolder):
    """Blobs in a folder of this machine that may vanish when nobody uses them."""

    def __init__(self, root: Path, limit: int, *, young: float = YOUNG) -> None:
        super().__init__(root)
        self._limit = limit
        self._young = young
        self._held: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()
        self._come: float = limit  # look at the folder at the first chance

    def held_path(self, digest: str, size: int) -> Path | None:
        """Return where the bytes are, verified and held, or None where they are not here."""
        try:
            place = self.path(digest)
            number = self._hold(place)
            place = self.checked_path(digest, size)
        except FileNotFoundError:
            return None
        except (Damaged, Gone):
            os.close(number)
            self.delete(digest)
            return None
        self._keep_hold(digest, number)
        return place

    @contextmanager
    def alone(self, digest: str) -> Iterator[None]:
        """Let one process at a time bring a blob here; the others find it when they come in."""
        lock = self.scratch(f"lock-{digest}")
        with disk_words(digest, lock):
            number = self._locked(lock, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(number)

    def came(self, count: int) -> None:
        """Count what was added, and make room now and then."""
        self._come += count
        if self._come >= self._limit * EACH:
            self._come = 0.0
            self.make_room()

    def make_room(self) -> int:
        """Remove files that nobody uses, until what is left fits; returns how many went."""
        known = sorted(self._files())
        total = sum(size for _, size, _ in known)
        if total <= self._limit:
            return 0
        count, before = 0, time.time() - self._young
        for used_at, size, place in known:
            if total <= self._limit * DOWN_TO or used_at > before:
                break
            if _remove_unused(place):
                total -= size
                count += 1
        return count

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        for folder in self.root.glob("??"):
            with suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(folder):
                    stat = entry.stat()
                    yield stat.st_atime, stat.st_size, folder / entry.name

    def _hold(self, place: Path) -> int:
        """Hold a file so that it is not removed, and note that it is used."""
        number = self._locked(place, fcntl.LOCK_SH, os.O_RDONLY)
        with suppress(PermissionError):
            os.utime(place, ns=(time.time_ns(), os.fstat(number).st_mtime_ns))
        return number

    def _locked(self, place: Path, how: int, flags: int) -> int:
        """Lock the file that has this name, not one that had it when the lock was asked for."""
        while True:
            number = os.open(place, flags | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(number, how)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(number), place.stat()):
                        return number
            except BaseException:
                os.close(number)
                raise
            os.close(number)

    def _keep_hold(self, digest: str, number: int) -> None:
        with self._guard:
            if (earlier := self._held.pop(digest, None)) is not None:
                os.close(earlier)
            self._held[digest] = number
            while len(self._held) > HELD:
                os.close(self._held.popitem(last=False)[1])


def _remove_unused(place: Path) -> bool:
    try:
        number = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(number)
    return True
