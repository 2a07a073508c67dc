"""Rate of submissions: one by one, from threads and processes at once, and in bulk.

The bare loop alternates with Quire, because the speed of a flush to disk varies within seconds.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from subprocess import PIPE

import psutil

from benchmarks.figures import Figure, at_least
from benchmarks.installation import PLUGIN, Backend, Installation
from benchmarks.queue.sizes import Sizes
from quire import settings
from quire.app import App
from quire.model.records import Submission

ROUNDS = 5
AT_ONCE = 8
#: How long the processes may take to start.
START_SECONDS = 5.0


def measure(backend: Backend, sizes: Sizes) -> Iterator[Figure]:
    """Submit no-op jobs while no worker is running."""
    is_sqlite = backend.name == "sqlite"
    with backend.installation() as installation, backend.bare_queue() as (_, queue):
        installation.app.submit("bench.noop")
        queue.insert()
        ours, bare = _rates(
            lambda: installation.app.submit("bench.noop"), queue.insert, sizes.singles // ROUNDS
        )
        yield Figure(
            "enqueue one by one", ours, "jobs/s", bare=bare,
            target=at_least(4_000 if is_sqlite else 2_000),
        )  # fmt: skip
        count = sizes.singles // AT_ONCE
        yield Figure(f"enqueue by {AT_ONCE} threads", _by_threads(installation, count), "jobs/s")
        yield Figure(
            f"enqueue by {AT_ONCE} processes", _by_processes(installation, count), "jobs/s"
        )
        submissions = [Submission("bench.noop", {"number": n}) for n in range(sizes.bulk_batch)]
        rounds = sizes.bulk // sizes.bulk_batch
        yield Figure(
            "enqueue in bulk",
            sizes.bulk / _seconds(lambda: installation.app.submit_many(submissions), rounds),
            "jobs/s",
            bare=sizes.bulk / _seconds(lambda: queue.insert_many(sizes.bulk_batch), rounds),
            target=at_least(60_000 if is_sqlite else 50_000),
            note=f"{sizes.bulk_batch:,} jobs a call",
        )


def _rates(
    ours: Callable[[], object], bare: Callable[[], object], count: int
) -> tuple[float, float]:
    """Return the median rates of two acts that take turns."""
    pairs = [(_seconds(ours, count), _seconds(bare, count)) for _ in range(ROUNDS)]
    mine, other = (count / median(each) for each in zip(*pairs, strict=True))
    return mine, other


def _seconds(act: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        act()
    return time.perf_counter() - began


def _by_threads(installation: Installation, count: int) -> float:
    submit = installation.app.submit
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: submit("bench.noop"), range(AT_ONCE)))  # opens what is needed
        began = time.perf_counter()
        list(pool.map(lambda _: _seconds(lambda: submit("bench.noop"), count), range(AT_ONCE)))
        return AT_ONCE * count / (time.perf_counter() - began)


def _by_processes(installation: Installation, count: int) -> float:
    begin = time.time() + START_SECONDS
    command = [sys.executable, "-m", "benchmarks.queue.enqueue"]
    command += [str(installation.home), installation.url, str(count), str(begin)]
    some = [psutil.Popen(command, stdout=PIPE, text=True) for _ in range(AT_ONCE)]
    ends = [float(each.communicate()[0]) for each in some]
    return AT_ONCE * count / (max(ends) - begin)


def main() -> None:
    """Submit jobs to an installation from a given time on; prints when the last was there."""
    home, url, count, begin = sys.argv[1:]
    app = App(settings.load({}, home=home, database_url=url, plugins=(PLUGIN,), user="bench"))
    app.submit("bench.noop")
    time.sleep(max(float(begin) - time.time(), 0))
    _seconds(lambda: app.submit("bench.noop"), int(count))
    sys.stdout.write(f"{time.time()}")
    app.close()


if __name__ == "__main__":
    main()
