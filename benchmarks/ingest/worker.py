"""Runs ingest jobs with a real worker that has two children, and times them."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.ingest.sample_files import pdfs
from benchmarks.installation import Backend, Installation, process_tree
from benchmarks.queue.idle import cpu_seconds
from quire.errors import Refused

CHILDREN = 2
_WARM_BYTES = 110 << 20  # a child that has loaded the parser and the embedder uses more
_WARM_TRIES = 6


class IngestRun(NamedTuple):
    """One ingest job, from the start of its first task to the end of its last."""

    job_id: int
    seconds: float
    state: str
    cpu: float  # seconds, of the worker and its children


class IngestWorker:
    """An installation with one worker."""

    def __init__(self, installation: Installation, sandbox: str = "auto") -> None:
        self.installation = installation
        self.worker = installation.start("worker", concurrency=CHILDREN, sandbox=sandbox)

    def children(self) -> list[psutil.Process]:
        """Return the processes that run tasks."""
        return process_tree(self.worker)[1:]

    def worker_children(self) -> list[psutil.Process]:
        """Return the children of the worker, without the boxes in which they read files."""
        alive = [one for one in process_tree(self.worker) if one.pid != self.worker.pid]
        return [one for one in alive if one.ppid() == self.worker.pid]

    def ingest(self, source: Path, *, may_fail: bool = False, **settings: Any) -> IngestRun:
        """Ingest a file or a folder and wait until it is searchable."""
        spent = cpu_seconds(process_tree(self.worker))
        job_id = self.submit(source, **settings)
        self.wait(job_id)
        spent = cpu_seconds(process_tree(self.worker)) - spent
        query = f"SELECT finished_at - started_at, state FROM jobs WHERE id = {job_id}"  # noqa: S608
        [(seconds, state)] = self.installation.rows(query)
        if state != "completed" and not may_fail:
            raise Refused(f"bench: ingesting {source.name} ended as {state}. {self._why()}")
        return IngestRun(job_id, seconds, state, spent)

    def submit(self, source: Path, **settings: Any) -> int:
        """Submit an ingest job."""
        return self.installation.app.submit("ingest", sources=[str(source)], settings=settings)

    def wait(self, job_id: int) -> None:
        """Wait until a job is over; fails if no run ends for two minutes."""
        query = f"SELECT id FROM jobs WHERE id = {job_id} AND state IN ('pending', 'running')"  # noqa: S608
        ended, since = -1, time.monotonic()
        while self.installation.rows(query):
            now_ended = self.installation.count("attempts")
            if now_ended != ended:
                ended, since = now_ended, time.monotonic()
            if time.monotonic() - since > 120:
                raise Refused(f"bench: no run ended for two minutes. {self._why()}")
            # Frequent polling would disturb the measurement, which uses the job's own times.
            time.sleep(0.2)

    def warm(self, make: Callable[[Path, int], object], least: int) -> None:
        """Warm up: ingest generated files until every child uses `least` bytes of memory."""
        for each in range(_WARM_TRIES):
            folder = temporary_folder(self.installation.home, f"warm-{each}-")
            make(folder, each)
            self.ingest(folder, thumbnails=False)
            trees = [[one, *one.children(recursive=True)] for one in self.worker_children()]
            sizes = [sum(map(_resident, tree)) for tree in trees]
            if len(sizes) >= CHILDREN and min(sizes) > least:
                return

    def _why(self) -> str:
        found = self.installation.rows("SELECT error FROM tasks WHERE error IS NOT NULL LIMIT 1")
        tail = self.installation.log.read_text()[-1000:] if self.installation.log.exists() else ""
        return f"First error: {found[0][0] if found else 'none'}. Log: {tail}"


@contextlib.contextmanager
def ingest_worker(
    backend: Backend, *, is_warm: bool = True, sandbox: str = "auto"
) -> Iterator[IngestWorker]:
    """Start a worker on a new database."""
    with backend.installation() as installation:
        running = IngestWorker(installation, sandbox)
        if is_warm:
            running.warm(lambda folder, each: pdfs(folder, 4, 52 + each), _WARM_BYTES)
        yield running


def temporary_folder(folder: Path, name: str) -> Path:
    """Create a temporary folder whose name starts with `name`."""
    return Path(tempfile.mkdtemp(prefix=name, dir=folder))


def peak_bytes(some: Sequence[psutil.Process]) -> int:
    """Return the largest peak memory of the processes."""
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
