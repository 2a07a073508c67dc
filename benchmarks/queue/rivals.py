"""Quire's drain on PostgreSQL in turns with PgQueuer's, on the same server."""

import dataclasses
from collections.abc import Iterator
from statistics import median

from benchmarks.figures import Figure, at_least
from benchmarks.queue import drain, peers
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Site


def missing(sizes: Sizes) -> str | None:
    """Say why PgQueuer cannot be measured, or None where it can."""
    if peers.interpreter(peers.PGQUEUER, sizes.peers) is not None:
        return None
    whose = sizes.peers or "this Python"
    return f"{whose} has no pgqueuer; name one that has with --peers PYTHON"


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Drain no-op jobs by two processes each, in turns."""
    python = peers.interpreter(peers.PGQUEUER, sizes.peers)
    if site.name == "sqlite" or python is None:
        return
    sizes = dataclasses.replace(sizes, drain=sizes.peer_drain)
    ours, theirs = [], []
    for _ in range(sizes.drain_rounds):
        ours.append(drain.drained(site, sizes, is_mixed=False).rate)
        with site.database() as url:
            theirs.append(peers.drained(peers.PGQUEUER, python, url, sizes.peer_drain))
    beside = median(theirs)
    shares = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    note = f"{sizes.drain:,} jobs; bare: PgQueuer; {min(shares):.2f} to {max(shares):.2f} × it"
    yield Figure("drain beside PgQueuer", median(ours), "jobs/s", beside, at_least(beside), note)
