"""An API process to measure, and many jobs in its database."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx
import psutil

from benchmarks.installation import Backend, Installation
from benchmarks.queue.claim import copying
from quire.control import jobs
from quire.model.records import Submission

#: Ids of copied jobs start here; states and users are interleaved.
FIRST, BLOCK = 1_000_000, 1_000_000
#: Percent of the jobs in each state, and the columns that differ from a pending job.
_SHARES = {"completed": 90, "failed": 5, "pending": 5}
_CHANGES = {
    "completed": "tasks_ready = 0, tasks_done = 1, progress = 1, cost_done = 1",
    "failed": "tasks_ready = 0, tasks_failed = 1, kind = 'bench.fail', error = 'made to fail'",
}
#: What the API prints before its URL when it starts.
_DASHBOARD = "Dashboard: "


class Target(NamedTuple):
    """A running API process."""

    installation: Installation
    http: httpx.Client
    program: psutil.Process


@contextlib.contextmanager
def serving(
    backend: Backend, fill: Callable[[Installation], None] = lambda installation: None
) -> Iterator[Target]:
    """Start the API on a new database, after `fill`."""
    with backend.installation() as installation:
        fill(installation)
        program = installation.start(
            "api", "--port", "0", api_auth="off", api_requests_per_minute=0, log_level="warning"
        )
        url = _url(installation)
        with httpx.Client(base_url=url, timeout=60.0) as http:
            installation.wait_for(lambda: _is_ready(http), "the API to answer", every=0.05)
            yield Target(installation, http, program)


def _url(installation: Installation) -> str:
    """Read the URL that the server prints when it starts."""

    def printed() -> list[str]:
        text = installation.log.read_text() if installation.log.exists() else ""
        return [line for line in text.splitlines() if line.startswith(_DASHBOARD)]

    installation.wait_for(lambda: bool(printed()), "the API to start", every=0.05)
    return printed()[-1].removeprefix(_DASHBOARD)


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def timed(http: httpx.Client, path: str, count: int) -> list[float]:
    """Request a path `count` times; returns the milliseconds of each answer."""
    spans = []
    for _ in range(count):
        began = time.perf_counter()
        answer = http.get(path)
        spans.append((time.perf_counter() - began) * 1e3)
        answer.raise_for_status()
    return spans


def create_jobs(installation: Installation, count: int, users: int) -> None:
    """Add jobs of many users with one task each; most are completed."""
    for user in range(users):
        jobs.submit(installation.caller(f"user-{user}"), [Submission("bench.noop")])
    owners = [row[0] for row in installation.rows("SELECT id FROM owners ORDER BY id")]
    templates = jobs.submit(
        installation.caller("user-0"), [Submission("bench.noop")] * len(_SHARES)
    )
    for template, (state, share) in zip(templates, _SHARES.items(), strict=True):
        _end(installation, template, state)
        for at, owner in enumerate(owners):
            # Interleave users and states, as in a real installation.
            first = f"{FIRST} + n * {100 * users} + {at * 100 + list(_SHARES).index(state)}"
            _copy(installation, template, owner, first, round(count * share / 100 / users))
    if installation.app.db.path is None:
        installation.run("ANALYZE")


def _end(installation: Installation, job_id: int, state: str) -> None:
    if state == "pending":
        return
    ended = {"completed": "done", "failed": "failed"}[state]
    installation.run(
        f"UPDATE jobs SET state = '{state}', finished_at = created_at + 1, "  # noqa: S608
        f"started_at = created_at, {_CHANGES[state]} WHERE id = {job_id}",
        f"UPDATE tasks SET state = '{ended}', finished_at = 1 WHERE job_id = {job_id}",  # noqa: S608
    )


def _copy(installation: Installation, template: int, owner: int, first: str, count: int) -> None:
    if not count:
        return
    changed = {"owner_id": str(owner), "id": first}
    installation.run(
        copying(installation, "jobs", changed, f"id = {template}", count),
        copying(installation, "tasks", {**changed, "job_id": first}, f"job_id = {template}", count),
    )
