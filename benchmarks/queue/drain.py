"""How fast a full queue is worked off by two workers with one child each, and what it writes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, Target, at_least, rate
from benchmarks.queue import fairness, idle
from benchmarks.queue.sizes import Sizes
from benchmarks.site import Bed, Site, family
from quire.control import jobs
from quire.model.records import Submission

TARGETS = {"sqlite": at_least(10_000), "postgres": at_least(6_000)}
PROGRAMS = 2


class Drained(NamedTuple):
    """One drain; bytes and seconds of processor time are per task and without the server's."""

    rate: float
    bytes: float | None
    busy: float
    returned: float = 0.0
    unevenness: float = 0.0


def measure(site: Site, sizes: Sizes) -> Iterator[Figure]:
    """Drain no-op tasks and a mixture, in turns with the bare loop."""
    bare, plain, mixed = [], [], []
    for _ in range(sizes.drain_rounds):
        bare.append(_bare(site, sizes.bare_drain))
        plain.append(drained(site, sizes, is_mixed=False))
        mixed.append(drained(site, sizes, is_mixed=True))
    span = f"{PROGRAMS} workers, {sizes.drain:,} tasks, {_range(plain)}"
    yield _rate("drain of no-op tasks", plain, bare, TARGETS.get(site.name), span)
    yield _rate("drain of mixed tasks", mixed, bare, None, "1 KB, 50 owners, 10 % fail")
    share = 100 * median(one.rate for one in mixed) / median(one.rate for one in plain)
    yield Figure("mixed drain, of the no-op drain", share, "%", target=at_least(70))
    spent, beside = median(one.busy for one in plain), median(one.busy for one in bare)
    note = "workers and children, without a server"
    yield Figure("processor time per no-op task", spent * 1e6, "µs", beside * 1e6, note=note)
    yield from _written("bytes written per no-op task", plain, bare)
    yield from _written("bytes written per mixed task", mixed, bare)
    for name, some in (("no-op", plain), ("mixed", mixed)):
        value = median(one.returned for one in some)
        note = "claimed and given back, per task"
        yield Figure(f"claims in vain, {name} tasks", value, "claims", note=note)
    yield fairness.shares(median(one.unevenness for one in mixed), sizes.owners)


def _range(some: list[Drained]) -> str:
    rates = [one.rate for one in some]
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def _rate(
    name: str, some: list[Drained], bare: list[Drained], target: Target | None, note: str
) -> Figure:
    value, beside = median(one.rate for one in some), median(one.rate for one in bare)
    return Figure(name, value, "tasks/s", bare=beside, target=target, note=note)


def _written(name: str, some: list[Drained], bare: list[Drained]) -> Iterator[Figure]:
    known = [one.bytes for one in some if one.bytes is not None]
    beside = [one.bytes for one in bare if one.bytes is not None]
    if known and beside:
        yield Figure(name, median(known), "bytes", bare=median(beside))


def drained(site: Site, sizes: Sizes, *, is_mixed: bool) -> Drained:
    """Fill a queue and let two workers work it off."""
    with site.bed() as bed:
        (_submit_mixed if is_mixed else _submit_plain)(bed, sizes)
        bed.run(*(["ANALYZE"] if site.name == "postgres" else []))
        before = wal_position(bed)
        workers = [bed.start("worker", concurrency=1) for _ in range(PROGRAMS)]
        bed.wait_for(lambda: bed.count("attempts") > 0, "the first task to end")
        begun, spent = len(_ends(bed)), _busy(workers)
        bed.wait_until_done()
        ended = _ends(bed)
        uneven = fairness.unevenness(bed) if is_mixed else 0.0
        busy = (_busy(workers) - spent) / (len(ended) - begun)
        written = _bytes(bed, workers, before, len(ended))
        returned = bed.count("attempts") / len(ended) - 1
        return Drained(rate(ended), written, busy, returned, uneven)


def _ends(bed: Bed) -> list[float]:
    found = bed.rows("SELECT finished_at FROM tasks WHERE finished_at IS NOT NULL")
    return [row[0] for row in found]


def _busy(workers: list[psutil.Process]) -> float:
    return idle.busy_seconds([one for worker in workers for one in family(worker)])


def _submit_plain(bed: Bed, sizes: Sizes) -> None:
    wishes = [Submission("bench.noop")] * sizes.bulk_batch
    for _ in range(-(-sizes.drain // sizes.bulk_batch)):
        bed.app.submit_many(wishes)


def _submit_mixed(bed: Bed, sizes: Sizes) -> None:
    text = "x" * 1_000
    share = sizes.drain // sizes.owners
    for owner in range(sizes.owners):
        wishes = [
            Submission("bench.fail" if n % 10 == 0 else "bench.noop", {"text": text})
            for n in range(share)
        ]
        jobs.submit(bed.caller(f"owner-{owner}"), wishes)


def _bytes(bed: Bed, workers: list[psutil.Process], before: int | None, count: int) -> float | None:
    if before is not None:
        after = wal_position(bed)
        return None if after is None else (after - before) / count
    written = [io_bytes(one.pid) for worker in workers for one in family(worker)]
    known = [one for one in written if one is not None]
    return sum(known) / count if known else None


def wal_position(bed: Bed) -> int | None:
    """Return how far PostgreSQL's log has got, in bytes; None on SQLite."""
    if bed.url.startswith("sqlite"):
        return None
    return int(bed.rows("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])


def io_bytes(pid: int) -> int | None:
    """Return the bytes that a process sent to storage, where the system counts them."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return None
    return int(text.partition("\nwrite_bytes:")[2].split(None, 1)[0])


def _bare(site: Site, count: int) -> Drained:
    with site.bare_queue() as (url, queue):
        queue.insert_many(count)
        before = queue.written()
        command = [sys.executable, "-m", "benchmarks.queue.bare", "drain", url]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(PROGRAMS)]  # noqa: S603
        told = [json.loads(one.communicate()[0]) for one in running]
        after = queue.written()
        by_log = None if before is None or after is None else after - before
        by_files = sum(one["bytes"] or 0 for one in told) or None
        written = by_files if by_log is None else by_log
        busy = sum(one["busy"] for one in told) / count
        return Drained(rate(queue.ended()), None if written is None else written / count, busy)
