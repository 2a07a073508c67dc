"""The most memory that a child of a worker has while it ingests a short and a long PDF."""

import threading
from collections.abc import Iterator

from benchmarks.figures import Figure, at_most
from benchmarks.ingest.corpus import long_pdf
from benchmarks.ingest.running import Mill, mill, peak_bytes, shelf
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.site import Site


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest each PDF by a worker of its own."""
    peaks, folder = [], shelf(site.folder, "memory-")
    for pages in sizes.memory_pages:
        path = long_pdf(folder / f"{pages}.pdf", pages, seed=pages)
        with mill(site, is_warm=False) as running, _Watch(running) as watch:
            took = running.ingest(path)
        peaks.append(watch.peak / 1e6)
        note = f"the larger of the children; {pages / took.seconds:,.0f} pages/s from a cold start"
        yield Figure(f"memory of a child, {pages:,} pages", peaks[-1], "MB", note=note)
    few, many = sizes.memory_pages
    name = f"memory of a child, {many:,} pages, of {few:,} pages"
    yield Figure(name, peaks[1] / peaks[0], "×", target=at_most(1.3))


class _Watch:
    """Looks at the children again and again: one that ends takes its figures along."""

    def __init__(self, running: Mill) -> None:
        self._running = running
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.peak = 0

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._see()

    def _look(self) -> None:
        while not self._is_over.wait(0.2):
            self._see()

    def _see(self) -> None:
        self.peak = max(self.peak, peak_bytes(self._running.children()))
