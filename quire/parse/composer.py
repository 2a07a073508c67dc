"""Composes a page from pieces whose kind the format itself tells: its text and its blocks.

The text is made of the pieces in their order, so a block knows its words by counting them. White
space stands between two pieces, so that no word is in both.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.model.blocks import (
    MAX_BLOCKS,
    MAX_GRID,
    MAX_LEVEL,
    MAX_TABLE_COLUMNS,
    MAX_TABLE_ROWS,
    Block,
    BlockKind,
    BlockSource,
    Cell,
    Runs,
    Table,
    join_runs,
    pack,
    unpack,
)
from quire.model.pages import Page
from quire.parse import encoding

PARAGRAPH_BREAK, LINE_BREAK = "\n\n", "\n"
_SURE = 100


class GridCell(NamedTuple):
    """A cell as a format gives it; a column that a cell above reaches into is skipped."""

    text: str
    column_span: int = 1
    row_span: int = 1
    is_header: bool = False
    runs: Runs = ()  # its words, if the text of the page is made elsewhere


class Composer:
    """Takes the pieces of a page in reading order."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._words = 0
        self._blocks: list[Block] = []
        self._grid = MAX_GRID

    @property
    def words(self) -> int:
        """The number of words so far."""
        return self._words

    def write(self, text: str, separator: str = PARAGRAPH_BREAK) -> Runs:
        """Add text that is of no block yet; return its words."""
        count = len(text.split())
        if not count:
            return ()
        if self._parts:
            self._parts.append(separator)
        self._parts.append(text)
        first, self._words = self._words, self._words + count
        return ((first, self._words),)

    def block(
        self,
        kind: BlockKind,
        runs: Runs,
        level: int = 0,
        confidence: int = _SURE,
        source: BlockSource = BlockSource.MARKUP,
        table: Table | None = None,
    ) -> None:
        """Add words as a block. What no page may have is kept as a paragraph."""
        if not runs:
            return
        if len(self._blocks) == MAX_BLOCKS:
            last = self._blocks[-1]
            runs = join_runs((*last.runs, *runs))
            self._blocks[-1] = Block(BlockKind.PARAGRAPH, runs, source=source)
            return
        level = max(0, min(level, MAX_LEVEL))
        self._blocks.append(Block(kind, runs, level, confidence, source, table))

    def add(
        self,
        kind: BlockKind,
        text: str,
        level: int = 0,
        separator: str = PARAGRAPH_BREAK,
        confidence: int = _SURE,
    ) -> None:
        """Add a piece of text as a block."""
        self.block(kind, self.write(text, separator), level, confidence)

    def table(
        self,
        rows: Sequence[Sequence[GridCell]],
        header_rows: int | None = None,
        caption: str = "",
        separator: str = PARAGRAPH_BREAK,
        caption_runs: Runs = (),
    ) -> None:
        """Add a table as lines of cells separated by tabs.

        Without `header_rows`, these are the first rows whose cells all say that they are headers.
        """
        if caption and (caption_runs := self.write(caption, separator)):
            separator = LINE_BREAK
        placed = _place(rows, self._grid)
        if placed is None:  # larger than a table may be
            self.block(BlockKind.CAPTION, caption_runs)
            for row in rows:
                line = "\t".join(cell.text for cell in row if not cell.runs).rstrip("\t")
                self.add(BlockKind.PARAGRAPH, line, separator=separator)
                runs = join_runs(run for cell in row for run in cell.runs)
                self.block(BlockKind.PARAGRAPH, runs)
                separator = LINE_BREAK
            return
        cells, columns = self._write_cells(placed, separator)
        if not cells:
            self.block(BlockKind.CAPTION, caption_runs)
            return
        self._grid -= len(rows) * columns
        if header_rows is None:
            header_rows = next(
                (at for at, row in enumerate(rows) if not all(cell.is_header for cell in row)), 0
            )
        found = Table(len(rows), columns, min(header_rows, len(rows)), cells, caption_runs)
        runs = join_runs((*caption_runs, *(run for cell in cells for run in cell.runs)))
        self.block(BlockKind.TABLE, runs, table=found)

    def _write_cells(
        self, placed: "list[list[_Placed]]", separator: str
    ) -> tuple[tuple[Cell, ...], int]:
        cells: list[Cell] = []
        columns = 1
        first = True
        for row, line in enumerate(placed):
            parts: list[str] = []
            at = 0
            for column, down, across, cell in line:
                columns = max(columns, column + across)
                runs = cell.runs
                if not runs and (count := len(cell.text.split())):
                    parts.append("\t" * (column - at) + cell.text)
                    at = column
                    runs = ((self._words, self._words + count),)
                    self._words += count
                if runs:
                    cells.append(Cell(row, column, down, across, runs))
            if parts:
                if self._parts:
                    self._parts.append(separator if first else LINE_BREAK)
                self._parts.append("".join(parts))
                first = False
        return tuple(cells), columns

    def append(self, page: Page) -> None:
        """Add the text of another page with its blocks."""
        first = self._words
        self.write(page.text)
        for block in unpack(page.blocks, self._words - first):
            runs, table = _moved(block.runs, first), block.table
            if table is None:
                self.block(block.kind, runs, block.level, block.confidence, block.source)
            elif (size := table.rows * table.columns) > self._grid:
                self.block(BlockKind.PARAGRAPH, runs)
            else:
                self._grid -= size
                table = _moved_table(table, first)
                self.block(block.kind, runs, 0, block.confidence, block.source, table)

    def text(self) -> str:
        """Return the text of the page."""
        return "".join(self._parts)

    def packed(self) -> bytes:
        """Return the blocks as a page stores them."""
        return pack(self._blocks)

    def page(self, number: int, label: str | None = None) -> Page:
        """Return the page."""
        return Page(number, self.text(), label=label, blocks=self.packed())


