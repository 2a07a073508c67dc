"""Limits the requests and tokens per minute that are sent to an embedding endpoint.

Two token buckets, for requests and for model tokens. Processes that name the same file share one
limit: the file holds the level of each bucket, and a sender takes from it under a file lock at the
moment of sending. A killed process has taken one request at most; a waiting one has taken nothing.
Levels are stored per boot, because monotonic clocks of different boots cannot be compared.
The caller passes in the clock and the function that waits.
"""

import fcntl
import math
import os
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from quire import log
from quire.clock import boot_id
from quire.errors import Transient

#: Called with the reason while waiting, and with None before each request.
OnWait = Callable[[str | None], None]

_MINUTE = 60.0
_BURST = 10.0  # seconds for which unused capacity accumulates
_POLL = 0.1  # seconds between two checks: well below the grace period of a stopped task
_MIN_WAIT = 0.01
_JITTER = 0.1
#: A call without `on_wait` holds a thread of the API: it may overdraw the buckets by this many
#: seconds of the limit, ahead of callers that can wait, and itself waits at most `_MAX_QUERY_WAIT`.
_OVERDRAFT = 20.0
_MAX_QUERY_WAIT = 10.0
_MAX_BOOTS = 8
_LIMITED = "waits for the rate limit of the endpoint"


class BucketLevel(NamedTuple):
    """The level of a bucket at a time; negative if it is overdrawn."""

    left: float = math.inf
    at: float = 0.0


class TokenBucket(NamedTuple):
    """Refills by `per_minute`, up to ten seconds' worth; 0 means no limit.

    A request larger than the bucket is allowed once it is not negative, and delays the next ones.
    """

    per_minute: float
    largest: float  # amount of a single request

    def refill(self, level: BucketLevel, now: float) -> BucketLevel:
        """Return the level now, clamped to what this limit can have left.

        The order of the arguments of min and max also clamps NaN, as a torn file may contain.
        """
        if not self.per_minute:
            return level
        rate = self.per_minute / _MINUTE
        most, least = max(1.0, rate * _BURST), -self.largest - rate * _OVERDRAFT
        left = min(most, level.left + max(0.0, now - level.at) * rate)
        return BucketLevel(max(least, left), now)

    def delay(self, level: BucketLevel, overdraft: float) -> float:
        """Return the seconds until something may be taken."""
        if not self.per_minute:
            return 0.0
        return max(0.0, -level.left * _MINUTE / self.per_minute - overdraft)


class Waiter:
    """How one call waits: without limit if it has `on_wait`, otherwise only a few seconds."""

    def __init__(self, name: str, wait: Callable[[float], None], on_wait: OnWait | None):
        self._name, self._wait, self._on_wait = name, wait, on_wait
        self._left = math.inf if on_wait else _MAX_QUERY_WAIT
        self.overdraft = 0.0 if on_wait else _OVERDRAFT

    def report(self, reason: str | None = None) -> None:
        """Call `on_wait`."""
        if self._on_wait:
            self._on_wait(reason)

    def wait(self, seconds: float, reason: str) -> None:
        """Wait, calling `on_wait` at every poll."""
        while seconds > 0:
            seconds -= self.wait_once(seconds, reason)

    def wait_once(self, seconds: float, reason: str) -> float:
        """Wait until the next poll at most; return how long."""
        if seconds > self._left + _MIN_WAIT:
            raise Transient(
                f"embedder {self._name}: {reason} for {math.ceil(seconds)} s more, longer than a "
                f"query may ({_MAX_QUERY_WAIT:g} s). Ask again later.",
                retry_after=seconds,
            )
        self.report(reason)
        some = min(max(seconds, _MIN_WAIT), _POLL)
        self._wait(some)
        self._left -= some
        return some


class RateLimiter:
    """The limits of an endpoint: requests and tokens per minute; 0 means no limit."""

    def __init__(
        self,
        requests: float,
        tokens: float,
        clock: Callable[[], float],
        shared: Path | None = None,
        largest: float = 50_000,
    ) -> None:
        self._buckets = TokenBucket(requests, 1), TokenBucket(tokens, largest)
        self._levels: Sequence[BucketLevel] = (BucketLevel(), BucketLevel())
        self._lock = threading.Lock()
        self._clock, self._shared = clock, shared
        self._is_unshared = False

    def acquire(self, tokens: int, waiter: Waiter) -> None:
        """Wait until a request of so many tokens is allowed, and count it."""
        while delay := self._take(tokens, waiter.overdraft):
            # Jitter, so that not always the same of several waiting processes comes first.
            waiter.wait_once(delay + random.uniform(0, _JITTER), _LIMITED)  # noqa: S311

    def _take(self, tokens: int, overdraft: float) -> float:
        """Take what a request needs and return 0, or return the seconds until it is available."""
        if not any(bucket.per_minute for bucket in self._buckets):
            return 0.0

        def take(levels: Sequence[BucketLevel]) -> tuple[float, Sequence[BucketLevel]]:
            return self._take_from(levels, (1, tokens), overdraft)

        if self._shared is not None:
            try:
                return _in_file(self._shared, take)
            except BlockingIOError:
                return _MIN_WAIT  # do not block: the holder of the lock may be stopped
            except OSError as error:
                if not self._is_unshared:  # logged once; the limit is now this process's alone
                    self._is_unshared = True
                    log.event(
                        "embed.rate_limit_unshared",
                        level="warning",
                        path=self._shared,
                        error=error,
                    )
        with self._lock:
            delay, self._levels = take(self._levels)
        return delay

    def _take_from(
        self, levels: Sequence[BucketLevel], amounts: Sequence[float], overdraft: float
    ) -> tuple[float, Sequence[BucketLevel]]:
        now = self._clock()
        pairs = list(zip(self._buckets, levels, strict=True))
        filled = [bucket.refill(level, now) for bucket, level in pairs]
        delay = max(
            b.delay(level, overdraft) for b, level in zip(self._buckets, filled, strict=True)
        )
        if delay:
            return delay, filled
        return 0.0, [
            BucketLevel(level.left - amount, level.at)
            for level, amount in zip(filled, amounts, strict=True)
        ]


def _in_file(
    path: Path, take: Callable[[Sequence[BucketLevel]], tuple[float, Sequence[BucketLevel]]]
) -> float:
    """Apply `take` to the levels in a file; raise BlockingIOError if another process holds it."""
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(number, "r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            lines = file.read().splitlines()
            delay, levels = take(_parse_levels(lines))
            others = [line for line in lines if line.split()[:1] not in ([], [boot_id()])]
            own = " ".join([boot_id(), *(repr(number) for level in levels for number in level)])
            file.seek(0)
            file.writelines(f"{line}\n" for line in [own, *others[: _MAX_BOOTS - 1]])
            file.truncate()
            return delay
        finally:
            # Closing does not unlock if a fork has copied the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)


def _parse_levels(lines: Sequence[str]) -> Sequence[BucketLevel]:
    """Return the levels of this boot; a torn line counts as none."""
    for boot, *numbers in map(str.split, filter(str.strip, lines)):
        if boot != boot_id():
            continue
        try:
            requests, requests_at, tokens, tokens_at = map(float, numbers)
        except ValueError:
            break
        return BucketLevel(requests, requests_at), BucketLevel(tokens, tokens_at)
    return BucketLevel(), BucketLevel()
