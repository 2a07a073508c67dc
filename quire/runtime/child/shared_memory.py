"""The memory that a worker and one child share: what runs, what is revoked, what has ended.

Which task runs and since when is one 8-byte word, so a reader never sees a mixed pair. Rows of
ended tasks wait here until they are sent, so a child that dies takes none with it.

The right to begin a task is no flag in this memory: with two flags each side could read the
other's too early (a store may pass a later load), and fences are out of Python's reach. It is
a byte in a pipe that both sides read, the *turnstile*: the kernel gives each byte to one of them.
"""

import mmap
import os

BATCH_LIMIT = 512
OUTBOX = 64 * 1024

_REVOKED_AT = 64
_OUTBOX_AT = 1024
_SIZE = _OUTBOX_AT + OUTBOX
_RUNNING, _MOVED, _FILLED = range(3)
_INDEX_BITS = 10
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def make_memory() -> int:
    """Return the descriptor of a fresh slate, all zero; the caller closes it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("quire-slate")
    else:
        import tempfile  # only here: it would cost each child a megabyte

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    return fd


class Slate:
    """One side's view of the shared memory; times are microseconds of the monotonic clock."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _SIZE)
        self._view = memoryview(self._memory)
        self._words = self._view[:_REVOKED_AT].cast("q")
        self._revoked = self._view[_REVOKED_AT : _REVOKED_AT + BATCH_LIMIT]
        self._outbox = self._view[_OUTBOX_AT:]

    def close(self) -> None:
        """Unmap the memory; the slate cannot be used afterwards."""
        for view in (self._words, self._revoked, self._outbox, self._view):
            view.release()
        self._memory.close()

    def clear(self) -> None:
        """Make it ready for the next batch; only while the child has none."""
        self._words[_RUNNING] = self._words[_MOVED] = self._words[_FILLED] = 0
        self._revoked[:] = bytes(BATCH_LIMIT)

    def begin(self, index: int, micros: int) -> None:
        """Say that the task at `index` of the batch starts now."""
        self._words[_MOVED] = micros
        self._words[_RUNNING] = micros << _INDEX_BITS | index + 1

    def rest(self) -> None:
        """Say that no task runs."""
        self._words[_RUNNING] = 0

    def running(self) -> tuple[int, float] | None:
        """Return the index of the running task and its start in monotonic seconds."""
        word = self._words[_RUNNING]
        if not word:
            return None
        return (word & _INDEX_MASK) - 1, (word >> _INDEX_BITS) / 1e6

    def move(self, micros: int) -> None:
        """Say that the running task made progress."""
        self._words[_MOVED] = micros

    def moved_at(self) -> float:
        """Return when a task last began or made progress, in monotonic seconds."""
        return self._words[_MOVED] / 1e6

    def revoke(self, index: int) -> None:
        """Ask for the task at `index` to be stopped, or skipped if it has not begun."""
        self._revoked[index] = 1

    def is_revoked(self, index: int) -> bool:
        """Tell whether the task at `index` was asked to stop."""
        return self._revoked[index] != 0

    def keep(self, row: bytes) -> bool:
        """Append the row of an ended task to the outbox, or return False when it has no room."""
        start = self._words[_FILLED]
        end = start + len(row) + 1
        if end > OUTBOX:
            return False
        self._outbox[start:end] = row + b","
        # After the bytes: a child that dies in between leaves no half row behind.
        self._words[_FILLED] = end
        return True

    def kept(self) -> bytes:
        """Return the rows in the outbox as the inside of a JSON list."""
        return bytes(self._outbox[: max(self._words[_FILLED] - 1, 0)])

    def kept_any(self) -> bool:
        """Tell whether rows wait in the outbox."""
        return self._words[_FILLED] != 0

    def forget(self) -> None:
        """Empty the outbox, once its rows are sent."""
        self._words[_FILLED] = 0


class Turnstile:
    """The right to begin each task of a batch, as bytes in a pipe that both sides may take."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def take(self) -> bool:
        """Take the right to begin the next task, or return False when none is left."""
        try:
            return bool(os.read(self._fd, 1))
        except BlockingIOError:
            return False

    def take_rest(self) -> int:
        """Take all that is left; so many tasks at the batch's end can never begin."""
        taken = 0
        while True:
            try:
                found = len(os.read(self._fd, BATCH_LIMIT))
            except BlockingIOError:
                return taken
            if not found:
                return taken
            taken += found
