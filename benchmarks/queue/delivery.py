"""Quire through Celery: held against plain Celery, against itself without a broker, and purged."""

import importlib.util
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.figures import Figure, at_least, at_most, rate
from benchmarks.queue import brokers, peers
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site, family
from quire.errors import Refused
from quire.model.records import Submission

#: As many as plain Celery's worker forks.
CHILDREN = peers.CELERY_CHILDREN
#: How long the dispatcher is given to ring for tasks that nobody takes.
RING_SECONDS = 3.0


class Round(NamedTuple):
    """One turn of each: plain Celery, Quire alone, Quire through Celery with its doorbells."""

    plain: float
    alone: float
    through: float
    doorbells: int | None


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Drain by plain Celery, by Quire alone and by Quire through Celery, in turns."""
    if site.name == "sqlite" or sizes.broker is None:
        return
    python = _celery(sizes)
    rounds = []
    for _ in range(sizes.delivery_rounds):
        plain = peers.drained(peers.CELERY, python, sizes.broker, sizes.plain_celery)
        _need_adapter(plain)
        alone, _ = _drained(site, sizes, None)
        through, doorbells = _drained(site, sizes, sizes.broker)
        rounds.append(Round(plain, alone, through, doorbells))
    yield from _figures(rounds, sizes)


def _figures(rounds: list[Round], sizes: Sizes) -> Iterator[Figure]:
    plain = median(one.plain for one in rounds)
    note = f"late acks, prefork, {CHILDREN} processes, {sizes.plain_celery:,} jobs"
    yield Figure("drain by plain Celery", plain, "jobs/s", note=note)
    through = median(one.through for one in rounds)
    note = f"{CHILDREN} children, {sizes.delivered:,} jobs; bare: plain Celery"
    yield Figure("drain through Celery", through, "jobs/s", plain, at_least(2 * plain), note)
    added = 100 * (median(one.alone / one.through for one in rounds) - 1)
    note = f"to the time of a drain; without a broker {median(o.alone for o in rounds):,.0f} jobs/s"
    yield Figure("added by window and reconciliation", added, "%", None, at_most(10), note)
    bells = [one.doorbells for one in rounds if one.doorbells is not None]
    if bells:
        note = f"for {sizes.delivered:,} jobs; 0: the broker was not used"
        yield Figure("doorbells", median(bells), "messages", note=note)


def purge(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Purge the broker while a worker is held up and everything waits for it."""
    if site.name == "sqlite" or sizes.broker is None:
        return
    _need_adapter(None)
    with _running(site, sizes.broker) as (bed, worker):
        everyone = family(worker)
        for one in everyone:
            one.send_signal(signal.SIGSTOP)
        bed.app.submit_many([Submission("bench.noop")] * sizes.purged)
        time.sleep(RING_SECONDS)
        lost = brokers.purge(sizes.broker)
        began = time.time()
        for one in everyone:
            one.send_signal(signal.SIGCONT)
        bed.wait_until_done()
        found = bed.rows(f"SELECT min(finished_at), max(finished_at) FROM tasks {_AFTER_WARM}")  # noqa: S608
    first, last = found[0]
    rung = "" if lost is None else f"{lost} doorbells lost, "
    note = f"{rung}first job after {first - began:.1f} s, no worker ran when it was purged"
    name = f"all of {sizes.purged:,} jobs done after a purge"
    yield Figure(name, last - began, "s", None, at_most(30), note)


_AFTER_WARM = "WHERE id > (SELECT min(id) FROM tasks)"


def _drained(site: Site, sizes: Sizes, broker: str | None) -> tuple[float, int | None]:
    """Return jobs per second, and how many doorbells they took."""
    with _running(site, broker) as (bed, _):
        before = brokers.sent(broker) if broker else None
        bed.app.submit_many([Submission("bench.noop")] * sizes.delivered)
        bed.wait_until_done()
        ended = [row[0] for row in bed.rows(f"SELECT finished_at FROM tasks {_AFTER_WARM}")]  # noqa: S608
        after = brokers.sent(broker) if broker else None
    rung = None if before is None or after is None else after - before
    return rate(ended), rung


@contextmanager
def _running(site: Site, broker: str | None) -> Iterator[tuple[Bed, psutil.Process]]:
    """Run a scheduler and a worker, warm; with a broker where one is named."""
    settings: dict[str, Any] = {} if broker is None else {"broker_url": broker}
    with site.bed() as bed:
        bed.start("scheduler", **settings)
        worker = bed.start("worker", concurrency=CHILDREN, **settings)
        bed.app.submit("bench.noop")
        bed.wait_until_done()
        try:
            yield bed, worker
        finally:
            bed.stop()
            if broker is not None:
                brokers.purge(broker)


def _celery(sizes: Sizes) -> str:
    python = peers.interpreter(peers.CELERY, sizes.peers)
    if python is None:
        raise Refused("celery is not installed. Install quire[celery], or name a --peers PYTHON.")
    return python


def _need_adapter(plain: float | None) -> None:
    if importlib.util.find_spec("quire.celery") is None:
        reached = "" if plain is None else f" Plain Celery reached {plain:,.0f} jobs/s."
        raise Refused(f"this Quire has no Celery adapter (quire.celery).{reached}")
