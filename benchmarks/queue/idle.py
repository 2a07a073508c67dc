"""Memory and CPU time of an idle worker with its children."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.installation import Backend, process_tree
from benchmarks.queue.sizes import Sizes

MEGABYTE = 1 << 20
SETTLE_SECONDS = 1.0


class IdleUsage(NamedTuple):
    """What idle processes use: MB, and percent of a core."""

    rss: float
    pss: float | None
    busy: float
    programs: int


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Observe a worker that has run a few tasks, then the bare loop on an empty queue."""
    with backend.installation() as installation:
        worker = installation.start("worker")
        installation.app.submit_many(
            [installation.submission("bench.mark", str(n)) for n in range(20)]
        )
        installation.wait_until_done()
        time.sleep(SETTLE_SECONDS)
        ours = _watched(process_tree(worker), sizes.idle_seconds)
    bare = _bare(backend, sizes)
    note = f"{ours.programs} processes; bare: one that polls every 5 ms"
    yield Figure("idle memory, sum of RSS", ours.rss, "MB", bare.rss, at_most(120), note)
    if ours.pss is not None:
        yield Figure(
            "idle memory, sum of PSS", ours.pss, "MB", bare.pss, note="shared pages counted once"
        )
    note = f"of one core, over {sizes.idle_seconds:g} s"
    yield Figure("idle CPU time", ours.busy, "%", bare.busy, at_most(1.0), note)
    whole = _quire_up(backend, sizes)
    if whole.pss is not None:
        note = f"{whole.programs} processes: API, scheduler and a worker with its children"
        name = "idle memory of quire up, sum of PSS"
        yield Figure(name, whole.pss, "MB", target=at_most(180), note=note)


def _quire_up(backend: Backend, sizes: Sizes) -> IdleUsage:
    with backend.installation() as installation:
        up = installation.start("up", concurrency=2, api_port=0, api_auth=False)
        installation.app.submit_many([installation.submission("bench.mark", "1")])
        installation.wait_until_done()
        while "api.started" not in installation.log.read_text() and up.is_running():
            time.sleep(0.05)
        time.sleep(SETTLE_SECONDS)
        return _watched(process_tree(up), min(sizes.idle_seconds, 3.0))


def _bare(backend: Backend, sizes: Sizes) -> IdleUsage:
    with backend.bare_queue() as (url, _):
        command = [sys.executable, "-m", "benchmarks.queue.bare", "wait", url]
        waiting = psutil.Popen(command, stdin=subprocess.DEVNULL)
        try:
            time.sleep(SETTLE_SECONDS)
            return _watched([waiting], min(sizes.idle_seconds, 3.0))
        finally:
            waiting.kill()
            waiting.wait()


def _watched(some: Sequence[psutil.Process], seconds: float) -> IdleUsage:
    before = cpu_seconds(some)
    began = time.monotonic()
    time.sleep(seconds)
    busy = (cpu_seconds(some) - before) / (time.monotonic() - began) * 100
    memory = [one.memory_full_info() for one in some]
    rss = sum(one.rss for one in memory) / MEGABYTE
    shares = [getattr(one, "pss", None) for one in memory]
    pss = sum(share for share in shares if share is not None) / MEGABYTE
    return IdleUsage(rss, pss or None, busy, len(some))


def cpu_seconds(some: Sequence[psutil.Process]) -> float:
    """Return the CPU time of processes, with that of their children that have ended."""
    return sum(sum(one.cpu_times()[:4]) for one in some)
