"""Caps on open connections: in all, and of one address."""

from collections import Counter
from collections.abc import Sequence

from quire.api.auth.authenticate import is_trusted_proxy
from quire.api.auth.rate_limit import network

#: The share of all connections that one address may have open.
SHARE = 4


class ConnectionCaps:
    """Counts the open connections of one server; used on its event loop only."""

    def __init__(self, most: int, proxies: Sequence[str] = ()) -> None:
        self.most = most
        self._proxies = proxies
        self.most_of_one = max(most // SHARE, 1)
        self._open: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        """Count a connection, or tell that there are too many; `leave` must follow if counted."""
        key = network(address)
        if self._open.total() >= self.most:
            return False
        if self._open[key] >= self.most_of_one and not is_trusted_proxy(address, self._proxies):
            return False
        self._open[key] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection no longer."""
        key = network(address)
        self._open[key] -= 1
        if self._open[key] <= 0:
            del self._open[key]
