"""`python -m benchmarks ingest`: which measurements of ingestion and search there are."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from benchmarks import runner
from benchmarks.ingest import (
    changes,
    memory,
    ocr,
    pages,
    reading,
    retrieval,
    search,
    time_to_search,
)
from benchmarks.ingest.sizes import FULL, QUICK
from quire.errors import BadInput

MEASURES: dict[str, runner.Measure] = {
    "pages": pages.measure,
    "reading": reading.measure,
    "sandbox": pages.sandbox,
    "again": changes.again,
    "edit": changes.edit,
    "memory": memory.measure,
    "first": time_to_search.measure,
    "search": search.measure,
    "ocr": ocr.measure,
    "retrieval": retrieval.measure,
}
NOTE = "Quire flushes every commit to disk; the bare loop does not."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
    corpus: Path | None = None,
    chunks: int | None = None,
) -> int:
    """Run the chosen measurements and report them; returns the exit code."""
    if corpus is not None and not corpus.is_dir():
        raise BadInput(f"--corpus {corpus}: there is no such folder.")
    names = runner.selected(only, MEASURES)
    sizes = dataclasses.replace(QUICK if quick else FULL, corpus=corpus)
    if chunks is not None:
        sizes = dataclasses.replace(sizes, chunks=chunks)
    report = runner.run(
        database or "embedded", names, sizes, is_quick=quick, measures=MEASURES, note=NOTE
    )
    return runner.publish(report, json)
