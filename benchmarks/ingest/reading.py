"""How well structure is read: generated reports with known tables, headings and order.

The reading code may be tuned on one half of the reports; the figures are of the other half.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.ingest import column_pages, reading_score, real_tables, reports
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import temporary_folder
from benchmarks.installation import Backend


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Read the reports of the second half and compare them with what is in them."""
    made = [each for each in map(reports.make, range(sizes.reports)) if not each.is_for_tuning]
    folder = temporary_folder(backend.folder, "reports-")
    started = time.process_time()
    found = reading_score.score(made, folder)
    seconds = time.process_time() - started
    pages = sum(len(each.pages) for each in made)
    note = f"{len(made)} generated reports, {pages} pages"
    yield Figure("cell F1", reading_score.f1(found.cells), "", target=at_least(0.92), note=note)
    share = reading_score.share
    yield Figure("lookup", share(found.lookups), "", target=at_least(0.9), note=note)
    yield Figure(
        "heading F1", reading_score.f1(found.headings), "", target=at_least(0.85), note=note
    )
    yield Figure("running lines F1", reading_score.f1(found.running), "", target=at_least(0.95))
    yield Figure("neighbours in order", share(found.order), "", target=at_least(0.97), note=note)
    false = 100 * found.false_tables / max(found.prose_pages, 1)
    yield Figure("false tables in 100 pages of prose", false, "", target=at_most(1.0))
    yield Figure("reading and scoring", 1000 * seconds / pages, "ms/page")
    yield from _columns(sizes.reports, folder)
    if sizes.corpus is not None:
        yield from real_tables.measure(sizes.corpus)


def _columns(count: int, folder: Path) -> Iterator[Figure]:
    """Read pages in columns, whose files go across them or not, and forms."""
    counts: dict[str, Counter[str]] = {}
    for made in map(column_pages.make, range(3 * count)):
        if not made.is_for_tuning:
            path = folder / f"columns-{made.number}.pdf"
            path.write_bytes(made.content)
            [(text, blocks, _, _)] = reading_score.read(path)
            counted = counts.setdefault(made.kind, Counter())
            reading_score.add_neighbours(counted, made.paragraphs, text, blocks)
    for kind, counted in sorted(counts.items()):
        note = f"{counted['true']} pairs of paragraphs on generated pages"
        share = reading_score.share(counted)
        yield Figure(f"order, {kind}", share, "", target=at_least(0.97), note=note)
