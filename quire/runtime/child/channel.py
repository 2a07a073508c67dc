"""What a worker and one of its child processes share: messages, shared memory, start tokens.

A message is a 4-byte big-endian length and JSON. Leases and reports are named tuples because these
are JSON lists already: a batch of hundreds is encoded without touching the fields.

Shared memory holds what runs, what is revoked and what has ended. The running task and its start
are one 8-byte word, so a reader never sees a mixed pair. Reports of ended tasks wait there until
they are sent, so a child that dies takes none of them with it.

The right to start a task is not a flag in shared memory: with two flags each side could read the
other's too early (CPUs reorder a store and a later load), and Python has no memory fences. It is
a byte in a pipe that both sides read, a *start token*: the kernel gives each byte to one reader.
"""

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import struct
import threading
from time import monotonic
from typing import Any, NamedTuple

MAX_MESSAGE = 256 * 1024 * 1024
MAX_BATCH = 512
#: Bytes of shared memory for reports of ended tasks.
OUTBOX_BYTES = 64 * 1024
#: Reports of ended tasks are sent this often while a batch runs.
REPORT_EVERY = 0.02
PROGRESS_EVERY = 0.1

_LENGTH = struct.Struct(">I")
_REVOKED_AT = 64
_OUTBOX_AT = 1024
_MEMORY_BYTES = _OUTBOX_AT + OUTBOX_BYTES
_RUNNING, _PROGRESS_AT, _FILLED, _SETTLED = range(4)
_INDEX_BITS = 10
_INDEX_MASK = (1 << _INDEX_BITS) - 1


class Progress(NamedTuple):
    """A progress report of a running task."""

    task_id: int
    fence: int
    fraction: float | None
    message: str | None


class BrokenMessage(Exception):
    """The other side sent bytes that are no message; what follows them cannot be read."""


def frame(body: bytes) -> bytes:
    """Prepend the length to an encoded message."""
    return _LENGTH.pack(len(body)) + body


def pack(message: dict[str, Any]) -> bytes:
    """Encode a message with its length."""
    return frame(json.dumps(message, separators=(",", ":")).encode())


class Inbox:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Add received bytes and return the messages that are complete."""
        self._bytes += chunk
        messages: list[dict[str, Any]] = []
        at = 0
        while len(self._bytes) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes, at)
            if length > MAX_MESSAGE:
                raise BrokenMessage(f"a message of {length} bytes (at most {MAX_MESSAGE})")
            start = at + _LENGTH.size
            if len(self._bytes) < start + length:
                break
            at = start + length
            try:
                message = json.loads(self._bytes[start:at])
            except ValueError as error:
                raise BrokenMessage(f"a message that is not JSON: {error}") from error
            if not isinstance(message, dict):
                raise BrokenMessage(f"a message that is a {type(message).__name__}, not an object")
            messages.append(message)
        del self._bytes[:at]
        return messages


def printable(text: str) -> str:
    """Replace what a database cannot store: NUL and lone surrogates."""
    return text.encode(errors="replace").decode().replace("\0", "\\0")


def create_memory() -> int:
    """Return the descriptor of new shared memory, all zeros; the caller closes it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("quire-child")
    else:
        import tempfile  # only here: it costs each child a megabyte

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _MEMORY_BYTES)
    return fd


