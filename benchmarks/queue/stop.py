"""Time from the commit of a stop until the handler ends, whether or not it checks for stops."""

import os
import select
import time
from collections.abc import Iterator

import psutil

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend, Installation
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from quire.control import jobs


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Stop running tasks one after another."""
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        baseline = bare.pass_seconds(queue) * 1e3
        installation.start("worker")
        obeyed = [_obeyed(installation, f"obey-{n}") * 1e3 for n in range(sizes.stops)]
        died = [_died(installation, f"hold-{n}") * 1e3 for n in range(sizes.stops)]
    note = f"{sizes.stops} stops; bare: two commits"
    for share in (0.5, 0.99):
        name = f"stop p{share * 100:.0f}, the handler checks"
        yield Figure(name, percentile(obeyed, share), "ms", baseline, note=note)
    note = f"{sizes.stops} stops, until the process is dead; 500 ms are grace"
    for share, target in ((0.5, None), (0.99, at_most(1_000))):
        name = f"stop p{share * 100:.0f}, the handler ignores it"
        yield Figure(name, percentile(died, share), "ms", baseline, target, note)


def _obeyed(installation: Installation, name: str) -> float:
    [job_id] = installation.app.submit_many([installation.submission("bench.obey", name)])
    installation.wait_for_mark(name)
    stopped_at = _stop(installation, job_id)
    return installation.wait_for_mark(f"{name}.end").at - stopped_at


def _died(installation: Installation, name: str) -> float:
    [job_id] = installation.app.submit_many([installation.submission("bench.hold", name)])
    pid = installation.wait_for_mark(name).pid
    stopped_at = _stop(installation, job_id)
    _wait_for_death(installation, pid)
    return time.time() - stopped_at


def _stop(installation: Installation, job_id: int) -> float:
    """Stop a job; returns when the stop was committed: workers are woken right after it."""
    rings: list[float] = []
    own = installation.app.caller.ring

    def ring() -> None:
        rings.append(time.time())
        own()

    jobs.stop(installation.caller("bench", ring), [job_id])
    return rings[0]


def _wait_for_death(installation: Installation, pid: int) -> None:
    if not hasattr(os, "pidfd_open"):
        installation.wait_for(lambda: not psutil.pid_exists(pid), "a stopped child to die")
        return
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([watched], [], [], 30.0)
    finally:
        os.close(watched)
