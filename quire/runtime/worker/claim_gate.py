"""How many tasks a worker may claim right now, and what tells it to stop.

Without a broker the gate is open: a worker claims whenever it has an idle child. With Celery,
`quire.celery.claim_gate` allows one claim slot per broker message.
"""

import selectors
from collections.abc import Callable, Sequence
from typing import Protocol

from quire.model.outcomes import Key
from quire.runtime.signals import SignalWatch


class StopSource(Protocol):
    """Where requests to stop come from."""

    stop_requests: int

    def clear(self) -> None:
        """Empty the wake-up pipe."""


class ClaimGate:
    """Limits the claims of a worker; this one is always open."""

    #: The broker without its password; None when there is none.
    broker: str | None = None
    #: Since when the worker has claimed without broker messages, as UTC seconds.
    polling_since: float | None = None

    def watch(self, selector: selectors.BaseSelector) -> StopSource:
        """Return the source of stop requests, registered with the selector of the worker."""
        return SignalWatch(selector)

    def slots(self, idle: int) -> int:
        """Return how many of the idle children may be given tasks."""
        return idle

    def prefetch_slots(self, busy: int) -> int:
        """Return for how many of the busy children tasks may be claimed ahead."""
        return busy

    def claimed(self, keys: Sequence[Key], *, is_queue_empty: bool) -> None:
        """Record the result of a claim."""

    def release(self, unsettled: Callable[[], set[Key]]) -> None:
        """Acknowledge the broker messages whose tasks are settled."""

    def should_poll(self) -> bool:
        """Tell whether to claim although no message came; True once per interval."""
        return False

    def next_deadline(self) -> float:
        """Return the monotonic time of the next action of the gate."""
        return float("inf")

    def close(self) -> None:
        """Release everything; the worker has ended."""
