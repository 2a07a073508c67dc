"""Lets a worker claim for doorbells only; where none is heard for a while, as it likes.

A *visit* is one message in the hands of a thread of Celery. It opens one slot: for one task, or
for a second of short ones. The thread waits until what was claimed for it is settled, so that the
broker gives this worker no more messages than it has free slots. Nothing depends on a message:
a lost one costs `silence` seconds, a doubled one finds nothing.
"""

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from quire import log
from quire.runtime.signals import Bell

Key = tuple[int, int]
#: Seconds for which a visit claims on: else a task of a millisecond would cost a message each.
TURN = 1.0
#: Seconds after which a message is acknowledged though its task goes on. The lease in the
#: database is what counts, and brokers take messages back that are held for long.
HOLD = 600.0


class Ring(Protocol):
    """What tells a worker to stop."""

    rung: int

    def hear(self) -> None:
        """Take what has arrived."""


class Door(Protocol):
    """What says how many slots a worker may fill."""

    broker: str | None
    alone_since: float | None

    def bell(self, selector: selectors.BaseSelector) -> Ring:
        """Return what tells the worker to stop, registered with its selector."""

    def places(self, idle: int) -> int:
        """Return how many of the idle children may be given tasks."""

    def ahead(self, soon: int) -> int:
        """Return for how many of the children soon free tasks may be claimed."""

    def claimed(self, keys: Sequence[Key], *, is_all: bool) -> None:
        """Learn what a claim took, and whether that was all there is."""

    def let_go(self, unsettled: Callable[[], set[Key]]) -> None:
        """End the visits whose tasks are settled."""

    def is_due(self) -> bool:
        """Tell whether it is time to look though nothing was heard; True once each time."""

    def next_at(self) -> float:
        """Return when something is to be done though nothing happens."""

    def close(self) -> None:
        """Let everyone go; the worker has ended."""


class OpenDoor:
    """The door of a worker without a broker: it claims whenever there is work."""

    broker: str | None = None
    alone_since: float | None = None

    def bell(self, selector: selectors.BaseSelector) -> Bell:
        """Catch the signals of this process."""
        return Bell(selector)

    def places(self, idle: int) -> int:
        """Allow all."""
        return idle

    def ahead(self, soon: int) -> int:
        """Allow all."""
        return soon

    def claimed(self, keys: Sequence[Key], *, is_all: bool) -> None:
        """Nothing follows from it."""

    def let_go(self, unsettled: Callable[[], set[Key]]) -> None:
        """Nobody waits."""

    def is_due(self) -> bool:
        """Leave that to the worker's own polling."""
        return False

    def next_at(self) -> float:
        """Return never."""
        return float("inf")

    def close(self) -> None:
        """Nobody waits."""


class Visit:
    """One message at the door."""

    def __init__(self, now: float) -> None:
        self.until = now + HOLD
        self.claims_until: float | None = None
        self.keys: set[Key] = set()
        self.over = threading.Event()

    def is_open(self, now: float) -> bool:
        """Tell whether it may still claim."""
        return self.claims_until is None or now < self.claims_until


class Doorway:
    """The door of a worker that a broker serves; Celery's threads knock, the worker opens."""

    def __init__(self, broker: str, silence: float) -> None:
        self.broker: str | None = broker
        self.alone_since: float | None = None
        self.rung = 0
        self._silence = silence
        self._visits: list[Visit] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_trying = False
        self._is_told = False
        self._try_at = time.monotonic() + silence
        self._inner, self._outer = os.pipe()
        for end in (self._inner, self._outer):
            os.set_blocking(end, False)

    # Called by threads of Celery.

    def knock(self) -> None:
        """Ask for one slot, and return when what was claimed for it is settled."""
        visit = Visit(time.monotonic())
        with self._lock:
            if self._is_closed or self.rung:
                return
            self._visits.append(visit)
            self._heard()
        self._wake()
        visit.over.wait()

    def ring(self) -> None:
        """Tell the worker to stop: to drain, and the second time at once."""
        self.rung += 1
        self._wake()

    def _heard(self) -> None:
        self._try_at = time.monotonic() + self._silence
        self._is_trying, self.alone_since = False, None
        if self._is_told:
            self._is_told = False
            log.event("broker.heard", broker=self.broker)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._outer, b"!")

    # Called by the worker.

    def bell(self, selector: selectors.BaseSelector) -> Ring:
        """Let knocks and rings end the waits of the worker."""
        selector.register(self._inner, selectors.EVENT_READ, "doorway")
        return self

    def hear(self) -> None:
        """Take what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._inner, 64):
                pass

    def places(self, idle: int) -> int:
        """Allow one child for each visit that holds nothing; all, where no message comes."""
        now = time.monotonic()
        with self._lock:
            if self._is_trying or self.alone_since is not None:
                return idle
            return min(idle, sum(not v.keys and v.is_open(now) for v in self._visits))

    def ahead(self, soon: int) -> int:
        """Allow claims ahead for visits that still claim."""
        now = time.monotonic()
        with self._lock:
            if self.alone_since is not None:
                return soon
            return min(soon, sum(bool(v.keys) and v.is_open(now) for v in self._visits))

    def claimed(self, keys: Sequence[Key], *, is_all: bool) -> None:
        """Share the tasks out among the visits; those that met an empty queue claim no more."""
        now = time.monotonic()
        with self._lock:
            visits = [v for v in self._visits if v.is_open(now)]
            visits = [v for v in visits if not v.keys] or visits
            for at, key in enumerate(keys if visits else ()):
                visits[at % len(visits)].keys.add(key)
            for visit in visits:
                if visit.claims_until is None:
                    visit.claims_until = now + TURN
            if is_all:
                for visit in self._visits:
                    visit.claims_until = now
            if self._is_trying:
                self._is_trying = False
                if keys and self.alone_since is None:
                    self.alone_since = time.time()

    def let_go(self, unsettled: Callable[[], set[Key]]) -> None:
        """End the visits that claim no more and whose tasks are settled."""
        if not self._visits:
            return
        now, kept = time.monotonic(), unsettled()
        with self._lock:
            for visit in list(self._visits):
                visit.keys &= kept
                is_spent = not visit.is_open(now) or self.rung > 0
                if (is_spent and not visit.keys) or now >= visit.until:
                    self._visits.remove(visit)
                    visit.over.set()

    def is_due(self) -> bool:
        """Tell whether nothing was heard for `silence` seconds; True once each time."""
        now = time.monotonic()
        with self._lock:
            if now < self._try_at:
                return False
            self._try_at = now + self._silence
            self._is_trying = True
            if self.alone_since is not None and not self._is_told:
                self._is_told = True
                log.event("broker.silent", level="warning", broker=self.broker)
            return True

    def next_at(self) -> float:
        """Return when to look though nothing was heard, or when a visit has lasted too long."""
        with self._lock:
            return min([self._try_at, *(visit.until for visit in self._visits)])

    def close(self) -> None:
        """Let everyone go; the worker has ended."""
        with self._lock:
            self._is_closed = True
            for visit in self._visits:
                visit.over.set()
            self._visits.clear()
