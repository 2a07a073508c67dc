"""A server to measure, and jobs in it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx
import psutil

from benchmarks.queue.claims import copying
from benchmarks.site import Bed, Site
from quire.control import jobs
from quire.model.records import Submission

#: Ids of made jobs begin here; each state and user has a block of its own.
FIRST, BLOCK = 1_000_000, 1_000_000
#: How many of a hundred jobs are in which state, with what the others have not.
_SHARES = {"completed": 90, "failed": 5, "pending": 5}
_CHANGES = {
    "completed": "tasks_ready = 0, tasks_done = 1, progress = 1, cost_done = 1",
    "failed": "tasks_ready = 0, tasks_failed = 1, kind = 'bench.fail', error = 'made to fail'",
}


class Target(NamedTuple):
    """A server that runs."""

    bed: Bed
    http: httpx.Client
    program: psutil.Process


@contextlib.contextmanager
def serving(site: Site, fill: Callable[[Bed], None] = lambda bed: None) -> Iterator[Target]:
    """Start the API on a fresh database, filled before."""
    with site.bed() as bed:
        fill(bed)
        program = bed.start(
            "api", "--port", "0", api_auth="off", api_requests_per_minute=0, log_level="warning"
        )
        url = _url(bed)
        with httpx.Client(base_url=url, timeout=60.0) as http:
            bed.wait_for(lambda: _is_ready(http), "the API to answer", every=0.05)
            yield Target(bed, http, program)


def _url(bed: Bed) -> str:
    """Read the address from what the server prints at its start."""

    def printed() -> list[str]:
        text = bed.log.read_text() if bed.log.exists() else ""
        return [line for line in text.splitlines() if line.startswith("The dashboard is at ")]

    bed.wait_for(lambda: bool(printed()), "the API to start", every=0.05)
    return printed()[-1].removeprefix("The dashboard is at ")


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def timed(http: httpx.Client, path: str, count: int) -> list[float]:
    """Ask for a path again and again; returns the milliseconds of each answer."""
    spans = []
    for _ in range(count):
        began = time.perf_counter()
        answer = http.get(path)
        spans.append((time.perf_counter() - began) * 1e3)
        answer.raise_for_status()
    return spans


def plant(bed: Bed, count: int, users: int) -> None:
    """Add jobs of many users, most of them completed, with a task each."""
    for user in range(users):
        jobs.submit(bed.caller(f"user-{user}"), [Submission("bench.noop")])
    owners = [row[0] for row in bed.rows("SELECT id FROM owners ORDER BY id")]
    templates = jobs.submit(bed.caller("user-0"), [Submission("bench.noop")] * len(_SHARES))
    for template, (state, share) in zip(templates, _SHARES.items(), strict=True):
        _end(bed, template, state)
        for at, owner in enumerate(owners):
            # Users and states lie mixed, as they do after a while.
            first = f"{FIRST} + n * {100 * users} + {at * 100 + list(_SHARES).index(state)}"
            _copy(bed, template, owner, first, round(count * share / 100 / users))
    if bed.app.db.path is None:
        bed.run("ANALYZE")


def _end(bed: Bed, job_id: int, state: str) -> None:
    if state == "pending":
        return
    ended = {"completed": "done", "failed": "failed"}[state]
    bed.run(
        f"UPDATE jobs SET state = '{state}', finished_at = created_at + 1, "  # noqa: S608
        f"started_at = created_at, {_CHANGES[state]} WHERE id = {job_id}",
        f"UPDATE tasks SET state = '{ended}', finished_at = 1 WHERE job_id = {job_id}",  # noqa: S608
    )


def _copy(bed: Bed, template: int, owner: int, first: str, count: int) -> None:
    if not count:
        return
    changed = {"owner_id": str(owner), "id": first}
    bed.run(
        copying(bed, "jobs", changed, f"id = {template}", count),
        copying(bed, "tasks", {**changed, "job_id": first}, f"job_id = {template}", count),
    )
