"""How evenly many owners are served, and how long a new or returning owner waits."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure, at_most
from benchmarks.installation import Backend, Installation
from benchmarks.queue.sizes import Sizes
from quire.control import jobs
from quire.model.outcomes import Lease
from quire.model.records import Submission
from quire.store.queue import claim

BATCH = 16
_ORDER = "SELECT owner_id FROM tasks ORDER BY finished_at, begin_at, fair_tag"


def unevenness(installation: Installation) -> float:
    """Return the largest deviation of an owner from an equal share, in percent, at mid-drain."""
    order = [row[0] for row in installation.rows(_ORDER)]
    first = Counter(order[: len(order) // 2])
    equal = len(order) // 2 / len(set(order))
    return max(abs(first[owner] - equal) / equal for owner in set(order)) * 100


def shares(value: float, owners: int) -> Figure:
    """Return the figure for a deviation found by a drain."""
    note = f"{owners} owners, largest deviation at mid-drain"
    return Figure("fair shares: deviation", value, "%", target=at_most(10), note=note)


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Count the tasks of others that are claimed before an owner's first task."""
    with backend.installation() as installation:
        _fill(installation, sizes)
        for _ in range(sizes.owners * sizes.per_owner // 2 // BATCH):
            _claimed(installation)
        yield _wait("wait of a new owner", installation, "newcomer", sizes)
        submissions = [Submission("bench.noop")] * sizes.cancelled
        ids = jobs.submit(installation.caller("returning"), submissions)
        for first in range(0, len(ids), jobs.PAGE):
            jobs.cancel(installation.caller("returning"), ids[first : first + jobs.PAGE])
        yield _wait(
            f"wait of an owner who cancelled {sizes.cancelled:,}", installation, "returning", sizes
        )


def _fill(installation: Installation, sizes: Sizes) -> None:
    submissions = [Submission("bench.noop")] * sizes.per_owner
    for owner in range(sizes.owners):
        jobs.submit(installation.caller(f"owner-{owner}"), submissions)


def _wait(name: str, installation: Installation, user: str, sizes: Sizes) -> Figure:
    """Submit one job of a user and count the tasks claimed before it."""
    [job_id] = jobs.submit(installation.caller(user), [Submission("bench.noop")])
    before = 0
    while leases := _claimed(installation):
        ahead = [lease.job_id for lease in leases]
        if job_id in ahead:
            before += ahead.index(job_id)
            break
        before += len(leases)
    note = f"claims before the owner's first, with {sizes.owners} busy owners"
    return Figure(name, before, "tasks", note=note)


def _claimed(installation: Installation) -> list[Lease]:
    known = installation.app.registry.kinds

    def act(conn: Any, now: Any) -> list[Lease]:
        leases = claim.claim(conn, "bench", "default", known, now=now, ttl=60.0, limit=BATCH)
        claim.advance(conn, leases)
        return leases

    return installation.app.db.write(act)