def line(text: str) -> str:
    """Return text on one line, without characters that a page cannot have."""
    return " ".join(encoding.clean(text).split())


def _moved(runs: Runs, by: int) -> Runs:
    return tuple((first + by, stop + by) for first, stop in runs)


def _moved_table(table: Table, by: int) -> Table:
    return table._replace(
        cells=tuple(cell._replace(runs=_moved(cell.runs, by)) for cell in table.cells),
        caption=_moved(table.caption, by),
        unit=_moved(table.unit, by),
        footnotes=tuple(_moved(note, by) for note in table.footnotes),
    )


_Placed = tuple[int, int, int, GridCell]  # column, row span, column span


def _place(rows: Sequence[Sequence[GridCell]], most: int) -> list[list[_Placed]] | None:
    """Give each cell its column, as HTML does; None if the table has more than `most` places."""
    height = len(rows)
    if height > MAX_TABLE_ROWS:
        return None
    found: list[list[_Placed]] = []
    open_spans: list[tuple[int, int, int]] = []  # column, column after, row after; by column
    width = 1
    for number, row in enumerate(rows):
        open_spans = [span for span in open_spans if span[2] > number]
        line, opened, width_now = _place_row(row, number, height, open_spans)
        width = max(width, width_now)
        if width > MAX_TABLE_COLUMNS or height * width > most:
            return None
        found.append(line)
        if opened:
            open_spans = sorted((*open_spans, *opened))
    return found


def _place_row(
    row: Iterable[GridCell], number: int, height: int, open_spans: Sequence[tuple[int, int, int]]
) -> tuple[list[_Placed], list[tuple[int, int, int]], int]:
    line: list[_Placed] = []
    opened = []
    column = at = 0
    for cell in row:
        while at < len(open_spans) and open_spans[at][0] <= column:
            column = max(column, open_spans[at][1])
            at += 1
        across = max(1, min(cell.column_span, MAX_TABLE_COLUMNS + 1))
        if at < len(open_spans):  # a cell does not reach over one that comes from above
            across = min(across, open_spans[at][0] - column)
        down = max(1, min(cell.row_span, height - number))
        line.append((column, down, across, cell))
        if down > 1:
            opened.append((column, column + across, number + down))
        column += across
        if column > MAX_TABLE_COLUMNS:
            break
    return line, opened, column
