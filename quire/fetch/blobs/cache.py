"""Bounded local LRU cache of blobs that live in a bucket.

A user of a file holds a shared flock on it, across processes; eviction takes an exclusive lock
first or skips the file. Each process pins the last few files that it asked for.
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
from quire.fetch.transfer.part_file import disk_errors

#: Files that one process pins, and seconds during which a requested file is never evicted (the
#: time between asking for a path and opening it).
PINNED_FILES, GRACE_SECONDS = 4, 60.0
#: Evict after adding this share of the limit, down to this share of it.
EVICT_EVERY, EVICT_DOWN_TO = 1 / 16, 0.9


class BlobCache(BlobFolder):
    """Blobs in a local folder that may be evicted when unused."""

    def __init__(self, root: Path, limit: int, *, grace_seconds: float = GRACE_SECONDS) -> None:
        super().__init__(root)
        self._limit = limit
        self._grace_seconds = grace_seconds
        self._pinned: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()
        self._added_bytes: float = limit  # check the folder at the first addition

    def pinned_path(self, digest: str, size: int) -> Path | None:
        """Return the path of verified bytes and pin it, or None if they are not cached."""
        try:
            path = self.path(digest)
            number = self._lock_file(path, fcntl.LOCK_SH, os.O_RDONLY)
            with suppress(PermissionError):  # the access time, by which files are evicted
                os.utime(path, ns=(time.time_ns(), os.fstat(number).st_mtime_ns))
            path = self.checked_path(digest, size)
        except FileNotFoundError:
            return None
        except (Damaged, Gone):
            os.close(number)
            self.delete(digest)
            return None
        with self._guard:
            if (earlier := self._pinned.pop(digest, None)) is not None:
                os.close(earlier)
            self._pinned[digest] = number
            while len(self._pinned) > PINNED_FILES:
                os.close(self._pinned.popitem(last=False)[1])
        return path

    @contextmanager
    def lock(self, digest: str) -> Iterator[None]:
        """Let one process at a time download a blob; the others then find it in the cache."""
        lock = self.part_path(f"lock-{digest}")
        with disk_errors(digest, lock):
            number = self._lock_file(lock, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            os.close(number)

    def added(self, count: int) -> None:
        """Account added bytes and evict from time to time."""
        self._added_bytes += count
        if self._added_bytes >= self._limit * EVICT_EVERY:
            self._added_bytes = 0.0
            self.evict()

    def evict(self) -> int:
        """Delete unused files until the rest fits; returns how many."""
        known = sorted(self._files())
        total = sum(size for _, size, _ in known)
        if total <= self._limit:
            return 0
        count, before = 0, time.time() - self._grace_seconds
        for used_at, size, path in known:
            if total <= self._limit * EVICT_DOWN_TO or used_at > before:
                break
            if _remove_unused(path):
                total -= size
                count += 1
        return count

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        for folder in self.root.glob("??"):
            with suppress(FileNotFoundError, NotADirectoryError):
                for entry in os.scandir(folder):
                    stat = entry.stat()
                    yield stat.st_atime, stat.st_size, folder / entry.name

    def _lock_file(self, path: Path, how: int, flags: int) -> int:
        """Lock the file that has this name once the lock is granted: it may have been replaced."""
        while True:
            number = os.open(path, flags | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(number, how)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(number), path.stat()):
                        return number
            except BaseException:
                os.close(number)
                raise
            os.close(number)


def _remove_unused(path: Path) -> bool:
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(number)
    return True
