"""Rate limits: a token bucket for each client."""

import ipaddress
import threading
from collections import OrderedDict

from quire.errors import TooMany

#: Failed sign-ins per minute and address, after which no reason is given.
FAILURES_PER_MINUTE = 10
#: Clients that are remembered; the least recent are dropped first.
MAX_CLIENTS = 10_000


class TokenBuckets:
    """One bucket per key; each holds at most the requests of one minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> float:
        """Take one token; returns 0, or the seconds until one is available."""
        if not self.per_minute:
            return 0.0
        with self._lock:
            left = self._at(key, now)
            wait = 0.0 if left >= 1.0 else (1.0 - left) / (self.per_minute / 60.0)
            self._left[key] = (left if wait else left - 1.0, now)
            self._left.move_to_end(key)
            while len(self._left) > MAX_CLIENTS:
                self._left.popitem(last=False)
        return wait

    def has_left(self, key: str, now: float) -> bool:
        """Tell whether a token is available."""
        with self._lock:
            return self._at(key, now) >= 1.0

    def _at(self, key: str, now: float) -> float:
        left, at = self._left.get(key, (float(self.per_minute), now))
        return min(self.per_minute, left + max(0.0, now - at) * self.per_minute / 60.0)


class RateLimiter:
    """The rate limits of one API process."""

    def __init__(self, per_minute: int) -> None:
        self._requests = TokenBuckets(per_minute)
        self._failures = TokenBuckets(FAILURES_PER_MINUTE)

    def count(self, requester: str, now: float) -> None:
        """Count a request, or raise TooMany."""
        if wait := self._requests.take(requester, now):
            raise TooMany(
                f"requests: more than {self._requests.per_minute:,} per minute. "
                f"Wait {wait:.0f} s; QUIRE_API_REQUESTS_PER_MINUTE sets the limit.",
                retry_after=wait,
            )

    def count_failure(self, address: str, now: float) -> None:
        """Count a failed sign-in, or raise TooMany, which hides the reason."""
        if wait := self._failures.take(network(address), now):
            raise TooMany(
                f"sign-in: more than {FAILURES_PER_MINUTE} failures from this address in a minute. "
                f"Wait {wait:.0f} s and try again.",
                retry_after=wait,
            )

    def may_fail(self, address: str, now: float) -> bool:
        """Tell whether another failure of this address would be answered with the reason."""
        return self._failures.has_left(network(address), now)


def network(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or an IPv6 /64 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
