"""Time until a task runs again after kill -9 of its child, its worker, or every process."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from statistics import median

import psutil

from benchmarks.figures import Figure, Target, at_most
from benchmarks.installation import Backend, Installation, Mark, kill, process_tree
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Kill processes of `quire up` while one task runs."""
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        baseline = bare.pass_seconds(queue)
        up = installation.start("up")
        for name, act, target in (
            ("child", _kill_child, at_most(1.0)),
            ("worker", _kill_worker, at_most(5.0)),
        ):
            spans = [_rerun(installation, f"{name}-{n}", act) for n in range(sizes.recoveries)]
            yield _figure(f"rerun after kill of a {name}", spans, baseline, target)

        def kill_everything(installation: Installation, held: Mark) -> None:
            nonlocal up
            kill(process_tree(up))
            up = installation.start("up")

        spans = [_rerun(installation, f"all-{n}", kill_everything) for n in range(sizes.recoveries)]
        note = f"median of {len(spans)}, longest {max(spans):.2f} s; includes the start"
        name = "rerun after kill of everything"
        yield Figure(name, median(spans), "s", baseline, at_most(2.0), note)


def _figure(name: str, spans: list[float], baseline: float, target: Target) -> Figure:
    note = f"longest of {len(spans)}, median {median(spans):.2f} s; bare: two commits"
    return Figure(name, max(spans), "s", baseline, target, note)


def _rerun(
    installation: Installation, name: str, act: Callable[[Installation, Mark], None]
) -> float:
    """Return the seconds from the kill to the second start of the task."""
    installation.app.submit_many([installation.submission("bench.hold", name)])
    held = installation.wait_for_mark(name)
    killed_at = time.time()
    act(installation, held)
    again = installation.wait_for_mark(name, count=2)
    installation.wait_until_done()
    return again.at - killed_at


def _kill_child(installation: Installation, held: Mark) -> None:
    os.kill(held.pid, signal.SIGKILL)


def _kill_worker(installation: Installation, held: Mark) -> None:
    parent = psutil.Process(held.pid).parent()
    if parent is not None and parent.pid != os.getpid():
        parent.kill()
