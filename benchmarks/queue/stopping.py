"""How soon a stop takes effect after its commit, on a handler that looks and one that does not."""

import os
import select
import time
from collections.abc import Iterator

import psutil

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site
from quire.control import jobs


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Stop one running task after another."""
    with site.bed() as bed, site.bare_queue() as (_, queue):
        beside = bare.pass_seconds(queue) * 1e3
        bed.start("worker")
        obeyed = [_obeyed(bed, f"obey-{n}") * 1e3 for n in range(sizes.stops)]
        died = [_died(bed, f"hold-{n}") * 1e3 for n in range(sizes.stops)]
    note = f"{sizes.stops} stops; bare: two commits"
    for share in (0.5, 0.99):
        name = f"stop p{share * 100:.0f}, the handler looks"
        yield Figure(name, percentile(obeyed, share), "ms", beside, note=note)
    note = f"{sizes.stops} stops, until its process is dead; 500 ms are grace"
    for share, target in ((0.5, None), (0.99, at_most(1_000))):
        name = f"stop p{share * 100:.0f}, the handler ignores it"
        yield Figure(name, percentile(died, share), "ms", beside, target, note)


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
    own = bed.app.caller.ring

    def ring() -> None:
        rings.append(time.time())
        own()

    jobs.stop(bed.caller("bench", ring), [job_id])
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
