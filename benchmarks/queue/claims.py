"""How long a claim takes with few and with many tasks waiting, ready or not yet due.

The tables are filled by copying one job and one task that Quire made itself, so that a row has
whatever columns the schema has. Each owner's tasks lie together, as a bulk submission leaves
them: a claim in fair order has to look at many places.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.queue import bare
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site
from quire.control import jobs
from quire.model.records import Submission
from quire.store.queue import claim

FAR = 4_000_000_000.0


class Scene:
    """One number of tasks waiting: Quire's queue and a bare one, and the claims timed on them."""

    def __init__(self, name: str, bed: Bed, queue: bare.Queue) -> None:
        self.name = name
        self._bed = bed
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
        """Return the median seconds of the claims of `one`, of a `batch`, or of the `bare` loop."""
        return percentile(self._spans[what], 0.5)

    def _time(self, what: str, act: Callable[[], object]) -> None:
        began = time.perf_counter()
        act()
        self._spans[what].append(time.perf_counter() - began)


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Time claims beside each number of tasks waiting, in turns, so that all meet the same load."""
    few = sizes.waiting[0]
    wanted = [(count, 0) for count in sizes.waiting] + [(few, sizes.not_due)]
    with ExitStack() as stack:
        scenes = [stack.enter_context(_scene(site, sizes, *one)) for one in wanted]
        for _ in range(sizes.claims):
            for scene in scenes:
                scene.claim_one()
        for _ in range(sizes.batch_claims):
            for scene in scenes:
                scene.claim_batch(sizes.batch)
    yield from _spans(scenes, sizes)
    for scene in scenes[1:]:
        for what, size in (("one", 1), ("batch", sizes.batch)):
            growth = scene.median(what) / scenes[0].median(what)
            name = f"claim of {size}, {scene.name}: growth"
            yield Figure(
                name, growth, "×", target=at_most(2.0), note=f"× that with {few:,} waiting"
            )


def _spans(scenes: list[Scene], sizes: Sizes) -> Iterator[Figure]:
    for scene in scenes:
        one, beside = scene.median("one") * 1e3, scene.median("bare") * 1e3
        yield Figure(f"claim of 1, {scene.name}", one, "ms", bare=beside, note="p50")
        batch = scene.median("batch") * 1e3
        note = f"p50, {batch / sizes.batch * 1e3:,.0f} µs a task"
        yield Figure(f"claim of {sizes.batch}, {scene.name}", batch, "ms", note=note)


@contextmanager
def _scene(site: Site, sizes: Sizes, ready: int, not_due: int) -> Iterator[Scene]:
    spare = sizes.claims + sizes.batch_claims * sizes.batch + sizes.batch
    name = f"{ready:,} waiting" + (f" and {not_due:,} not due" if not_due else "")
    with site.bed() as bed, site.bare_queue() as (_, queue):
        owners = _plant(bed, sizes.owners)
        _copy(bed, owners, ready + spare, run_at=None)
        _copy(bed, owners, not_due, run_at=FAR)
        if site.name == "postgres":
            bed.run("ANALYZE")
        queue.insert_many(ready + spare)
        _claim(bed, sizes.batch)
        queue.claim()
        yield Scene(name, bed, queue)


def _claim(bed: Bed, count: int) -> None:
    known = bed.app.registry.kinds

    def act(conn: Any, now: Any) -> int:
        return len(claim.claim(conn, "bench", "default", known, now=now, ttl=600.0, limit=count))

    if bed.app.db.write(act) != count:
        raise AssertionError("the queue was empty before the measurement was over")


def _plant(bed: Bed, count: int) -> list[int]:
    """Let each owner submit a job now and one far in the future; returns the owners."""
    wishes = [Submission("bench.noop"), Submission("bench.noop", run_at=FAR)]
    for owner in range(count):
        jobs.submit(bed.caller(f"owner-{owner}"), wishes)
    return [row[0] for row in bed.rows("SELECT id FROM owners ORDER BY id")]


def _copy(bed: Bed, owners: list[int], count: int, *, run_at: float | None) -> None:
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
        bed.run(
            copying(bed, "jobs", changed, is_alike, share),
            copying(bed, "tasks", task, is_alike, share),
        )


def copying(bed: Bed, table: str, changed: dict[str, str], is_alike: str, count: int) -> str:
    """Write the statement that adds `count` rows like the first one that `is_alike`."""
    columns = bed.columns(table)
    picked = ", ".join(changed.get(name, f"r.{name}") for name in columns)
    return (
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "  # noqa: S608
        f"WHERE n < {count}) INSERT INTO {table} ({', '.join(columns)}) SELECT {picked} "
        f"FROM numbers, (SELECT * FROM {table} WHERE {is_alike} ORDER BY id LIMIT 1) r"
    )
