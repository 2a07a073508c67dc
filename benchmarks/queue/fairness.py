"""How even the shares of many owners are, and how long one waits who comes, or comes back."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure, at_most
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site
from quire.control import jobs
from quire.model.records import Lease, Submission
from quire.store.queue import claim

BATCH = 16
_ORDER = "SELECT owner_id FROM tasks ORDER BY finished_at, begin_at, fair_tag"


def unevenness(bed: Bed) -> float:
    """Return by how many percent the owner furthest from an equal share missed it, at mid-drain."""
    order = [row[0] for row in bed.rows(_ORDER)]
    first = Counter(order[: len(order) // 2])
    equal = len(order) // 2 / len(set(order))
    return max(abs(first[owner] - equal) / equal for owner in set(order)) * 100


def shares(value: float, owners: int) -> Figure:
    """Make the figure of what a drain found."""
    note = f"{owners} owners, furthest from equal at mid-drain"
    return Figure("fair shares: deviation", value, "%", target=at_most(10), note=note)


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Claim, and count what others get before an owner's first task."""
    with site.bed() as bed:
        _fill(bed, sizes)
        for _ in range(sizes.owners * sizes.per_owner // 2 // BATCH):
            _claimed(bed)
        yield _wait("wait of a newcomer", bed, "newcomer", sizes)
        wishes = [Submission("bench.noop")] * sizes.cancelled
        ids = jobs.submit(bed.caller("regretful"), wishes)
        for first in range(0, len(ids), jobs.PAGE):
            jobs.cancel(bed.caller("regretful"), ids[first : first + jobs.PAGE])
        yield _wait(f"wait after cancelling {sizes.cancelled:,}", bed, "regretful", sizes)


def _fill(bed: Bed, sizes: Sizes) -> None:
    wishes = [Submission("bench.noop")] * sizes.per_owner
    for owner in range(sizes.owners):
        jobs.submit(bed.caller(f"owner-{owner}"), wishes)


def _wait(name: str, bed: Bed, user: str, sizes: Sizes) -> Figure:
    """Submit one job for a user and count the tasks claimed before it."""
    [job_id] = jobs.submit(bed.caller(user), [Submission("bench.noop")])
    before = 0
    while leases := _claimed(bed):
        ahead = [lease.job_id for lease in leases]
        if job_id in ahead:
            before += ahead.index(job_id)
            break
        before += len(leases)
    note = f"claims before its first, beside {sizes.owners} busy owners"
    return Figure(name, before, "tasks", note=note)


def _claimed(bed: Bed) -> list[Lease]:
    known = bed.app.registry.kinds

    def act(conn: Any, now: Any) -> list[Lease]:
        leases = claim.claim(conn, "bench", "default", known, now=now, ttl=60.0, limit=BATCH)
        claim.advance(conn, leases)
        return leases

    return bed.app.db.write(act)
