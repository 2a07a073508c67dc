"""Latency of an idle worker: from before the submission of a job to the handler's first line."""

import random
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes

#: Milliseconds at p50 and p95.
TARGETS = {"sqlite": (3.0, 6.0), "postgres": (5.0, 10.0)}


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Submit single jobs at random intervals; the bare loop makes one insert and one claim."""
    dice = random.Random(1)  # noqa: S311
    spans, baseline = [], []
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        installation.start("worker")
        installation.app.submit_many([installation.submission("bench.mark", "warm")])
        installation.wait_for_mark("warm")
        for number in range(sizes.pickups):
            time.sleep(dice.uniform(0.05, 0.15))
            began = time.time()
            installation.app.submit_many([installation.submission("bench.mark", str(number))])
            spans.append(installation.wait_for_mark(str(number)).at - began)
            baseline.append(_bare(queue))
    note = f"{sizes.pickups} jobs; bare: an insert and a claim, no process in between"
    for share, limit in zip((0.5, 0.95), TARGETS[backend.name], strict=True):
        yield Figure(
            f"pick-up p{share * 100:.0f}",
            percentile(spans, share) * 1e3,
            "ms",
            bare=percentile(baseline, share) * 1e3,
            target=at_most(limit),
            note=note,
        )


def _bare(queue: bare.Queue) -> float:
    began = time.perf_counter()
    queue.insert()
    queue.claim()
    return time.perf_counter() - began
