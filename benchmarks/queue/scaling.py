"""How throughput grows with the number of workers, by tasks that wait and do not compute.

Tasks that compute would show the number of cores only. The ideal is every child asleep in a task
all the time; what is missing to it is what Quire and the database cost, until the cores are full.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, at_least
from benchmarks.queue.idle import busy_seconds
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site, family
from quire.model.records import Submission

#: How long each task sleeps.
WAIT_SECONDS = 0.05
CHILDREN = 2
#: Below this share of the ideal, with cores to spare, more workers do not help as they should.
SHARE = 0.8
#: From this share of the machine's processor time on, nothing can be expected to grow.
FULL = 0.9


class Crew(NamedTuple):
    """What a number of workers reached; `ours` and `machine` are shares of all cores."""

    rate: float
    ideal: float
    ours: float
    machine: float


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Let more and more workers run tasks that wait; each is held against the ideal."""
    for count in sizes.workers:
        yield figure(count, _crew(site, sizes, count))


def figure(count: int, crew: Crew) -> Figure:
    """Say how near to the ideal a number of workers came."""
    is_full = crew.machine >= FULL
    note = (
        f"{100 * crew.rate / crew.ideal:.0f} % of the ideal, in place of the bare loop; processors "
        f"{100 * crew.machine:.0f} % busy, {100 * crew.ours:.0f} % by the workers"
    )
    target = None if is_full else at_least(SHARE * crew.ideal)
    name = f"{count} workers, tasks that wait"
    return Figure(name, crew.rate, "tasks/s", crew.ideal, target, note + ", full" * is_full)


def _crew(site: Site, sizes: Sizes, count: int) -> Crew:
    ideal = count * CHILDREN / WAIT_SECONDS
    with site.bed() as bed:
        workers = [bed.start("worker", concurrency=CHILDREN) for _ in range(count)]
        _warm(bed, count)
        before, busy = psutil.cpu_times(), _busy(workers)
        wishes = [Submission("bench.wait", {"seconds": WAIT_SECONDS})]
        bed.app.submit_many(wishes * max(int(ideal * sizes.waiting_seconds), 20))
        bed.wait_until_done()
        after, spent = psutil.cpu_times(), _busy(workers) - busy
        found = bed.rows("SELECT finished_at FROM tasks WHERE kind = 'bench.wait'")
        whole = sum(after[:8]) - sum(before[:8])
        idle = after.idle - before.idle
        ended = sorted(row[0] for row in found)
        return Crew(steady(ended), ideal, spent / max(whole, 1e-9), 1 - idle / max(whole, 1e-9))


def steady(ended: list[float]) -> float:
    """Return ends per second between the first and the last tenth: no start, no last few tasks."""
    first, last = len(ended) // 10, len(ended) - len(ended) // 10 - 1
    return (last - first) / max(ended[last] - ended[first], 1e-9)


def _warm(bed: Bed, count: int) -> None:
    """Wait until every worker is there and its children have run something."""
    bed.wait_for(
        lambda: bed.rows("SELECT count(*) FROM workers WHERE state = 'running'")[0][0] >= count,
        f"{count} workers to start",
        every=0.05,
    )
    bed.app.submit_many([Submission("bench.noop")] * count * CHILDREN * (os.cpu_count() or 1))
    bed.wait_until_done()


def _busy(workers: list[psutil.Process]) -> float:
    return busy_seconds([one for worker in workers for one in family(worker)])
