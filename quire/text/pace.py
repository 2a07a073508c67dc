"""Keeps requests within so many a minute; the clock and the waiting are given by the caller."""

from collections.abc import Callable

_MINUTE = 60.0


class Bucket:
    """Fills by `per_minute` a minute up to what ten seconds bring; may be overdrawn once.

    What is larger than the bucket still passes, and is paid for by the ones after it.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._rate = per_minute / _MINUTE
        self._size = max(1.0, per_minute / 6)
        self._level = self._size
        self._clock, self._filled_at = clock, clock()

    def delay(self) -> float:
        """Return the seconds until something may be taken."""
        now = self._clock()
        gained = max(0.0, now - self._filled_at) * self._rate
        self._level = min(self._size, self._level + gained)
        self._filled_at = now
        return 0.0 if self._level > 0 else (1e-3 - self._level) / self._rate

    def take(self, amount: float) -> None:
        """Take an amount, even one that is not there yet."""
        self._level -= amount


class Pace:
    """Both limits of an endpoint: requests and tokens a minute; 0 is no limit."""

    def __init__(
        self,
        requests: float,
        tokens: float,
        clock: Callable[[], float],
        wait: Callable[[float], None],
    ) -> None:
        self._requests = Bucket(requests, clock) if requests else None
        self._tokens = Bucket(tokens, clock) if tokens else None
        self._wait = wait
        self.waited = 0.0

    def enter(self, tokens: int) -> None:
        """Wait until one more request of so many tokens is allowed, and count it."""
        for bucket, amount in ((self._requests, 1), (self._tokens, tokens)):
            while bucket is not None and (seconds := bucket.delay()):
                self.pause(seconds)
            if bucket is not None:
                bucket.take(amount)

    def pause(self, seconds: float) -> None:
        """Wait, and remember how long."""
        self.waited += seconds
        self._wait(seconds)
