"""Time from before the submission of a small file until a search finds it."""

import time
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.ingest.prose import Prose
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import IngestWorker, ingest_worker
from benchmarks.installation import Backend
from quire.control.search import search


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Submit small files to a warm worker, one after another."""
    prose, spans = Prose(11), []
    with ingest_worker(backend) as running:
        for number in range(sizes.firsts + 1):
            name = f"zebra{number}quagga"
            path = running.installation.home / f"{name}.txt"
            path.write_text(f"The {name} is here. {prose.paragraph(1_500)}")
            began = time.perf_counter()
            running.submit(path)
            running.installation.wait_for(partial(_is_found, running, name), f"{name} to be found")
            spans.append(time.perf_counter() - began)
    note = f"{sizes.firsts} text files of 1.5 kB; keyword search until it is found"
    for share, target in ((0.5, None), (0.95, at_most(500.0))):
        value = percentile(spans[1:], share) * 1e3
        yield Figure(f"submit to searchable p{share * 100:.0f}", value, "ms", None, target, note)


def _is_found(running: IngestWorker, name: str) -> bool:
    app = running.installation.app
    return bool(search(app.db, app.settings.tenant, name, mode="text", limit=1)["items"])
