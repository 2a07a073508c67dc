"""What kill -9 of every process of the workers costs: when jobs run again, which are lost or twice.

Some queues need a minute until they notice. They are watched while the next ones are measured.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.queue.peers import marks
from benchmarks.queue.peers.rows import Row
from benchmarks.queue.peers.site import Servers, Site, opened
from benchmarks.queue.peers.sizes import Sizes

#: A queue that is done within this time after the last start is not watched for longer.
_AT_ONCE_SECONDS = 10.0
_LOOK_SECONDS = 0.1


class Crash(NamedTuple):
    """Seconds from a kill until each job it interrupted ran again, and jobs that went wrong."""

    reruns: list[float]
    lost: int
    twice: int


def measure(rows: Sequence[Row], servers: Servers, sizes: Sizes) -> Iterator[tuple[Row, Crash]]:
    """Kill the workers of each queue a few times; yields what became of its jobs."""
    with ExitStack() as stack:
        watched: list[tuple[Site, list[float], float]] = []
        for row in rows:
            site = stack.enter_context(opened(row, servers, crash=True))
            kills = _killed(site, sizes)
            until = time.monotonic() + sizes.watch_seconds
            if _is_done_by(site, sizes, min(until, time.monotonic() + _AT_ONCE_SECONDS)):
                site.kill()
                yield row, analysed(list(marks.read(site.marks)), kills, sizes.killed_jobs)
            else:
                watched.append((site, kills, until))
        for site, kills, until in watched:
            _is_done_by(site, sizes, until)
            site.kill()
            yield site.row, analysed(list(marks.read(site.marks)), kills, sizes.killed_jobs)


def _killed(site: Site, sizes: Sizes) -> list[float]:
    """Kill everything again and again while jobs run; returns when, with the workers started."""
    site.submit(0, sizes.killed_jobs, seconds=sizes.job_seconds)
    kills = []
    for _ in range(sizes.kills):
        have = marks.count(site.marks)
        site.start()
        site.wait_for_marks(have + 1)
        time.sleep(sizes.work_seconds)
        kills.append(site.kill())
    site.start()
    return kills


def _is_done_by(site: Site, sizes: Sizes, until: float) -> bool:
    """Wait until every job has ended and, in case some run twice, a moment longer."""
    while time.monotonic() < until:
        ended = {one.number for one in marks.read(site.marks) if one.what == marks.ENDED}
        if len(ended) == sizes.killed_jobs:
            time.sleep(2 * sizes.job_seconds)
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def analysed(found: Sequence[marks.Mark], kills: Sequence[float], jobs: int) -> Crash:
    """Work out from the marks which jobs each kill interrupted, and when they ran again."""
    starts: dict[int, list[float]] = defaultdict(list)
    ends: dict[int, list[float]] = defaultdict(list)
    for one in found:
        (starts if one.what == marks.STARTED else ends)[one.number].append(one.at)
    reruns = []
    for before, killed_at in zip((0.0, *kills), kills, strict=False):
        for number, began in starts.items():
            interrupted = any(before < at <= killed_at for at in began) and not any(
                before < at <= killed_at for at in ends[number]
            )
            again = [at for at in began if at > killed_at]
            if interrupted and again:
                reruns.append(min(again) - killed_at)
    lost = jobs - sum(1 for times in ends.values() if times)
    return Crash(reruns, lost, sum(1 for times in ends.values() if len(times) > 1))
