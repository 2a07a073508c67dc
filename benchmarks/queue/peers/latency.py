"""How soon an idle queue runs a single job, and the memory it takes meanwhile."""

import random
import time
from typing import NamedTuple

from benchmarks.queue.peers import marks
from benchmarks.queue.peers.rows import Row
from benchmarks.queue.peers.site import Servers, Site, opened
from benchmarks.queue.peers.sizes import Sizes

_MEGABYTE = 1 << 20
_WARM = 20


class Latency(NamedTuple):
    """Seconds from before each submission to the job's first line, and MB of all processes."""

    spans: list[float]
    memory: float


def measure(row: Row, servers: Servers, sizes: Sizes) -> Latency:
    """Submit single jobs at random intervals to warm workers."""
    dice = random.Random(1)  # noqa: S311
    sent: dict[int, float] = {}
    with opened(row, servers) as site:
        site.start()
        site.submit(0, _WARM)
        site.wait_for_marks(_WARM)
        time.sleep(sizes.settle_seconds)
        memory = _memory(site)
        for number in range(_WARM, _WARM + sizes.pickups):
            time.sleep(dice.uniform(0.05, 0.2))
            sent[number] = site.submit(number, 1).at
            site.wait_for_marks(number + 1)
        found = list(marks.read(site.marks))
    spans = [one.at - sent[one.number] for one in found if one.number in sent]
    return Latency(spans, memory)


def _memory(site: Site) -> float:
    """Return the sum of PSS, which counts shared pages once; of RSS where there is no PSS."""
    every = [one.memory_full_info() for one in site.processes()]
    return float(sum(getattr(one, "pss", one.rss) for one in every) / _MEGABYTE)
