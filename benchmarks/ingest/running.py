"""Runs ingest jobs on a bed with a real worker of two children, and says how long they took."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.ingest.corpus import pdfs
from benchmarks.queue.idle import busy_seconds
from benchmarks.site import Bed, Site, family
from quire.errors import Refused

CHILDREN = 2
_WARM_BYTES = 110 << 20  # a child that has loaded the parser and the embedder has more
_WARM_TRIES = 6


class Took(NamedTuple):
    """One ingest job, from its first task's begin to its last one's end."""

    job_id: int
    seconds: float
    state: str
    busy: float  # seconds of processor time, of the worker and its children


class Mill:
    """A bed, and the worker that runs its jobs."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.worker = bed.start("worker", concurrency=CHILDREN)

    def children(self) -> list[psutil.Process]:
        """List the processes that run tasks."""
        return family(self.worker)[1:]

    def ingest(self, source: Path, *, may_fail: bool = False, **settings: Any) -> Took:
        """Ingest a file or a folder; returns when all of it is searchable."""
        spent = busy_seconds(family(self.worker))
        job_id = self.submit(source, **settings)
        self.wait(job_id)
        spent = busy_seconds(family(self.worker)) - spent
        query = f"SELECT finished_at - started_at, state FROM jobs WHERE id = {job_id}"  # noqa: S608
        [(seconds, state)] = self.bed.rows(query)
        if state != "completed" and not may_fail:
            raise Refused(f"bench: the ingest of {source.name} ended as {state}. {self._why()}")
        return Took(job_id, seconds, state, spent)

    def submit(self, source: Path, **settings: Any) -> int:
        """Submit an ingest job."""
        return self.bed.app.submit("ingest", sources=[str(source)], settings=settings)

    def wait(self, job_id: int) -> None:
        """Wait until a job is over, for as long as something ends."""
        query = f"SELECT id FROM jobs WHERE id = {job_id} AND state IN ('pending', 'running')"  # noqa: S608
        ended, since = -1, time.monotonic()
        while self.bed.rows(query):
            now_ended = self.bed.count("attempts")
            if now_ended != ended:
                ended, since = now_ended, time.monotonic()
            if time.monotonic() - since > 120:
                raise Refused(f"bench: nothing ended for two minutes. {self._why()}")
            # Whoever looks often takes time from those who are measured; a job has its own clock.
            time.sleep(0.2)

    def warm(self, make: Callable[[Path, int], object], least: int) -> None:
        """Let every child load what it needs: files are made and ingested until all have grown."""
        for each in range(_WARM_TRIES):
            folder = shelf(self.bed.home, f"warm-{each}-")
            make(folder, each)
            self.ingest(folder, thumbnails=False)
            sizes = [_resident(one) for one in self.children()]
            if len(sizes) >= CHILDREN and min(sizes) > least:
                return

    def _why(self) -> str:
        found = self.bed.rows("SELECT error FROM tasks WHERE error IS NOT NULL LIMIT 1")
        tail = self.bed.log.read_text()[-1000:] if self.bed.log.exists() else ""
        return f"First error: {found[0][0] if found else 'none'}. Log: {tail}"


@contextlib.contextmanager
def mill(site: Site, *, is_warm: bool = True) -> Iterator[Mill]:
    """Start a worker on a database of its own."""
    with site.bed() as bed:
        running = Mill(bed)
        if is_warm:
            running.warm(lambda folder, each: pdfs(folder, 4, 52 + each), _WARM_BYTES)
        yield running


def shelf(folder: Path, name: str) -> Path:
    """Make a folder whose name begins so."""
    return Path(tempfile.mkdtemp(prefix=name, dir=folder))


def peak_bytes(some: Sequence[psutil.Process]) -> int:
    """Return the most memory that one of the processes has had, as far as the system tells."""
    return max((_peak(one) for one in some), default=0)


def _peak(one: psutil.Process) -> int:
    try:
        text = Path(f"/proc/{one.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        return _resident(one)


def _resident(one: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(one.memory_info().rss)
    return 0
