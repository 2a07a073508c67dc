"""Throughput by number of workers, with tasks that sleep.

Tasks that compute would only show the number of cores. Ideally every child sleeps in a task all the
time; the difference is the cost of Quire and the database, until the cores are fully used.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, at_least
from benchmarks.installation import Backend, Installation, process_tree
from benchmarks.queue.idle import cpu_seconds
from benchmarks.queue.sizes import Sizes
from quire.model.records import Submission

#: Duration of each task.
SLEEP_SECONDS = 0.05
CHILDREN = 2
#: Target: this share of the ideal, unless the cores are fully used.
SHARE = 0.8
#: The machine counts as fully used from this share of its CPU time on.
FULL = 0.9


class Throughput(NamedTuple):
    """Tasks per second of some workers; `ours` and `machine` are shares of all cores."""

    rate: float
    ideal: float
    ours: float
    machine: float


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Run sleeping tasks with more and more workers, and compare each with the ideal."""
    for count in sizes.workers:
        yield figure(count, _measured(backend, sizes, count))


def figure(count: int, found: Throughput) -> Figure:
    """Return the figure for a number of workers."""
    is_full = found.machine >= FULL
    note = (
        f"{100 * found.rate / found.ideal:.0f} % of the ideal, which is shown as bare loop; cores "
        f"{100 * found.machine:.0f} % busy, {100 * found.ours:.0f} % by the workers"
    )
    target = None if is_full else at_least(SHARE * found.ideal)
    name = f"{count} workers, sleeping tasks"
    return Figure(name, found.rate, "tasks/s", found.ideal, target, note + ", full" * is_full)


def _measured(backend: Backend, sizes: Sizes, count: int) -> Throughput:
    ideal = count * CHILDREN / SLEEP_SECONDS
    with backend.installation() as installation:
        workers = [installation.start("worker", concurrency=CHILDREN) for _ in range(count)]
        _warm(installation, count)
        before, busy = psutil.cpu_times(), _cpu_seconds(workers)
        submissions = [Submission("bench.wait", {"seconds": SLEEP_SECONDS})]
        installation.app.submit_many(submissions * max(int(ideal * sizes.waiting_seconds), 20))
        installation.wait_until_done()
        after, spent = psutil.cpu_times(), _cpu_seconds(workers) - busy
        found = installation.rows("SELECT finished_at FROM tasks WHERE kind = 'bench.wait'")
        whole = sum(after[:8]) - sum(before[:8])
        idle = after.idle - before.idle
        ended = sorted(row[0] for row in found)
        return Throughput(
            steady(ended), ideal, spent / max(whole, 1e-9), 1 - idle / max(whole, 1e-9)
        )


def steady(ended: list[float]) -> float:
    """Return ends per second without the first and the last tenth of the tasks."""
    first, last = len(ended) // 10, len(ended) - len(ended) // 10 - 1
    return (last - first) / max(ended[last] - ended[first], 1e-9)


def _warm(installation: Installation, count: int) -> None:
    """Wait until every worker has started and its children have run something."""
    installation.wait_for(
        lambda: (
            installation.rows("SELECT count(*) FROM workers WHERE state = 'running'")[0][0] >= count
        ),
        f"{count} workers to start",
        every=0.05,
    )
    installation.app.submit_many(
        [Submission("bench.noop")] * count * CHILDREN * (os.cpu_count() or 1)
    )
    installation.wait_until_done()


def _cpu_seconds(workers: list[psutil.Process]) -> float:
    return cpu_seconds([one for worker in workers for one in process_tree(worker)])
