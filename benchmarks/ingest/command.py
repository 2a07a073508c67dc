"""`quire bench ingest`: measures the pipeline from a file to a search, beside a bare loop."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ingest import changes, first, memory, ocr, pages, recall, search
from benchmarks.ingest.sizes import FULL, QUICK
from benchmarks.queue import command
from quire.errors import BadInput

MEASURES: dict[str, command.Measure] = {
    "pages": pages.measure,
    "again": changes.again,
    "edit": changes.edit,
    "memory": memory.measure,
    "first": first.measure,
    "search": search.measure,
    "ocr": ocr.measure,
    "retrieval": recall.measure,
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
    chosen = command.named(only, MEASURES)
    sizes = dataclasses.replace(QUICK if quick else FULL, corpus=corpus)
    if chunks is not None:
        sizes = dataclasses.replace(sizes, chunks=chunks)
    report = command.run(
        database or "embedded", chosen, sizes, is_quick=quick, measures=MEASURES, closing=_CLOSING
    )
    if json != "-":
        sys.stdout.write(command.as_text(report) + "\n")
    if json is not None:
        command.write_json(report, json)
    return 1 if report["failures"] else 0
