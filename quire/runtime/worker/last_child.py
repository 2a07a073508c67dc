"""Keeps the last free child of a worker for a tenant of which the worker runs nothing.

Otherwise one tenant could fill every child with long tasks, and another one would wait for the
first of them to end. The worker decides by what it runs itself, so nothing is counted in the
database, and it does not matter how many workers there are. What was submitted on this machine
is the operator's and takes any child. Without a second tenant nothing is kept (docs/adr/0042).
"""

from collections.abc import Collection, Iterable

from quire.model.outcomes import Lease
from quire.model.records import LOCAL
from quire.store import Connection
from quire.store.queue import owners


class LastChild:
    """Whether a worker keeps its last free child, and for whom it is not."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._tenants: dict[int, str] = {}
        self.is_kept = False
        #: A tenant for which it is kept may have tasks.
        self.should_look = False

    def update(self, *, has_several_tenants: bool) -> None:
        """Keep a child as long as there are several tenants, if the worker has more than one."""
        self.is_kept = has_several_tenants and self._concurrency > 1

    def unkept(self, idle: int) -> int:
        """Return how many of the idle children anybody's tasks may take."""
        return max(idle - 1, 0) if self.is_kept else idle

    def learn(self, conn: Connection, leases: Iterable[Lease]) -> None:
        """Read the tenants of leases whose owners are new here."""
        unknown = {lease.owner_id for lease in leases} - set(self._tenants)
        if unknown:
            self._tenants |= owners.tenants_of(conn, sorted(unknown))

    def tenants(self, leases: Iterable[Lease]) -> set[str]:
        """Return the tenants of those leases that were not submitted on this machine."""
        given = {lease.owner_id for lease in leases if lease.origin != LOCAL}
        return {self._tenants[owner_id] for owner_id in given & set(self._tenants)}

    def is_of(self, tenants: Collection[str], lease: Lease) -> bool:
        """Tell whether a lease belongs to one of these tenants."""
        return self._tenants.get(lease.owner_id) in tenants
