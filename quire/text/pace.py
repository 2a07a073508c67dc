"""Keeps requests within so many a minute; the clock and the waiting are given by the caller.

Processes that name the same file share one limit: the file says from when on each bucket has
something in it, and who wants to send moves that on under a lock. What a process reserved and,
being killed, never sent is lost, which errs on the safe side.
"""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quire.clock import boot_id

_MINUTE = 60.0
_BURST = 10.0  # seconds of saving up


class Bucket(NamedTuple):
    """Fills by `per_minute` a minute up to what ten seconds bring; may be overdrawn once.

    What is larger than the bucket still passes, and is paid for by the ones after it.
    """

    per_minute: float

    def take(self, amount: float, free_at: float, now: float) -> tuple[float, float]:
        """Return when to send an amount, and from when on there is something again."""
        if not self.per_minute:
            return now, free_at
        burst = max(_BURST, _MINUTE / self.per_minute)  # at least one request
        begins = max(free_at, now - burst)
        return max(begins, now), begins + amount * _MINUTE / self.per_minute


class Pace:
    """Both limits of an endpoint: requests and tokens a minute; 0 is no limit."""

    def __init__(
        self,
        requests: float,
        tokens: float,
        clock: Callable[[], float],
        wait: Callable[[float], None],
        shared: Path | None = None,
    ) -> None:
        self._buckets = Bucket(requests), Bucket(tokens)
        self._own: list[float] = [0.0, 0.0]
        self._clock, self._wait, self._shared = clock, wait, shared
        self.waited = 0.0

    def enter(self, tokens: int) -> None:
        """Wait until one more request of so many tokens is allowed, and count it."""
        if not any(bucket.per_minute for bucket in self._buckets):
            return
        now = self._clock()
        with self._free_at() as free_at:
            begins = now
            for at, amount in enumerate((1, tokens)):
                may, free_at[at] = self._buckets[at].take(amount, free_at[at], now)
                begins = max(begins, may)
        if begins > now:
            self.pause(begins - now)

    def pause(self, seconds: float) -> None:
        """Wait, and remember how long."""
        self.waited += seconds
        self._wait(seconds)

    @contextlib.contextmanager
    def _free_at(self) -> Iterator[list[float]]:
        if self._shared is None:
            yield self._own
            return
        with self._shared.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            free_at = _parsed(file.read())
            yield free_at
            file.seek(0)
            file.truncate()
            file.write(" ".join([boot_id(), *map(repr, free_at)]))


def _parsed(text: str) -> list[float]:
    """Read what the last one wrote; the clock of another boot means nothing, nor a torn line."""
    boot, *numbers = text.split() or [""]
    try:
        found = [float(number) for number in numbers]
    except ValueError:
        found = []
    return found if boot == boot_id() and len(found) == 2 else [0.0, 0.0]
