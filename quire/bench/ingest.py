"""`quire bench ingest`: measures the pipeline from a file to a search, beside a bare loop."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from quire.bench import (
    ingest_changes,
    ingest_first,
    ingest_memory,
    ingest_ocr,
    ingest_pages,
    ingest_recall,
    ingest_search,
    queue,
)
from quire.bench.ingest_sizes import FULL, QUICK
from quire.errors import BadInput

MEASURES: dict[str, queue.Measure] = {
    "pages": ingest_pages.measure,
    "again": ingest_changes.again,
    "edit": ingest_changes.edit,
    "memory": ingest_memory.measure,
    "first": ingest_first.measure,
    "search": ingest_search.measure,
    "ocr": ingest_ocr.measure,
    "retrieval": ingest_recall.measure,
}
_CLOSING = "Quire flushes every commit; the bare loop leaves that to the system."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
    corpus: Path | None = None,
    chunks: int | None = None,
) -> int:
    """Measure, print a table, write JSON where asked; returns the exit code."""
    if corpus is not None and not corpus.is_dir():
        raise BadInput(f"--corpus {corpus}: there is no such folder.")
    chosen = queue.named(only, MEASURES)
    sizes = dataclasses.replace(QUICK if quick else FULL, corpus=corpus)
    if chunks is not None:
        sizes = dataclasses.replace(sizes, chunks=chunks)
    report = queue.run(
        database or "embedded", chosen, sizes, is_quick=quick, measures=MEASURES, closing=_CLOSING
    )
    if json != "-":
        sys.stdout.write(queue.as_text(report) + "\n")
    if json is not None:
        queue.write_json(report, json)
    return 1 if report["failures"] else 0
