"""How a process learns that it must stop: by a signal, or because its parent is gone.

Both are file descriptors in the selector of the process, so that neither is missed between a
check and a wait.
"""

import contextlib
import os
import selectors
import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The environment variable with the descriptor of the parent pipe.
PARENT_FD = "QUIRE_PARENT_FD"


class SignalWatch:
    """Counts requests to stop; every caught signal wakes the selector."""

    def __init__(self, selector: selectors.BaseSelector, *also: signal.Signals) -> None:
        self.stop_requests = 0
        self._read_end, write_end = os.pipe()
        for end in (self._read_end, write_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, *also):
            signal.signal(number, self._on_signal)
        selector.register(self._read_end, selectors.EVENT_READ, "signal")

    def clear(self) -> None:
        """Empty the wake-up pipe."""
        drain_pipe(self._read_end)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in STOP_SIGNALS:
            self.stop_requests += 1


class ParentPipe:
    """The pipe from the process that started this one; it closes when that process ends."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.is_closed = False
        self._selector = selector
        self._fd: int | None = None
        number = os.environ.pop(PARENT_FD, "")
        if number.isdigit():
            self._fd = int(number)
            os.set_inheritable(self._fd, False)
            selector.register(self._fd, selectors.EVENT_READ, "parent")

    def read(self) -> None:
        """Check whether the other end is closed."""
        if self._fd is not None and not os.read(self._fd, 16):
            self.is_closed = True
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._fd = None


def drain_pipe(fd: int) -> None:
    """Read everything from a non-blocking pipe."""
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 64):
            pass
