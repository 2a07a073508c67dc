"""Rate of submissions, one by one and in bulk."""

import time
from collections.abc import Callable, Iterator

from benchmarks.figures import Figure, at_least
from benchmarks.installation import Backend
from benchmarks.queue.sizes import Sizes
from quire.model.records import Submission


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Submit no-op jobs while no worker is running."""
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        installation.app.submit("bench.noop")
        queue.insert()
        yield Figure(
            "enqueue one by one",
            sizes.singles / _seconds(lambda: installation.app.submit("bench.noop"), sizes.singles),
            "jobs/s",
            bare=sizes.singles / _seconds(queue.insert, sizes.singles),
        )
        submissions = [Submission("bench.noop", {"number": n}) for n in range(sizes.bulk_batch)]
        rounds = sizes.bulk // sizes.bulk_batch
        yield Figure(
            "enqueue in bulk",
            sizes.bulk / _seconds(lambda: installation.app.submit_many(submissions), rounds),
            "jobs/s",
            bare=sizes.bulk / _seconds(lambda: queue.insert_many(sizes.bulk_batch), rounds),
            target=at_least(50_000),
            note=f"{sizes.bulk_batch:,} jobs a call",
        )


def _seconds(act: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        act()
    return time.perf_counter() - began
