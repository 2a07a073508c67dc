"""How well tables of real PDFs are read: pages that a person looked at, with and without tables.

The files are not ours and not in the repository; `--corpus` names a folder that may have them:
samples of pdfplumber and of pypdf, and manuals of Debian packages (`/usr/share/doc`, unpacked).
`real_tables.json` has the cells of some tables and the pages that have none. The rules of the
reader were made by looking at the "tuned" files; the "held" ones were looked at afterwards.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.ingest import reading_score
from quire.model.blocks import PageText, Table

_TRUTH = Path(__file__).with_name("real_tables.json")


def measure(folder: Path) -> Iterator[Figure]:
    """Read the files that are in a folder and compare their tables with what a person saw."""
    for half, files in json.loads(_TRUTH.read_text("utf-8")).items():
        cells, false, without = Counter[str](), 0, 0
        for name, truth in files.items():
            for path in sorted(folder.rglob(name))[:1]:
                pages = list(_tables(path))
                _add_cells(cells, truth["tables"], pages)
                numbers = _numbers(truth["without"])
                without += len(numbers)
                false += sum(len(pages[number - 1]) for number in numbers)
        if cells["true"]:
            score = reading_score.f1(cells)
            note = f"{cells['true']} cells of real PDFs"
            yield Figure(f"cell F1, {half}", score, "", target=at_least(0.92), note=note)
        if without:
            note = f"{false} on {without} pages of real PDFs that have no table"
            share = 100 * false / without
            name = f"false tables in 100 pages, {half}"
            yield Figure(name, share, "", target=at_most(1.0), note=note)


def _tables(path: Path) -> Iterator[list[tuple[PageText, Table]]]:
    for text, blocks, _, _ in reading_score.read(path):
        yield [(text, block.table) for block in blocks if block.table]


def _numbers(ranges: str) -> list[int]:
    """Return the pages of "1-3 5"."""
    pairs = [each.partition("-") for each in ranges.split()]
    return list(chain.from_iterable(range(int(a), int(b or a) + 1) for a, _, b in pairs))


def _add_cells(
    counts: "Counter[str]", truth: Mapping[str, Any], pages: list[list[tuple[PageText, Table]]]
) -> None:
    for number, tables in truth.items():
        left = [text.grid(table) for text, table in pages[int(number) - 1]]
        for lines in tables:
            grid = [[cell.strip() for cell in line.split("|")] for line in lines]
            counts["true"] += _filled(grid)
            best = max(left, key=lambda g: reading_score.matched(grid, g), default=None)
            if best is not None:
                left.remove(best)
                counts["found"] += _filled(best)
                counts["right"] += reading_score.matched(grid, best)
        counts["found"] += sum(map(_filled, left))


def _filled(grid: list[list[str]]) -> int:
    return sum(bool(reading_score.key(cell)) for line in grid for cell in line)