class SharedMemory:
    """One side's view of the shared memory; times are microseconds of the monotonic clock."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _MEMORY_BYTES)
        self._view = memoryview(self._memory)
        self._words = self._view[:_REVOKED_AT].cast("q")
        self._revoked = self._view[_REVOKED_AT : _REVOKED_AT + MAX_BATCH]
        self._outbox = self._view[_OUTBOX_AT:]

    def close(self) -> None:
        """Unmap the memory."""
        for view in (self._words, self._revoked, self._outbox, self._view):
            view.release()
        self._memory.close()

    def clear(self) -> None:
        """Prepare for the next batch; only while the child is idle."""
        for word in (_RUNNING, _PROGRESS_AT, _FILLED, _SETTLED):
            self._words[word] = 0
        self._revoked[:] = bytes(MAX_BATCH)

    def start(self, index: int, micros: int) -> None:
        """Record that the task at `index` of the batch starts."""
        self._words[_PROGRESS_AT] = micros
        self._words[_RUNNING] = micros << _INDEX_BITS | index + 1

    def finish(self) -> None:
        """Record that no task runs."""
        self._words[_RUNNING] = 0

    def running(self) -> tuple[int, float] | None:
        """Return the index of the running task and its start in monotonic seconds."""
        word = self._words[_RUNNING]
        if not word:
            return None
        return (word & _INDEX_MASK) - 1, (word >> _INDEX_BITS) / 1e6

    def touch(self, micros: int) -> None:
        """Record that the running task made progress."""
        self._words[_PROGRESS_AT] = micros

    def progress_at(self) -> float:
        """Return when a task last started or made progress, in monotonic seconds."""
        return self._words[_PROGRESS_AT] / 1e6

    def revoke(self, index: int) -> None:
        """Ask the task at `index` to stop, or skip it if it has not started."""
        self._revoked[index] = 1

    def is_revoked(self, index: int) -> bool:
        """Tell whether the task at `index` was asked to stop."""
        return self._revoked[index] != 0

    def settle(self, index: int) -> None:
        """Record that the task at `index` has committed its end and may still run."""
        self._words[_SETTLED] = index + 1

    def is_settled(self, index: int) -> bool:
        """Tell whether the running task at `index` has committed its end."""
        return self._words[_SETTLED] == index + 1

    def append(self, report: bytes) -> bool:
        """Append the report of an ended task to the outbox; return False if it is full."""
        start = self._words[_FILLED]
        end = start + len(report) + 1
        if end > OUTBOX_BYTES:
            return False
        self._outbox[start:end] = report + b","
        # After the bytes: a child that dies in between leaves no half report.
        self._words[_FILLED] = end
        return True

    def reports(self) -> bytes:
        """Return the reports in the outbox as the inside of a JSON list."""
        return bytes(self._outbox[: max(self._words[_FILLED] - 1, 0)])

    def has_reports(self) -> bool:
        """Tell whether reports wait in the outbox."""
        return self._words[_FILLED] != 0

    def clear_reports(self) -> None:
        """Empty the outbox after its reports were sent."""
        self._words[_FILLED] = 0


class StartTokens:
    """The right to start each task of a batch: bytes in a pipe that both sides may take."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def take(self) -> bool:
        """Take the token of the next task; return False if none is left."""
        try:
            return bool(os.read(self._fd, 1))
        except BlockingIOError:
            return False

    def take_all(self) -> int:
        """Take all tokens that are left: so many tasks at the end of the batch cannot start."""
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while found := len(os.read(self._fd, MAX_BATCH)):
                taken += found
        return taken


