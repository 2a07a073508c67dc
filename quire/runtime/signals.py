"""Signals as something a selector can wait for: none is missed between a look and a wait."""

import contextlib
import os
import selectors
import signal
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Bell:
    """Counts the requests to stop; any caught signal ends the selector's wait."""

    def __init__(self, selector: selectors.BaseSelector, *also: signal.Signals) -> None:
        self.rung = 0
        self._inner, outer = os.pipe()
        for end in (self._inner, outer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)
        for number in (*STOPPING, *also):
            signal.signal(number, self._on_signal)
        selector.register(self._inner, selectors.EVENT_READ, "bell")

    def hear(self) -> None:
        """Take what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._inner, 64):
                pass

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in STOPPING:
            self.rung += 1
