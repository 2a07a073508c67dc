"""How soon a stop takes effect after its commit, on a handler that looks and one that does not."""

import os
import select
import time
from collections.abc import Iterator

import psutil

from quire.bench.figures import Figure, at_most, percentile
from quire.bench.site import Bed, Site
from quire.bench.sizes import Sizes
from quire.control import jobs


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Stop one running task after another."""
    with site.bed() as bed:
        bed.start("worker")
        obeyed = [_obeyed(bed, f"obey-{n}") for n in range(sizes.stops)]
        died = [_died(bed, f"hold-{n}") for n in range(sizes.stops)]
    note = f"{sizes.stops} stops"
    yield Figure("stop p50, the handler looks", percentile(obeyed, 0.5) * 1e3, "ms", note=note)
    yield Figure("stop p99, the handler looks", percentile(obeyed, 0.99) * 1e3, "ms", note=note)
    note = f"{sizes.stops} stops, until its process is dead; 500 ms of grace"
    yield Figure("stop p50, the handler ignores it", percentile(died, 0.5) * 1e3, "ms", note=note)
    p99 = percentile(died, 0.99) * 1e3
    target = at_most(1_000)
    yield Figure("stop p99, the handler ignores it", p99, "ms", target=target, note=note)


def _obeyed(bed: Bed, name: str) -> float:
    [job_id] = bed.app.submit_many([bed.wish("bench.obey", name)])
    bed.wait_for_mark(name)
    stopped_at = _stop(bed, job_id)
    return bed.wait_for_mark(f"{name}.end").at - stopped_at


def _died(bed: Bed, name: str) -> float:
    [job_id] = bed.app.submit_many([bed.wish("bench.hold", name)])
    pid = bed.wait_for_mark(name).pid
    stopped_at = _stop(bed, job_id)
    _wait_for_death(bed, pid)
    return time.time() - stopped_at


def _stop(bed: Bed, job_id: int) -> float:
    """Stop a job; returns when the stop was committed: the ring comes right after it."""
    rings: list[float] = []
    own = bed.app.desk.ring

    def ring() -> None:
        rings.append(time.time())
        own()

    jobs.stop(bed.desk("bench", ring), [job_id])
    return rings[0]


def _wait_for_death(bed: Bed, pid: int) -> None:
    if not hasattr(os, "pidfd_open"):
        bed.wait_for(lambda: not psutil.pid_exists(pid), "a stopped child to die")
        return
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([watched], [], [], 30.0)
    finally:
        os.close(watched)
