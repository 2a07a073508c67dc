"""The pipe from a supervisor to its processes: when it closes, the supervisor is gone."""

import os
import selectors

VARIABLE = "QUIRE_LEASH_FD"


class Leash:
    """This process's end of the pipe, if a supervisor started it."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.is_cut = False
        self._selector = selector
        self._fd: int | None = None
        number = os.environ.pop(VARIABLE, "")
        if number.isdigit():
            self._fd = int(number)
            os.set_inheritable(self._fd, False)
            selector.register(self._fd, selectors.EVENT_READ, "leash")

    def read(self) -> None:
        """Look whether the other end is closed."""
        if self._fd is not None and not os.read(self._fd, 16):
            self.is_cut = True
            self._selector.unregister(self._fd)
            os.close(self._fd)
            self._fd = None
