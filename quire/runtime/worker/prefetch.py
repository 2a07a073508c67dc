"""What a worker holds: leases handed to children, leases not handed yet, and how long kinds take.

Claims run ahead by about 100 ms of work, or by two tasks a child where tasks are short.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from quire.model.contracts import JobKind
from quire.model.records import Ending, Lease
from quire.runtime.child.wire import Assignment

AHEAD = 0.1
#: Tasks shorter than this are claimed before a child is free: it would wait for the commit.
BRISK = 0.25
#: How many of them for each child that is soon free.
TASKS_AHEAD = 2
MOST = 512
#: Weight of the latest run in a kind's running mean.
_FRESH = 0.2
_UNKNOWN = 1.0


class Pace:
    """How long runs of each kind take, from the runs seen."""

    def __init__(self) -> None:
        self._spans: dict[str, float] = {}
        self._recent = _UNKNOWN

    def saw(self, kind: str, seconds: float) -> None:
        """Learn from a run that ended."""
        before = self._spans.get(kind, seconds)
        self._spans[kind] = before + _FRESH * (seconds - before)
        self._recent += _FRESH * (seconds - self._recent)

    def span(self, kind: str) -> float:
        """Return how long a run of the kind may take; long where none was seen."""
        return self._spans.get(kind, _UNKNOWN)

    def batch(self) -> int:
        """Return how many tasks one child may be given at a time, by the latest runs."""
        return min(max(int(AHEAD / max(self._recent, 1e-6)), 1), MOST)

    def is_brisk(self) -> bool:
        """Tell whether the latest runs were so short that the time between them counts."""
        return self._recent < BRISK


class Backlog:
    """Leases that were claimed and not handed to a child yet, in the order of the queue."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Lease, float]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, leases: Iterable[Lease], now: float) -> None:
        """Append leases as claimed."""
        self._waiting.extend((lease, now) for lease in leases)

    def has_waited(self, seconds: float, now: float) -> bool:
        """Tell whether something has waited for a child for longer than `seconds`."""
        return bool(self._waiting) and now - self._waiting[0][1] > seconds

    def leases(self) -> list[Lease]:
        """List what waits."""
        return [lease for lease, _ in self._waiting]

    def drop(self, lost: set[tuple[int, int]]) -> None:
        """Forget leases that were revoked."""
        kept = [x for x in self._waiting if (x[0].task_id, x[0].fence) not in lost]
        self._waiting = deque(kept)

    def clear(self) -> list[Lease]:
        """Take everything out."""
        out = self.leases()
        self._waiting.clear()
        return out

    def portion(self, pace: Pace, share: int) -> list[Lease]:
        """Take what one child should get: about 100 ms of work, or one that must run alone."""
        taken: list[Lease] = []
        budget = AHEAD
        while self._waiting and len(taken) < min(share, MOST):
            lease, _ = self._waiting[0]
            cost = pace.span(lease.kind)
            if taken and (cost > budget or lease.is_alone):
                break
            self._waiting.popleft()
            taken.append(lease)
            budget -= cost
            if lease.is_alone:
                break
        return taken


def assignment(lease: Lease, kind: JobKind) -> Assignment:
    """Say to a child what a lease is to run, and under which limits."""
    return Assignment(
        lease.task_id, lease.fence, lease.job_id, lease.kind, lease.payload, lease.attempt,
        lease.max_attempts, kind.timeout, kind.stall_timeout, kind.memory, kind.grace,
        f"quire-{lease.job_id}-{lease.task_id}",
    )  # fmt: skip


def strays(
    rows: Iterable[Any], keys: Sequence[tuple[int, int]], endings: Iterable[Ending]
) -> list[Any]:
    """Pick the leases of the database that this worker does not know of."""
    ours = {*keys, *((one.task_id, one.fence) for one in endings)}
    return [row for row in rows if (row.task_id, row.fence) not in ours]
