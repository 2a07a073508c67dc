"""How well structure is read: generated reports with known tables, headings and order.

The reading code may be tuned on one half of the reports; the figures are of the other half.
"""

import time
from collections.abc import Iterator

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.ingest import reading_score, real_tables, reports
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
    if sizes.corpus is not None:
        yield from real_tables.measure(sizes.corpus)
