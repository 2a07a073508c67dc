"""How soon a task runs again after a kill -9: of its child, of its worker, of everything."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from statistics import median

import psutil

from benchmarks.figures import Figure, Target, at_most
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Mark, Site, family, kill


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Kill under `quire up` while one task runs, again and again."""
    with site.bed() as bed, site.bare_queue() as (_, queue):
        beside = bare.pass_seconds(queue)
        up = bed.start("up")
        for name, act, target in (
            ("child", _kill_child, at_most(1.0)),
            ("worker", _kill_worker, at_most(5.0)),
        ):
            spans = [_rerun(bed, f"{name}-{n}", act) for n in range(sizes.recoveries)]
            yield _figure(f"recovery from a killed {name}", spans, beside, target)

        def kill_everything(bed: Bed, held: Mark) -> None:
            nonlocal up
            kill(family(up))
            up = bed.start("up")

        spans = [_rerun(bed, f"all-{n}", kill_everything) for n in range(sizes.recoveries)]
        yield _figure("recovery of everything", spans, beside, None, "until `quire up` is back; ")


def _figure(
    name: str, spans: list[float], beside: float, target: Target | None, why: str = ""
) -> Figure:
    note = f"{why}longest of {len(spans)}, median {median(spans):.2f} s; bare: two commits"
    return Figure(name, max(spans), "s", beside, target, note)


def _rerun(bed: Bed, name: str, act: Callable[[Bed, Mark], None]) -> float:
    """Return the seconds from a kill to the second begin of the task that it hit."""
    bed.app.submit_many([bed.wish("bench.hold", name)])
    held = bed.wait_for_mark(name)
    killed_at = time.time()
    act(bed, held)
    again = bed.wait_for_mark(name, count=2)
    bed.wait_until_done()
    return again.at - killed_at


def _kill_child(bed: Bed, held: Mark) -> None:
    os.kill(held.pid, signal.SIGKILL)


def _kill_worker(bed: Bed, held: Mark) -> None:
    parent = psutil.Process(held.pid).parent()
    if parent is not None and parent.pid != os.getpid():
        parent.kill()
