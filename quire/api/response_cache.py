"""Cache slow responses, for a time in proportion to what they cost.

Counting a million jobs takes a second. Dashboards that poll would keep a core busy; with this
cache, at most a tenth of one.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

#: Responses that take less than this are not cached.
QUICK = 0.1
_SHARE = 10.0
_LONGEST = 60.0


class _Kept(NamedTuple):
    answer: Any
    at: float
    until: float


class ResponseCache:
    """Responses by key; thread-safe. Only one thread computes the response of a key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._making: dict[str, threading.Lock] = {}

    def get(
        self, key: str, compute: Callable[[], Any], *, at_least: float = 0.0
    ) -> tuple[Any, float]:
        """Return the response and its age; it is kept for `at_least` some seconds."""
        if (kept := self._fresh(key)) is not None:
            return kept.answer, self._clock() - kept.at
        with self._making.setdefault(key, threading.Lock()):
            if (kept := self._fresh(key)) is not None:
                return kept.answer, self._clock() - kept.at
            began = self._clock()
            answer = compute()
            took = self._clock() - began
            self._kept.pop(key, None)
            keep = max(min(took * _SHARE, _LONGEST) if took >= QUICK else 0.0, at_least)
            if keep:
                self._kept[key] = _Kept(answer, began + took, began + took + keep)
            return answer, 0.0

    def _fresh(self, key: str) -> _Kept | None:
        kept = self._kept.get(key)
        return kept if kept is not None and self._clock() < kept.until else None
