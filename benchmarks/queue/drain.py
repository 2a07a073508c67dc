"""Throughput of two workers with one child each on a full queue, and the bytes they write."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.figures import Figure, Target, at_least, rate
from benchmarks.installation import Backend, Installation, process_tree
from benchmarks.queue import fairness, idle
from benchmarks.queue.sizes import Sizes
from quire.control import jobs
from quire.model.records import Submission

TARGETS = {"sqlite": at_least(10_000), "postgres": at_least(6_000)}
PROGRAMS = 2


class Drained(NamedTuple):
    """One drain. Bytes and CPU seconds are per task, and exclude the database server."""

    rate: float
    bytes: float | None
    cpu: float
    returned: float = 0.0
    unevenness: float = 0.0


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Drain no-op tasks and mixed tasks, alternating with the bare loop."""
    bare, plain, default, mixed = [], [], [], []
    for _ in range(sizes.drain_rounds):
        bare.append(_bare(backend, sizes.bare_drain))
        plain.append(drained(backend, sizes, is_mixed=False))
        default.append(drained(backend, sizes, is_mixed=False, programs=1))
        mixed.append(drained(backend, sizes, is_mixed=True))
    span = f"{PROGRAMS} workers, {sizes.drain:,} tasks, {_range(plain)}"
    yield _rate("drain of no-op tasks", plain, bare, TARGETS.get(backend.name), span)
    note = f"1 worker with a child for each core, as `quire up` runs, {_range(default)}"
    yield _rate("drain by the default worker", default, bare, at_least(12_000), note)
    yield _rate("drain of mixed tasks", mixed, bare, None, "1 KB, 50 owners, 10 % fail")
    share = 100 * median(one.rate for one in mixed) / median(one.rate for one in plain)
    yield Figure("mixed drain, share of the no-op drain", share, "%", target=at_least(70))
    spent, baseline = median(one.cpu for one in plain), median(one.cpu for one in bare)
    note = "workers and children, without the database server"
    yield Figure("CPU time per no-op task", spent * 1e6, "µs", baseline * 1e6, note=note)
    yield from _written("bytes written per no-op task", plain, bare)
    yield from _written("bytes written per mixed task", mixed, bare)
    for name, some in (("no-op", plain), ("mixed", mixed)):
        value = median(one.returned for one in some)
        note = "per task"
        yield Figure(f"claims given back, {name} tasks", value, "claims", note=note)
    yield fairness.shares(median(one.unevenness for one in mixed), sizes.owners)


def _range(some: list[Drained]) -> str:
    rates = [one.rate for one in some]
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def _rate(
    name: str, some: list[Drained], bare: list[Drained], target: Target | None, note: str
) -> Figure:
    value, baseline = median(one.rate for one in some), median(one.rate for one in bare)
    return Figure(name, value, "tasks/s", bare=baseline, target=target, note=note)


def _written(name: str, some: list[Drained], bare: list[Drained]) -> Iterator[Figure]:
    known = [one.bytes for one in some if one.bytes is not None]
    baseline = [one.bytes for one in bare if one.bytes is not None]
    if known and baseline:
        yield Figure(name, median(known), "bytes", bare=median(baseline))


def drained(backend: Backend, sizes: Sizes, *, is_mixed: bool, programs: int = PROGRAMS) -> Drained:
    """Fill a queue and let two workers with a child each drain it, or one with its default."""
    with backend.installation() as installation:
        (_submit_mixed if is_mixed else _submit_plain)(installation, sizes)
        installation.run(*(["ANALYZE"] if backend.name == "postgres" else []))
        before = wal_position(installation)
        children = 1 if programs > 1 else 0
        workers = [installation.start("worker", concurrency=children) for _ in range(programs)]
        installation.wait_for(lambda: installation.count("attempts") > 0, "the first task to end")
        begun, spent = len(_ends(installation)), _cpu_seconds(workers)
        installation.wait_until_done()
        ended = _ends(installation)
        uneven = fairness.unevenness(installation) if is_mixed else 0.0
        busy = (_cpu_seconds(workers) - spent) / (len(ended) - begun)
        written = _bytes(installation, workers, before, len(ended))
        returned = installation.count("attempts") / len(ended) - 1
        return Drained(rate(ended), written, busy, returned, uneven)


def _ends(installation: Installation) -> list[float]:
    found = installation.rows("SELECT finished_at FROM tasks WHERE finished_at IS NOT NULL")
    return [row[0] for row in found]


def _cpu_seconds(workers: list[psutil.Process]) -> float:
    return idle.cpu_seconds([one for worker in workers for one in process_tree(worker)])


def _submit_plain(installation: Installation, sizes: Sizes) -> None:
    submissions = [Submission("bench.noop")] * sizes.bulk_batch
    for _ in range(-(-sizes.drain // sizes.bulk_batch)):
        installation.app.submit_many(submissions)


def _submit_mixed(installation: Installation, sizes: Sizes) -> None:
    text = "x" * 1_000
    share = sizes.drain // sizes.owners
    for owner in range(sizes.owners):
        submissions = [
            Submission("bench.fail" if n % 10 == 0 else "bench.noop", {"text": text})
            for n in range(share)
        ]
        jobs.submit(installation.caller(f"owner-{owner}"), submissions)


def _bytes(
    installation: Installation, workers: list[psutil.Process], before: int | None, count: int
) -> float | None:
    if before is not None:
        after = wal_position(installation)
        return None if after is None else (after - before) / count
    written = [io_bytes(one.pid) for worker in workers for one in process_tree(worker)]
    known = [one for one in written if one is not None]
    return sum(known) / count if known else None


def wal_position(installation: Installation) -> int | None:
    """Return the WAL position of PostgreSQL in bytes; None on SQLite."""
    if installation.url.startswith("sqlite"):
        return None
    return int(installation.rows("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])


def io_bytes(pid: int) -> int | None:
    """Return the bytes a process wrote to storage; None if the system does not count them."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return None
    return int(text.partition("\nwrite_bytes:")[2].split(None, 1)[0])


def _bare(backend: Backend, count: int) -> Drained:
    with backend.bare_queue() as (url, queue):
        queue.insert_many(count)
        before = queue.written()
        command = [sys.executable, "-m", "benchmarks.queue.bare", "drain", url]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(PROGRAMS)]  # noqa: S603
        reported = [json.loads(one.communicate()[0]) for one in running]
        after = queue.written()
        by_log = None if before is None or after is None else after - before
        by_files = sum(one["bytes"] or 0 for one in reported) or None
        written = by_files if by_log is None else by_log
        busy = sum(one["busy"] for one in reported) / count
        return Drained(rate(queue.ended()), None if written is None else written / count, busy)