class Channel:
    """The child's end of the connection; safe to use from the threads of a handler.

    Reports of ended tasks are sent in bulk, progress at most ten times a second: one message per
    task would cost more than a small task. Reports go out at the end of a batch or after 20 ms,
    from the main thread between two tasks or from a thread here while a long task runs. The same
    thread ends the process group when the parent is gone.
    """

    def __init__(self, connection: socket.socket, memory: SharedMemory, parent_pipe: int) -> None:
        self.is_forked = False
        self._connection = connection
        self._memory = memory
        self._parent_pipe = parent_pipe
        self._parent = os.getppid()
        self._lock = threading.Lock()
        self._sent_at = 0.0
        self._task = (0, 0)
        self._progress_at = 0.0
        self._unsent_progress: list[Any] | None = None
        #: The thread is awake and will send what waits.
        self._is_thread_awake = False
        self._read_end, self._write_end = os.pipe()
        os.register_at_fork(after_in_child=self._after_fork)
        threading.Thread(target=self._watch, name="quire-channel", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message now."""
        self._send(pack(message))

    def start_batch(self) -> None:
        """Restart the time until the next report."""
        self._sent_at = monotonic()

    def start_task(self, task_id: int, fence: int) -> None:
        """Set the task of the progress that follows."""
        self._task = (task_id, fence)
        # Progress of the first moments waits: most tasks have ended by then.
        self._progress_at = monotonic()
        if not self._is_thread_awake and self._memory.has_reports():
            with self._lock:
                self._wake_thread()

    def progress(self, fraction: float | None, message: str | None) -> None:
        """Send progress of the running task, or keep it until 100 ms after the last report."""
        with self._lock:
            if self.is_forked:
                return
            self._unsent_progress = [*self._task, fraction, message]
            if monotonic() >= self._progress_at + PROGRESS_EVERY:
                self._send_progress()
            elif not self._is_thread_awake:
                self._wake_thread()

    def drop_progress(self) -> None:
        """Drop unsent progress: the end of the task is committed, so it would be refused."""
        with self._lock:
            self._unsent_progress = None

    def log_line(self, text: str) -> None:
        """Send a log line of the running task now."""
        with self._lock:
            if not self.is_forked:
                self._send(pack({"progress": [[*self._task, None, text]]}))

    def log_event(self, level: str, name: str, fields: dict[str, str]) -> None:
        """Send an event for the log of the worker, which the job does not show."""
        with self._lock:
            if not self.is_forked:
                self._send(pack({"log": [[level, name, fields]]}))

    def report(self, ended: bytes, now: float) -> None:
        """Keep the report of an ended task, and send all reports if 20 ms have passed."""
        with self._lock:
            if self._unsent_progress is not None:
                self._send_progress()
            if not self._memory.append(ended):
                self._flush(now)
                if not self._memory.append(ended):
                    self._send(frame(b'{"ended":[' + ended + b"]}"))
            if now >= self._sent_at + REPORT_EVERY:
                self._flush(now)

    def end_batch(self, batch: int) -> None:
        """Send the reports, and that the child is idle."""
        with self._lock:
            rows = self._memory.reports()
            self._send(frame(b'{"ended":[' + rows + b'],"idle":' + str(batch).encode() + b"}"))
            self._memory.clear_reports()

    def _flush(self, now: float) -> None:
        if rows := self._memory.reports():
            self._send(frame(b'{"ended":[' + rows + b"]}"))
            self._memory.clear_reports()
        self._sent_at = now

    def _send_progress(self) -> None:
        self._send(pack({"progress": [self._unsent_progress]}))
        self._unsent_progress = None
        self._progress_at = monotonic()

    def _send(self, message: bytes) -> None:
        try:
            self._connection.sendall(message)
        except OSError:
            # With the parent alive, a handler closed the socket: a crash of the task.
            if os.getppid() == self._parent:
                os._exit(1)
            _kill_group()

    def _wake_thread(self) -> None:
        self._is_thread_awake = True
        os.write(self._write_end, b"!")

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._parent_pipe, 0)
        poll.register(self._read_end, select.POLLIN)
        wait: float | None = None
        while True:
            ready = dict(poll.poll(None if wait is None else wait * 1000))
            if ready.get(self._parent_pipe, 0) & select.POLLNVAL:
                return  # a handler closed it; the parent sees the closed connection too
            if self._parent_pipe in ready:
                _kill_group()
            if self._read_end in ready:
                os.read(self._read_end, 64)
                wait = REPORT_EVERY
            else:
                wait = self._send_waiting()

    def _send_waiting(self) -> float | None:
        """Send what has waited long enough; return the seconds until the next call."""
        with self._lock:
            now = monotonic()
            self._flush(now)
            wait = self._progress_at + PROGRESS_EVERY - now
            if self._unsent_progress is not None and wait > 0:
                return wait
            if self._unsent_progress is not None:
                self._send_progress()
            self._is_thread_awake = False
            return None

    def _after_fork(self) -> None:
        # A fork of a handler must not report for this child nor keep its connection open.
        self.is_forked = True
        self._lock = threading.Lock()
        self._unsent_progress = None
        self._connection.close()


def _kill_group() -> None:
    try:
        os.killpg(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)
