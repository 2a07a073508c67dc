"""What a worker with nothing to do costs: memory and processor time, its children included."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Site, family

MEGABYTE = 1 << 20
SETTLE_SECONDS = 1.0


class Rest(NamedTuple):
    """What processes used while they had nothing to do."""

    rss: float
    pss: float | None
    busy: float
    programs: int


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Watch a worker that has run a few tasks, then the bare loop at an empty queue."""
    with site.bed() as bed:
        worker = bed.start("worker")
        bed.app.submit_many([bed.wish("bench.mark", str(n)) for n in range(20)])
        bed.wait_until_done()
        time.sleep(SETTLE_SECONDS)
        ours = _watched(family(worker), sizes.idle_seconds)
    bare = _bare(site, sizes)
    note = f"{ours.programs} processes; bare: one, which polls every 5 ms"
    yield Figure("idle memory, sum of RSS", ours.rss, "MB", bare.rss, at_most(120), note)
    if ours.pss is not None:
        yield Figure("idle memory, sum of PSS", ours.pss, "MB", bare.pss, note="shared pages once")
    note = f"of one core, over {sizes.idle_seconds:g} s"
    yield Figure("idle processor time", ours.busy, "%", bare.busy, at_most(1.0), note)


def _bare(site: Site, sizes: Sizes) -> Rest:
    with site.bare_queue() as (url, _):
        command = [sys.executable, "-m", "benchmarks.queue.bare", "wait", url]
        waiting = psutil.Popen(command, stdin=subprocess.DEVNULL)
        try:
            time.sleep(SETTLE_SECONDS)
            return _watched([waiting], min(sizes.idle_seconds, 3.0))
        finally:
            waiting.kill()
            waiting.wait()


def _watched(some: Sequence[psutil.Process], seconds: float) -> Rest:
    before = busy_seconds(some)
    began = time.monotonic()
    time.sleep(seconds)
    busy = (busy_seconds(some) - before) / (time.monotonic() - began) * 100
    memory = [one.memory_full_info() for one in some]
    rss = sum(one.rss for one in memory) / MEGABYTE
    shares = [getattr(one, "pss", None) for one in memory]
    pss = sum(share for share in shares if share is not None) / MEGABYTE
    return Rest(rss, pss or None, busy, len(some))


def busy_seconds(some: Sequence[psutil.Process]) -> float:
    """Return the processor time that processes have used."""
    return sum(sum(one.cpu_times()[:2]) for one in some)
