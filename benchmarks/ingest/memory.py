"""Peak memory of a child while it ingests a short and a long PDF."""

import threading
from collections.abc import Iterator

from benchmarks.figures import Figure, at_most
from benchmarks.ingest.sample_files import long_pdf
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import IngestWorker, ingest_worker, peak_bytes, temporary_folder
from benchmarks.installation import Backend


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest each PDF with a new worker."""
    peaks, folder = [], temporary_folder(backend.folder, "memory-")
    for pages in sizes.memory_pages:
        path = long_pdf(folder / f"{pages}.pdf", pages, seed=pages)
        with ingest_worker(backend, is_warm=False) as running, _PeakMemory(running) as memory:
            took = running.ingest(path)
        peaks.append(memory.peak / 1e6)
        note = f"the larger child; {pages / took.seconds:,.0f} pages/s from a cold start"
        yield Figure(f"memory of a child, {pages:,} pages", peaks[-1], "MB", note=note)
    few, many = sizes.memory_pages
    name = f"memory of a child, {many:,} pages, compared with {few:,}"
    yield Figure(name, peaks[1] / peaks[0], "×", target=at_most(1.3))


class _PeakMemory:
    """Samples the children regularly, because the figures of a child are gone when it exits."""

    def __init__(self, running: IngestWorker) -> None:
        self._running = running
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)
        self.peak = 0

    def __enter__(self) -> "_PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._sample()

    def _sample_all(self) -> None:
        while not self._is_over.wait(0.2):
            self._sample()

    def _sample(self) -> None:
        self.peak = max(self.peak, peak_bytes(self._running.children()))
