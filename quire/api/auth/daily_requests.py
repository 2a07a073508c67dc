"""Requests a day of tenants that have a limit of them, added up in the database.

A process adds what it has counted every few seconds, so several processes may together pass a limit
by what they count in that time.
"""

import dataclasses
import threading

from quire.control import tenants
from quire.control.caller import Caller

#: Seconds between two additions of one tenant, and between two looks at its limit.
KEEP = 5.0


@dataclasses.dataclass(slots=True)
class _Count:
    """What is known of one tenant."""

    limit: int | None = None
    used: int = 0  # of all processes, when it was last added up
    pending: int = 0  # of this process since then
    day: int = 0
    due: float = float("-inf")


class DailyRequests:
    """The requests that one API process has counted."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def count(self, caller: Caller, wall: float, now: float) -> None:
        """Count a request of the caller's tenant, or raise TooMany."""
        day = int(wall // tenants.DAY)
        with self._lock:
            one = self._counts.setdefault(caller.tenant, _Count())
            if one.day != day:
                one.day, one.used, one.pending, one.due = day, 0, 0, float("-inf")
            is_due = now >= one.due
            if is_due:
                one.due = now + KEEP
                pending, one.pending = one.pending, 0
        if is_due:
            limit = tenants.max_requests(caller)
            used = tenants.count_requests(caller, pending) if limit is not None else 0
            with self._lock:
                one.limit, one.used = limit, used
        with self._lock:
            if one.limit is None:
                return
            if one.used + one.pending >= one.limit:
                left = (day + 1) * tenants.DAY - wall
                raise tenants.exceeded_requests(
                    caller.tenant, one.limit, one.used + one.pending, left
                )
            one.pending += 1
