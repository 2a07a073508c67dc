"""Quire through Celery: compared with no broker, and after a purge."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.figures import Figure, at_most, rate
from benchmarks.installation import Backend, Installation, process_tree
from benchmarks.queue import brokers
from benchmarks.queue.sizes import Sizes
from quire.model.records import Submission

CHILDREN = 2
#: Time for the dispatcher to send doorbells while the worker is paused.
RING_SECONDS = 3.0


class Round(NamedTuple):
    """Rates of one round, and the doorbells that Quire through Celery took."""

    without_broker: float
    through_celery: float
    doorbells: int | None


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Drain without a broker and through Celery, alternating."""
    if backend.name == "sqlite" or sizes.broker is None:
        return
    rounds = []
    for _ in range(sizes.delivery_rounds):
        alone, _ = _drained(backend, sizes, None)
        through, doorbells = _drained(backend, sizes, sizes.broker)
        rounds.append(Round(alone, through, doorbells))
    alone = median(one.without_broker for one in rounds)
    through = median(one.through_celery for one in rounds)
    note = f"{CHILDREN} children, {sizes.delivered:,} jobs; bare: Quire without a broker"
    yield Figure("drain through Celery", through, "jobs/s", alone, note=note)
    added = 100 * (median(one.without_broker / one.through_celery for one in rounds) - 1)
    note = "to the time of a drain without a broker"
    yield Figure("time added by the broker", added, "%", None, at_most(10), note)
    bells = [one.doorbells for one in rounds if one.doorbells is not None]
    if bells:
        note = f"for {sizes.delivered:,} jobs; 0 means that the broker was not used"
        yield Figure("doorbells", median(bells), "messages", note=note)


def purge(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Purge the broker while the worker is paused and all jobs are waiting."""
    if backend.name == "sqlite" or sizes.broker is None:
        return
    with _running(backend, sizes.broker) as (installation, worker):
        processes = process_tree(worker)
        for one in processes:
            one.send_signal(signal.SIGSTOP)
        installation.app.submit_many([Submission("bench.noop")] * sizes.purged)
        time.sleep(RING_SECONDS)
        lost = brokers.purge(sizes.broker)
        began = time.time()
        for one in processes:
            one.send_signal(signal.SIGCONT)
        installation.wait_until_done()
        found = installation.rows(
            f"SELECT min(finished_at), max(finished_at) FROM tasks {_AFTER_WARM}"  # noqa: S608
        )
    first, last = found[0]
    rung = "" if lost is None else f"{lost} doorbells lost, "
    note = f"{rung}first job after {first - began:.1f} s; the worker was paused during the purge"
    name = f"{sizes.purged:,} jobs done after a purge"
    yield Figure(name, last - began, "s", None, at_most(30), note)


_AFTER_WARM = "WHERE id > (SELECT min(id) FROM tasks)"


def _drained(backend: Backend, sizes: Sizes, broker: str | None) -> tuple[float, int | None]:
    """Return jobs per second, and the number of doorbells they took."""
    with _running(backend, broker) as (installation, _):
        before = brokers.sent(broker) if broker else None
        installation.app.submit_many([Submission("bench.noop")] * sizes.delivered)
        installation.wait_until_done()
        found = installation.rows(f"SELECT finished_at FROM tasks {_AFTER_WARM}")  # noqa: S608
        ended = [row[0] for row in found]
        after = brokers.sent(broker) if broker else None
    rung = None if before is None or after is None else after - before
    return rate(ended), rung


@contextmanager
def _running(backend: Backend, broker: str | None) -> Iterator[tuple[Installation, psutil.Process]]:
    """Run a scheduler and a warm worker, with a broker if one is given."""
    settings: dict[str, Any] = {} if broker is None else {"broker_url": broker}
    with backend.installation() as installation:
        installation.start("scheduler", **settings)
        worker = installation.start("worker", concurrency=CHILDREN, **settings)
        installation.app.submit("bench.noop")
        installation.wait_until_done()
        try:
            yield installation, worker
        finally:
            installation.stop()
            if broker is not None:
                brokers.purge(broker)
