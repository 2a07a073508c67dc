"""One claim slot per broker message; falls back to polling when the broker is silent.

A *delivery* is one broker message that a Celery thread holds. It opens one slot: for one long
task, or for a second of short ones. The thread waits until the tasks of its slot are settled, so
the broker never hands this worker more messages than it has free slots. Correctness does not
depend on messages: a lost one delays a claim by `silence` seconds, a duplicate finds no task.
"""

import contextlib
import itertools
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence

from quire import log
from quire.clock import Clock, SystemClock
from quire.model.outcomes import Key
from quire.runtime.signals import drain_pipe
from quire.runtime.worker.claim_gate import ClaimGate

#: Seconds for which one delivery may claim. Without it, each one-millisecond task would cost a
#: message.
CLAIM_SECONDS = 1.0
#: Seconds after which a message is acknowledged although its task still runs. The lease protects
#: the task, and brokers redeliver messages that are held for too long.
ACK_SECONDS = 600.0


class Delivery:
    """A broker message that was received and not acknowledged yet."""

    def __init__(self, now: float) -> None:
        self.ack_by = now + ACK_SECONDS
        self.claims_until: float | None = None
        self.keys: set[Key] = set()
        self.acknowledged = threading.Event()

    def can_claim(self, now: float) -> bool:
        """Tell whether its slot may still take tasks."""
        return self.claims_until is None or now < self.claims_until


class BrokerGate(ClaimGate):
    """The claim gate of a worker with a broker; shared by Celery's threads and the worker."""

    def __init__(
        self,
        broker: str,
        silence: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Clock | None = None,
    ) -> None:
        self.broker = broker
        self.stop_requests = 0
        self._silence = silence
        self._monotonic = monotonic
        self._clock = clock or SystemClock()
        self._deliveries: list[Delivery] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_polling_once = False
        self._is_silence_logged = False
        self._poll_at = monotonic() + silence
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)

    # Called by threads of Celery.

    def deliver(self) -> None:
        """Open one slot; return when the tasks that were claimed for it are settled."""
        delivery = Delivery(self._monotonic())
        with self._lock:
            if self._is_closed or self.stop_requests:
                return
            self._deliveries.append(delivery)
            self._poll_at = self._monotonic() + self._silence
            self._is_polling_once, self.polling_since = False, None
            if self._is_silence_logged:
                self._is_silence_logged = False
                log.event("broker.heard", broker=self.broker)
        self._wake()
        delivery.acknowledged.wait()

    def request_stop(self) -> None:
        """Tell the worker to drain; the second call makes it stop at once."""
        self.stop_requests += 1
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"!")

    # Called by the worker.

    def watch(self, selector: selectors.BaseSelector) -> "BrokerGate":
        """Wake the worker for deliveries and stop requests."""
        selector.register(self._read_end, selectors.EVENT_READ, "gate")
        return self

    def clear(self) -> None:
        """Empty the wake-up pipe."""
        drain_pipe(self._read_end)

    def slots(self, idle: int) -> int:
        """Allow one child per delivery without tasks; allow all while the worker polls."""
        now = self._monotonic()
        with self._lock:
            if self._is_polling_once or self.polling_since is not None:
                return idle
            return min(idle, sum(not d.keys and d.can_claim(now) for d in self._deliveries))

    def prefetch_slots(self, busy: int) -> int:
        """Allow prefetching for deliveries that may still claim."""
        now = self._monotonic()
        with self._lock:
            if self.polling_since is not None:
                return busy
            return min(busy, sum(bool(d.keys) and d.can_claim(now) for d in self._deliveries))

    def claimed(self, keys: Sequence[Key], *, is_queue_empty: bool) -> None:
        """Assign the claimed tasks to deliveries; an empty queue ends all claiming."""
        now = self._monotonic()
        with self._lock:
            claiming = [d for d in self._deliveries if d.can_claim(now)]
            claiming = [d for d in claiming if not d.keys] or claiming
            for key, delivery in zip(keys, itertools.cycle(claiming), strict=False):
                delivery.keys.add(key)
            for delivery in claiming:
                if delivery.claims_until is None:
                    delivery.claims_until = now + CLAIM_SECONDS
            if is_queue_empty:
                for delivery in self._deliveries:
                    delivery.claims_until = now
            if self._is_polling_once:
                self._is_polling_once = False
                if keys and self.polling_since is None:
                    self.polling_since = self._clock.now().wall

    def release(self, unsettled: Callable[[], set[Key]]) -> None:
        """Acknowledge deliveries that claim no more and whose tasks are settled."""
        if not self._deliveries:
            return
        now, open_keys = self._monotonic(), unsettled()
        with self._lock:
            for delivery in list(self._deliveries):
                delivery.keys &= open_keys
                is_spent = not delivery.can_claim(now) or self.stop_requests > 0
                if (is_spent and not delivery.keys) or now >= delivery.ack_by:
                    self._deliveries.remove(delivery)
                    delivery.acknowledged.set()

    def should_poll(self) -> bool:
        """Tell whether no message came for `silence` seconds; True once per interval."""
        now = self._monotonic()
        with self._lock:
            if now < self._poll_at:
                return False
            self._poll_at = now + self._silence
            self._is_polling_once = True
            if self.polling_since is not None and not self._is_silence_logged:
                self._is_silence_logged = True
                log.event("broker.silent", level="warning", broker=self.broker)
            return True

    def next_deadline(self) -> float:
        """Return when to poll, or when a delivery must be acknowledged."""
        with self._lock:
            return min([self._poll_at, *(d.ack_by for d in self._deliveries)])

    def close(self) -> None:
        """Acknowledge every delivery; the worker has ended."""
        with self._lock:
            self._is_closed = True
            for delivery in self._deliveries:
                delivery.acknowledged.set()
            self._deliveries.clear()
