"""Keeps requests within so many a minute; the clock and the waiting are given by the caller.

Processes that name the same file share one limit: the file says what is left in each bucket, and
who sends takes it from there under a lock, at that moment and never ahead. Who is killed has taken
one request at most; who waits has taken nothing, and looks again. Each boot has a line of its own:
the clock of one machine means nothing to another.
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

#: Called while something is waited for, with the reason, and before each request, with None.
Meanwhile = Callable[[str | None], None]

_MINUTE = 60.0
_BURST = 10.0  # seconds of saving up
_SLICE = 0.2  # seconds between two looks: less than the grace that a stopped task has
_LEAST = 0.01
_CHANCE = 0.1
#: A call that nobody looks after has a thread of the API: it may borrow so many seconds of the
#: limit from those that can wait, and itself waits for so many at most.
_AHEAD = 20.0
_HURRY = 10.0
_BOOTS_KEPT = 8
_LIMITED = "waits for the rate limit of the endpoint"


class Level(NamedTuple):
    """What was left in a bucket, and when; below zero it is owed."""

    left: float = math.inf
    at: float = 0.0


class Bucket(NamedTuple):
    """Fills by `per_minute` a minute up to what ten seconds bring; may be overdrawn once.

    What is larger than the bucket still passes, and is paid for by the ones after it.
    """

    per_minute: float
    largest: float

    def filled(self, was: Level, now: float) -> Level:
        """Return what is in it now: never more or less than these limits can have left.

        The order of arguments makes something of any number, even of one that is none.
        """
        if not self.per_minute:
            return was
        rate = self.per_minute / _MINUTE
        most, least = max(1.0, rate * _BURST), -self.largest - rate * _AHEAD
        left = min(most, was.left + max(0.0, now - was.at) * rate)
        return Level(max(least, left), now)

    def lack(self, level: Level, ahead: float) -> float:
        """Return the seconds until something may be taken."""
        if not self.per_minute:
            return 0.0
        return max(0.0, -level.left * _MINUTE / self.per_minute - ahead)


class Patience:
    """How one call waits: as long as it takes if somebody looks after it, else not for long."""

    def __init__(self, name: str, wait: Callable[[float], None], meanwhile: Meanwhile | None):
        self._name, self._wait, self._meanwhile = name, wait, meanwhile
        self._left = math.inf if meanwhile else _HURRY
        self.ahead = 0.0 if meanwhile else _AHEAD

    def look(self, why: str | None = None) -> None:
        """Let the caller look after itself."""
        if self._meanwhile:
            self._meanwhile(why)

    def wait(self, seconds: float, why: str) -> None:
        """Wait in slices."""
        while seconds > 0:
            seconds -= self.wait_some(seconds, why)

    def wait_some(self, seconds: float, why: str) -> float:
        """Wait for a slice of the time; returns how long."""
        if seconds > self._left + _LEAST:
            raise Transient(
                f"embedder {self._name}: {why} for {math.ceil(seconds)} s more, longer than a "
                f"query may ({_HURRY:g} s). Ask again later.",
                retry_after=seconds,
            )
        self.look(why)
        some = min(max(seconds, _LEAST), _SLICE)
        self._wait(some)
        self._left -= some
        return some


class Pace:
    """Both limits of an endpoint: requests and tokens a minute; 0 is no limit."""

    def __init__(
        self,
        requests: float,
        tokens: float,
        clock: Callable[[], float],
        shared: Path | None = None,
        largest: float = 50_000,
    ) -> None:
        self._buckets = Bucket(requests, 1), Bucket(tokens, largest)
        self._own: Sequence[Level] = (Level(), Level())
        self._lock = threading.Lock()
        self._clock, self._shared = clock, shared
        self._is_alone = False

    def enter(self, tokens: int, patience: Patience) -> None:
        """Wait until one more request of so many tokens is allowed, and count it."""
        while lack := self._take(tokens, patience.ahead):
            # By chance: of those that all look at one moment, the same would come first each time.
            patience.wait_some(lack + random.uniform(0, _CHANCE), _LIMITED)  # noqa: S311

    def _take(self, tokens: int, ahead: float) -> float:
        """Take what a request needs if it is there, else return the seconds until it may be."""
        if not any(bucket.per_minute for bucket in self._buckets):
            return 0.0

        def look(was: Sequence[Level]) -> tuple[float, Sequence[Level]]:
            return self._look(was, (1, tokens), ahead)

        if self._shared is not None:
            try:
                return _in_file(self._shared, look)
            except BlockingIOError:
                return _LEAST  # not waited for: who has the lock may be stopped
            except OSError as error:
                self._go_alone(error)
        with self._lock:
            lack, self._own = look(self._own)
        return lack

    def _look(
        self, was: Sequence[Level], amounts: Sequence[float], ahead: float
    ) -> tuple[float, Sequence[Level]]:
        now = self._clock()
        both = [b.filled(level, now) for b, level in zip(self._buckets, was, strict=True)]
        lack = max(b.lack(level, ahead) for b, level in zip(self._buckets, both, strict=True))
        if lack:
            return lack, both
        return 0.0, [Level(at.left - some, at.at) for at, some in zip(both, amounts, strict=True)]

    def _go_alone(self, error: OSError) -> None:
        """Say once that the file cannot be used: the limit is then this process's own."""
        if not self._is_alone:
            self._is_alone = True
            log.event("embed.alone", level="warning", path=self._shared, error=error)


def _in_file(path: Path, look: Callable[[Sequence[Level]], tuple[float, Sequence[Level]]]) -> float:
    """Let `look` change the levels in a file, unless another one does so at this moment."""
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with os.fdopen(number, "r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            lines = file.read().splitlines()
            lack, levels = look(_parsed(lines))
            file.seek(0)
            file.write(_written(lines, levels))
            file.truncate()
            return lack
        finally:
            # Closing is not enough where a fork has got a copy of the descriptor.
            fcntl.flock(file, fcntl.LOCK_UN)


def _parsed(lines: Sequence[str]) -> Sequence[Level]:
    """Read what the last one of this boot wrote; a torn line means nothing."""
    for boot, *numbers in map(str.split, filter(str.strip, lines)):
        if boot != boot_id():
            continue
        try:
            requests, requests_at, tokens, tokens_at = map(float, numbers)
        except ValueError:
            break
        return Level(requests, requests_at), Level(tokens, tokens_at)
    return Level(), Level()


def _written(lines: Sequence[str], levels: Sequence[Level]) -> str:
    others = [line for line in lines if line.split()[:1] not in ([], [boot_id()])]
    own = " ".join([boot_id(), *(repr(number) for level in levels for number in level)])
    return "".join(f"{line}\n" for line in [own, *others[: _BOOTS_KEPT - 1]])
