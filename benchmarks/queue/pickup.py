"""How long an idle worker takes to begin a job, from before its submission to its first line."""

import random
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Site


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Submit single jobs at random intervals; the bare loop's share is one insert and one claim."""
    dice = random.Random(1)  # noqa: S311
    spans, beside = [], []
    with site.bed() as bed, site.bare_queue() as (_, queue):
        bed.start("worker")
        bed.app.submit_many([bed.wish("bench.mark", "warm")])
        bed.wait_for_mark("warm")
        for number in range(sizes.pickups):
            time.sleep(dice.uniform(0.05, 0.15))
            began = time.time()
            bed.app.submit_many([bed.wish("bench.mark", str(number))])
            spans.append(bed.wait_for_mark(str(number)).at - began)
            beside.append(_bare(queue))
    note = f"{sizes.pickups} jobs; bare: an insert and a claim, no process in between"
    for share, target in ((0.5, None), (0.95, at_most(20.0))):
        yield Figure(
            f"pick-up p{share * 100:.0f}",
            percentile(spans, share) * 1e3,
            "ms",
            bare=percentile(beside, share) * 1e3,
            target=target,
            note=note,
        )


def _bare(queue: bare.Queue) -> float:
    began = time.perf_counter()
    queue.insert()
    queue.claim()
    return time.perf_counter() - began
