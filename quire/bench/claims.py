"""How long a claim takes with few and with many tasks waiting, ready or not yet due.

The tables are filled by copying one job and one task that Quire made itself, so that a row has
whatever columns the schema has. Each owner's tasks lie together, as a bulk submission leaves
them: a claim in fair order has to look at many places.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from quire.bench.figures import Figure, at_most, percentile
from quire.bench.site import Bed, Site
from quire.bench.sizes import Sizes
from quire.control import jobs
from quire.model.records import Submission
from quire.store import claim

FAR = 4_000_000_000.0


class Spans(NamedTuple):
    """The median seconds of a claim: of one task, of a batch, and of the bare loop's one."""

    one: float
    batch: float
    bare: float


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Time claims at each number of tasks waiting, then with tasks beside that are not due."""
    first: Spans | None = None
    for count in sizes.waiting:
        spans = _measured(site, sizes, ready=count, not_due=0)
        yield from _figures(f"{count:,} waiting", spans, first, sizes)
        first = first or spans
    spans = _measured(site, sizes, ready=sizes.waiting[0], not_due=sizes.not_due)
    name = f"{sizes.waiting[0]:,} waiting and {sizes.not_due:,} not due"
    yield from _figures(name, spans, first, sizes)


def _figures(name: str, spans: Spans, first: Spans | None, sizes: Sizes) -> Iterator[Figure]:
    yield Figure(f"claim of 1, {name}", spans.one * 1e3, "ms", bare=spans.bare * 1e3, note="p50")
    note = f"p50, {spans.batch / sizes.batch * 1e6:,.0f} µs a task"
    yield Figure(f"claim of {sizes.batch}, {name}", spans.batch * 1e3, "ms", note=note)
    if first is None:
        return
    for size, span, before in ((1, spans.one, first.one), (sizes.batch, spans.batch, first.batch)):
        growth = span / before
        title = f"claim of {size}, {name}: growth"
        note = f"× the claim with {sizes.waiting[0]:,} waiting"
        yield Figure(title, growth, "×", target=at_most(2.0), note=note)


def _measured(site: Site, sizes: Sizes, *, ready: int, not_due: int) -> Spans:
    spare = sizes.claims + sizes.batch_claims * sizes.batch + sizes.batch
    with site.bed() as bed:
        owners = _plant(bed, sizes.owners)
        _copy(bed, owners, ready + spare, run_at=None)
        _copy(bed, owners, not_due, run_at=FAR)
        if site.name == "postgres":
            bed.run("ANALYZE")
        _claim(bed, sizes.batch)
        one = _timed(lambda: _claim(bed, 1), sizes.claims)
        batch = _timed(lambda: _claim(bed, sizes.batch), sizes.batch_claims)
    with site.bare_queue() as (_, queue):
        queue.insert_many(ready + spare)
        queue.claim()
        return Spans(one, batch, _timed(queue.claim, sizes.claims))


def _timed(act: Callable[[], object], times: int) -> float:
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        spans.append(time.perf_counter() - began)
    return percentile(spans, 0.5)


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
        jobs.submit(bed.desk(f"owner-{owner}"), wishes)
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
            _copying(bed, "jobs", changed, is_alike, share),
            _copying(bed, "tasks", task, is_alike, share),
        )


def _copying(bed: Bed, table: str, changed: dict[str, str], is_alike: str, count: int) -> str:
    columns = bed.columns(table)
    picked = ", ".join(changed.get(name, f"r.{name}") for name in columns)
    return (
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "  # noqa: S608
        f"WHERE n < {count}) INSERT INTO {table} ({', '.join(columns)}) SELECT {picked} "
        f"FROM numbers, (SELECT * FROM {table} WHERE {is_alike} ORDER BY id LIMIT 1) r"
    )
