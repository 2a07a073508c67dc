"""How soon a small file is found by a search, from before its submission."""

import time
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, at_most, percentile
from benchmarks.ingest.prose import Prose
from benchmarks.ingest.running import Mill, mill
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.site import Site
from quire.control.search import search


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Submit small files one after another to a warm worker."""
    prose, spans = Prose(11), []
    with mill(site) as running:
        for number in range(sizes.firsts + 1):
            name = f"zebra{number}quagga"
            path = running.bed.home / f"{name}.txt"
            path.write_text(f"The {name} is here. {prose.paragraph(1_500)}")
            began = time.perf_counter()
            running.submit(path)
            running.bed.wait_for(partial(_is_found, running, name), f"{name} to be found")
            spans.append(time.perf_counter() - began)
    note = f"{sizes.firsts} text files of 1.5 kB; asked by words until it is found"
    for share, target in ((0.5, None), (0.95, at_most(500.0))):
        value = percentile(spans[1:], share) * 1e3
        yield Figure(f"submit to searchable p{share * 100:.0f}", value, "ms", None, target, note)


def _is_found(running: Mill, name: str) -> bool:
    app = running.bed.app
    return bool(search(app.db, app.settings.tenant, name, mode="text", limit=1)["items"])
