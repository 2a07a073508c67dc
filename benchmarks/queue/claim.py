"""Time of a claim with few and with many tasks waiting, ready or not yet due.

The tables are filled with copies of one job and one task that Quire created, so that rows always
match the schema. Each owner's tasks are adjacent, as after a bulk submission, so a claim in fair
order reads many places of the index.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend, Installation
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from quire.control import jobs
from quire.model.records import Submission
from quire.store.queue import claim

FAR = 4_000_000_000.0


class Scenario:
    """Quire's queue and a bare one with a number of tasks waiting, and the claims timed on them."""

    def __init__(self, name: str, installation: Installation, queue: bare.Queue) -> None:
        self.name = name
        self._bed = installation
        self._queue = queue
        self._spans: dict[str, list[float]] = {"one": [], "batch": [], "bare": []}

    def claim_one(self) -> None:
        """Time a claim of one task, and the bare loop's."""
        self._time("one", lambda: _claim(self._bed, 1))
        self._time("bare", self._queue.claim)

    def claim_batch(self, size: int) -> None:
        """Time a claim of many tasks."""
        self._time("batch", lambda: _claim(self._bed, size))

    def median(self, what: str) -> float:
        """Return the median seconds of claims: `one`, `batch`, or `bare` (the bare loop)."""
        return percentile(self._spans[what], 0.5)

    def _time(self, what: str, act: Callable[[], object]) -> None:
        began = time.perf_counter()
        act()
        self._spans[what].append(time.perf_counter() - began)


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Time claims for each number of waiting tasks, alternating, so that load affects all alike."""
    few = sizes.waiting[0]
    wanted = [(count, 0) for count in sizes.waiting] + [(few, sizes.not_due)]
    with ExitStack() as stack:
        scenarios = [stack.enter_context(_scenario(backend, sizes, *one)) for one in wanted]
        for _ in range(sizes.claims):
            for scenario in scenarios:
                scenario.claim_one()
        for _ in range(sizes.batch_claims):
            for scenario in scenarios:
                scenario.claim_batch(sizes.batch)
    yield from _spans(scenarios, sizes)
    for scenario in scenarios[1:]:
        for what, size in (("one", 1), ("batch", sizes.batch)):
            growth = scenario.median(what) / scenarios[0].median(what)
            name = f"claim of {size}, {scenario.name}: growth"
            yield Figure(
                name, growth, "×", target=at_most(2.0), note=f"compared with {few:,} waiting"
            )


def _spans(scenarios: list[Scenario], sizes: Sizes) -> Iterator[Figure]:
    for scenario in scenarios:
        one, baseline = scenario.median("one") * 1e3, scenario.median("bare") * 1e3
        yield Figure(f"claim of 1, {scenario.name}", one, "ms", bare=baseline, note="p50")
        batch = scenario.median("batch") * 1e3
        note = f"p50, {batch / sizes.batch * 1e3:,.0f} µs a task"
        yield Figure(f"claim of {sizes.batch}, {scenario.name}", batch, "ms", note=note)


@contextmanager
def _scenario(backend: Backend, sizes: Sizes, ready: int, not_due: int) -> Iterator[Scenario]:
    spare = sizes.claims + sizes.batch_claims * sizes.batch + sizes.batch
    name = f"{ready:,} waiting" + (f" and {not_due:,} not due" if not_due else "")
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        owners = _plant(installation, sizes.owners)
        _copy(installation, owners, ready + spare, run_at=None)
        _copy(installation, owners, not_due, run_at=FAR)
        if backend.name == "postgres":
            installation.run("ANALYZE")
        queue.insert_many(ready + spare)
        _claim(installation, sizes.batch)
        queue.claim()
        yield Scenario(name, installation, queue)


def _claim(installation: Installation, count: int) -> None:
    known = installation.app.registry.kinds

    def act(conn: Any, now: Any) -> int:
        return len(claim.claim(conn, "bench", "default", known, now=now, ttl=600.0, limit=count))

    if installation.app.db.write(act) != count:
        raise AssertionError("the queue was empty before the measurement was over")


def _plant(installation: Installation, count: int) -> list[int]:
    """Let each owner submit a job now and one far in the future; returns the owners."""
    submissions = [Submission("bench.noop"), Submission("bench.noop", run_at=FAR)]
    for owner in range(count):
        jobs.submit(installation.caller(f"owner-{owner}"), submissions)
    return [row[0] for row in installation.rows("SELECT id FROM owners ORDER BY id")]


def _copy(
    installation: Installation, owners: list[int], count: int, *, run_at: float | None
) -> None:
    """Add `count` jobs with a task each, like the first one of that `run_at`."""
    is_alike = f"run_at = {run_at}" if run_at else "run_at IS NULL"
    share = -(-count // len(owners))
    if not count:
        return
    for at, owner in enumerate(owners):
        start = (1 if run_at is None else 2) * 1_000_000_000 + at * 10_000_000
        changed = {"owner_id": str(owner), "id": f"{start} + n"}
        task = {**changed, "job_id": changed["id"]}
        if run_at is None:
            task["fair_tag"] = "n + 1"
        else:
            task["due_at"] = f"{run_at} + n"
        installation.run(
            copying(installation, "jobs", changed, is_alike, share),
            copying(installation, "tasks", task, is_alike, share),
        )


def copying(
    installation: Installation, table: str, changed: dict[str, str], is_alike: str, count: int
) -> str:
    """Write the statement that adds `count` rows like the first one that `is_alike`."""
    columns = installation.columns(table)
    picked = ", ".join(changed.get(name, f"r.{name}") for name in columns)
    return (
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "  # noqa: S608
        f"WHERE n < {count}) INSERT INTO {table} ({', '.join(columns)}) SELECT {picked} "
        f"FROM numbers, (SELECT * FROM {table} WHERE {is_alike} ORDER BY id LIMIT 1) r"
    )
