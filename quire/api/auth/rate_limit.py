"""How often one may ask: a bucket of requests for each requester, filled again as time goes by."""

import ipaddress
import threading
from collections import OrderedDict

from quire.errors import TooMany

#: Refused sign-ins a minute of one address, after which no reason is given any more.
FAILURES = 10
#: Requesters that are remembered; those who asked longest ago are forgotten first.
REMEMBERED = 10_000


class Buckets:
    """One bucket for each key; each holds a minute's worth and is never fuller."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> float:
        """Take one from a bucket; returns 0, or how many seconds there will be none."""
        if not self.per_minute:
            return 0.0
        with self._lock:
            left = self._at(key, now)
            wait = 0.0 if left >= 1.0 else (1.0 - left) / (self.per_minute / 60.0)
            self._left[key] = (left if wait else left - 1.0, now)
            self._left.move_to_end(key)
            while len(self._left) > REMEMBERED:
                self._left.popitem(last=False)
        return wait

    def has_left(self, key: str, now: float) -> bool:
        """Tell whether there is one in a bucket."""
        with self._lock:
            return self._at(key, now) >= 1.0

    def _at(self, key: str, now: float) -> float:
        left, at = self._left.get(key, (float(self.per_minute), now))
        return min(self.per_minute, left + max(0.0, now - at) * self.per_minute / 60.0)


class Rates:
    """The buckets of one API process."""

    def __init__(self, per_minute: int) -> None:
        self._requests = Buckets(per_minute)
        self._failures = Buckets(FAILURES)

    def count(self, requester: str, now: float) -> None:
        """Count a request, or refuse it as one too many."""
        if wait := self._requests.take(requester, now):
            raise TooMany(
                f"requests: more than {self._requests.per_minute:,} a minute. "
                f"Wait {wait:.0f} s; QUIRE_API_REQUESTS_PER_MINUTE sets the limit.",
                retry_after=wait,
            )

    def count_failure(self, address: str, now: float) -> None:
        """Count a sign-in that failed; too many of one address get no other answer than that."""
        if wait := self._failures.take(network(address), now):
            raise TooMany(
                f"sign-in: more than {FAILURES} of this address failed within a minute. "
                f"Wait {wait:.0f} s and try again.",
                retry_after=wait,
            )

    def may_fail(self, address: str, now: float) -> bool:
        """Tell whether another failure of this address would be answered with its reason."""
        return self._failures.has_left(network(address), now)


def network(address: str) -> str:
    """Return what counts as one requester: an address, of IPv6 the network it is in."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
