"""What a child tells its worker: ended tasks in bulk, progress at most ten times a second.

Sending once per task would cost more than a small task. Rows wait in the slate and go out at
the end of a batch, or after 20 ms: by the main thread between two tasks, or by the thread here
while a long task runs. The same thread ends the process group when the parent is gone.
"""

import os
import select
import signal
import socket
import threading
from time import monotonic
from typing import Any

from quire.runtime.child.shared_memory import Slate
from quire.runtime.child.wire import frame, pack

REPORT_EVERY = 0.02
PROGRESS_EVERY = 0.1


class Outlet:
    """The child's end of the connection; safe to use from the threads of a handler."""

    def __init__(self, connection: socket.socket, slate: Slate, leash: int) -> None:
        self.is_forked = False
        self._connection = connection
        self._slate = slate
        self._leash = leash
        self._parent = os.getppid()
        self._lock = threading.Lock()
        self._sent_at = 0.0
        self._task = (0, 0)
        self._told_at = 0.0
        self._untold: list[Any] | None = None
        self._late = False
        self._bell, self._ring = os.pipe()
        os.register_at_fork(after_in_child=self._leave)
        threading.Thread(target=self._watch, name="quire-outlet", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message now."""
        self._send(pack(message))

    def open_batch(self) -> None:
        """Count the time to the next report from now."""
        self._sent_at = monotonic()

    def begin(self, task_id: int, fence: int) -> None:
        """Say which task is meant by the progress that follows."""
        self._task = (task_id, fence)
        # What a task says in its first moments waits: most have ended by then.
        self._told_at = monotonic()
        if not self._late and self._slate.kept_any():
            with self._lock:
                self._call_thread()

    def progress(self, fraction: float | None, message: str | None) -> None:
        """Send the progress of the running task, or keep it until 100 ms after the last one."""
        with self._lock:
            if self.is_forked:
                return
            self._untold = [*self._task, fraction, message]
            if monotonic() >= self._told_at + PROGRESS_EVERY:
                self._tell()
            elif not self._late:
                self._call_thread()

    def drop_progress(self) -> None:
        """Forget what is not sent yet: the task's end is written, so nobody would take it."""
        with self._lock:
            self._untold = None

    def say(self, text: str) -> None:
        """Send a line about the running task now."""
        with self._lock:
            if not self.is_forked:
                self._send(pack({"progress": [[*self._task, None, text]]}))

    def ended(self, row: bytes, now: float) -> None:
        """Keep the row of an ended task, and send what is kept if 20 ms have passed."""
        with self._lock:
            if self._untold is not None:
                self._tell()
            if not self._slate.keep(row):
                self._flush(now)
                if not self._slate.keep(row):
                    self._send(frame(b'{"ended":[' + row + b"]}"))
            if now >= self._sent_at + REPORT_EVERY:
                self._flush(now)

    def close_batch(self, batch: int) -> None:
        """Send what is kept and that the child is free."""
        with self._lock:
            rows = self._slate.kept()
            self._send(frame(b'{"ended":[' + rows + b'],"idle":' + str(batch).encode() + b"}"))
            self._slate.forget()

    def _flush(self, now: float) -> None:
        if rows := self._slate.kept():
            self._send(frame(b'{"ended":[' + rows + b"]}"))
            self._slate.forget()
        self._sent_at = now

    def _tell(self) -> None:
        self._send(pack({"progress": [self._untold]}))
        self._untold = None
        self._told_at = monotonic()

    def _send(self, message: bytes) -> None:
        try:
            self._connection.sendall(message)
        except OSError:
            # With the parent alive, a handler closed the socket: that is a crash, not a kill.
            if os.getppid() == self._parent:
                os._exit(1)
            _end_group()

    def _call_thread(self) -> None:
        self._late = True
        os.write(self._ring, b"!")

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._leash, 0)
        poll.register(self._bell, select.POLLIN)
        wait: float | None = None
        while True:
            ready = dict(poll.poll(None if wait is None else wait * 1000))
            if ready.get(self._leash, 0) & select.POLLNVAL:
                return  # a handler closed it; the parent sees that the connection is closed too
            if self._leash in ready:
                _end_group()
            if self._bell in ready:
                os.read(self._bell, 64)
                wait = REPORT_EVERY
            else:
                wait = self._send_late()

    def _send_late(self) -> float | None:
        """Send what waited long enough and return in how many seconds to look again."""
        with self._lock:
            now = monotonic()
            self._flush(now)
            due = self._told_at + PROGRESS_EVERY - now
            if self._untold is not None and due > 0:
                return due
            if self._untold is not None:
                self._tell()
            self._late = False
            return None

    def _leave(self) -> None:
        # A fork of a handler must neither speak for this child nor keep its connection open.
        self.is_forked = True
        self._lock = threading.Lock()
        self._untold = None
        self._connection.close()


def _end_group() -> None:
    try:
        os.killpg(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)
