"""Scores blocks against the known content of generated reports."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.ingest.reports import Report, TruePage, TrueTable
from quire.model import running_lines
from quire.model.blocks import Block, BlockKind, PageText, Table, unpack, words_of
from quire.model.pages import Page
from quire.model.running_lines import EdgeLine
from quire.parse import file_type, formats, word_boxes
from quire.parse.parser import ReadOptions

_IGNORED = re.compile(r"[\s$%)]")


@dataclass
class Score:
    """Counts over all pages; each property is a share."""

    cells: Counter[str] = field(default_factory=Counter)
    lookups: Counter[str] = field(default_factory=Counter)
    headings: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    order: Counter[str] = field(default_factory=Counter)
    prose_pages: int = 0
    false_tables: int = 0


def f1(counts: Counter[str]) -> float:
    """Return the harmonic mean of precision and recall."""
    total = counts["found"] + counts["true"]
    return 2 * counts["right"] / total if total else 0.0


def share(counts: Counter[str]) -> float:
    """Return how many of the true ones are right."""
    return counts["right"] / counts["true"] if counts["true"] else 0.0


def score(reports: Iterable[Report], folder: Path) -> Score:
    """Read reports and compare them with what is in them."""
    total = Score()
    for report in reports:
        path = folder / f"report-{report.number}.pdf"
        path.write_bytes(report.content)
        _add(total, report, list(read(path)))
    return total


def read(path: Path) -> Iterator[tuple[PageText, list[Block], list[word_boxes.Box], float]]:
    """Yield the text, the blocks, the boxes of words and the height of each page."""
    options = ReadOptions(ocr="never")
    count = formats.inspect(path, file_type.PDF, options).length
    for page in formats.read(path, file_type.PDF, options, 1, count):
        assert isinstance(page, Page)  # noqa: S101
        spans, boxes = word_boxes.located(page)
        yield PageText(page.text, spans), unpack(page.blocks, len(spans)), boxes, page.height


def _add(
    total: Score,
    report: Report,
    pages: Sequence[tuple[PageText, list[Block], list[word_boxes.Box], float]],
) -> None:
    _add_running(total.running, report, pages)
    for truth, (text, blocks, _, _) in zip(report.pages, pages, strict=True):
        found = [block for block in blocks if block.kind == BlockKind.TABLE]
        _add_tables(total, truth, text, [block.table for block in found if block.table])
        if truth.is_prose:
            total.prose_pages += 1
            total.false_tables += bool(found)
        kinds = {BlockKind.HEADING}
        _add_texts(total.headings, truth.headings, _texts(text, blocks, kinds))
        _add_order(total.order, truth, text, blocks)


def _add_running(
    counts: Counter[str],
    report: Report,
    pages: Sequence[tuple[PageText, list[Block], list[word_boxes.Box], float]],
) -> None:
    edges = [
        [
            EdgeLine(
                number,
                index,
                text.of(block.runs),
                min(boxes[word][1] for word in words_of(block.runs)) / height,
                max(sum(boxes[word][1::2]) for word in words_of(block.runs)) / height,
                block.kind == BlockKind.HEADING,
            )
            for index, block in enumerate(blocks)
            if block.table is None and block.runs
        ]
        for number, (text, blocks, boxes, height) in enumerate(pages)
    ]
    running = running_lines.find(edges)
    for number, (truth, (text, blocks, _, _)) in enumerate(zip(report.pages, pages, strict=True)):
        found = [
            text.of(block.runs)
            for index, block in enumerate(blocks)
            if (number, index) in running or block.kind in (BlockKind.HEADER, BlockKind.FOOTER)
        ]
        _add_texts(counts, truth.running, found)


def _texts(text: PageText, blocks: Sequence[Block], kinds: set[BlockKind]) -> list[str]:
    return [text.of(block.runs) for block in blocks if block.kind in kinds]


def _add_texts(counts: Counter[str], truth: Sequence[str], found: Sequence[str]) -> None:
    counts["true"] += len(truth)
    counts["found"] += len(found)
    counts["right"] += (Counter(truth) & Counter(found)).total()


def _add_order(
    counts: Counter[str], truth: TruePage, text: PageText, blocks: Sequence[Block]
) -> None:
    read = " ".join(text.of(block.runs) for block in blocks)
    places = [read.find(each) for each in truth.blocks]
    for one, other in pairwise(places):
        counts["true"] += 1
        counts["right"] += 0 <= one < other


def add_neighbours(
    counts: Counter[str], paragraphs: Sequence[str], text: PageText, blocks: Sequence[Block]
) -> None:
    """Count the paragraphs that are read right before the one that follows them on the page."""
    read = " ".join(text.of(block.runs) for block in blocks)
    before = -1
    for number, paragraph in enumerate(paragraphs):
        first = " ".join(paragraph.split()[:4])
        place = read.find(first, before + 1)
        if number:
            counts["true"] += 1
            counts["right"] += place >= 0
        before = place if place >= 0 else read.find(first)


def _add_tables(total: Score, truth: TruePage, text: PageText, found: Sequence[Table]) -> None:
    left = list(found)
    for table in truth.tables:
        whole = table.lines
        grids = [(_expanded(text, each), each) for each in left]
        best = max(grids, key=lambda g: matched(whole, g[0]), default=None)
        total.cells["true"] += sum(bool(key(t)) for row in whole for t in _once(row))
        if best is not None:
            left.remove(best[1])
            grid, model = best
            total.cells["found"] += sum(bool(key(t)) for row in text.grid(model) for t in row)
            total.cells["right"] += matched([_once(row) for row in whole], text.grid(model))
            _add_lookups(total.lookups, table, grid, model)
        else:
            _add_lookups(total.lookups, table, [], None)
    for each in left:
        total.cells["found"] += sum(bool(key(t)) for row in text.grid(each) for t in row)


def key(text: str) -> str:
    """Return a cell without what may stand in a cell of its own."""
    return _IGNORED.sub("", text)


def _once(row: Sequence[str]) -> list[str]:
    """Return a row with a spanning text only in its first column."""
    return [row[0]] + [
        "" if text == before and text[:1].isalpha() else text for before, text in pairwise(row)
    ]


def _expanded(text: PageText, table: Table) -> list[list[str]]:
    grid = text.grid(table)
    for cell in table.cells:
        for row in range(cell.row, cell.row + cell.row_span):
            for column in range(cell.column, cell.column + cell.column_span):
                grid[row][column] = grid[cell.row][cell.column]
    return grid


def matched(truth: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> int:
    """Return how many cells match if rows are aligned in order."""
    before = [0] * (len(found) + 1)
    rows = [[key(t) for t in row if key(t)] for row in found]
    for row in truth:
        mine = [key(t) for t in row if key(t)]
        now = [0]
        for index, other in enumerate(rows):
            same = before[index] + _in_order(mine, other)
            now.append(max(now[-1], before[index + 1], same))
        before = now
    return before[-1]


def _in_order(one: Sequence[str], other: Sequence[str]) -> int:
    before = [0] * (len(other) + 1)
    for text in one:
        now = [0]
        for index, each in enumerate(other):
            now.append(max(now[-1], before[index + 1], before[index] + (text == each)))
        before = now
    return before[-1]


def _add_lookups(
    counts: Counter[str], truth: TrueTable, grid: Sequence[Sequence[str]], model: Table | None
) -> None:
    """Count the numbers that are found under the right header beside the right label."""
    heads = model.header_rows if model else 0
    if not grid:
        tops: list[str] = []
    else:
        tops = [
            " ".join(filter(None, (row[c] for row in grid[:heads]))) for c in range(len(grid[0]))
        ]
    for row in truth.rows:
        for header, value in zip(truth.leaf[1:], row[1:], strict=True):
            if not any(c.isdigit() for c in value):
                continue
            counts["true"] += 1
            counts["right"] += any(
                key(line[column]) == key(value)
                and key(header)
                and key(tops[column]).endswith(key(header))
                for line in grid[heads:]
                if key(line[0]) == key(row[0])
                for column in range(1, len(line))
            )
