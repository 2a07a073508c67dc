"""The structure of a page: headings, paragraphs, list items, tables and what runs along its edges.

A block holds no text. It names words of its page by index, so its text and its boxes follow from
those of the page, and a table can never say something that the page does not. Word *i* is the
*i*-th box of the page (`parse.word_boxes`), or without boxes the *i*-th run of characters that are
not spaces.

`pack` and `unpack` are the stored form, which also crosses the border of the box that reads files.
`unpack` therefore believes nothing: every index, size and sum is checked.
"""

import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

MAX_BLOCKS = 50_000  # on a page
MAX_TABLE_ROWS = 200_000
MAX_TABLE_COLUMNS = 20_000
MAX_GRID = 4_000_000  # cells of all tables of a page, empty ones included
MAX_LEVEL = 9

_LAYOUT = 1
_NUMBER_BYTES = 4

Run = tuple[int, int]  # first word, and the word after the last
Runs = tuple[Run, ...]


class BlockKind(IntEnum):
    """What a block is; the numbers are stored."""

    PARAGRAPH = 0
    HEADING = 1
    LIST_ITEM = 2
    TABLE = 3
    CAPTION = 4
    FOOTNOTE = 5
    HEADER = 6
    FOOTER = 7
    CODE = 8


class BlockSource(IntEnum):
    """What told that a block is there; the numbers are stored."""

    LAYOUT = 0  # positions, sizes and weights
    RULES = 1  # drawn lines
    OUTLINE = 2  # bookmarks of the file
    MARKUP = 3  # the format says so
    OCR = 4


class Cell(NamedTuple):
    """A cell that is not empty."""

    row: int
    column: int
    row_span: int
    column_span: int
    runs: Runs


class Table(NamedTuple):
    """A grid of cells; those of the first `header_rows` rows are headers."""

    rows: int
    columns: int
    header_rows: int
    cells: tuple[Cell, ...]  # by row, then column
    caption: Runs = ()
    unit: Runs = ()  # "in millions"
    footnotes: tuple[Runs, ...] = ()


class Block(NamedTuple):
    """One piece of a page, in reading order."""

    kind: BlockKind
    runs: Runs
    level: int = 0  # of a heading or list item, from 1; 0 is unknown
    confidence: int = 100  # percent
    source: BlockSource = BlockSource.LAYOUT
    table: Table | None = None


class InvalidBlocks(ValueError):
    """Packed blocks are not what `pack` makes, or not of this page."""


def pack(blocks: Sequence[Block]) -> bytes:
    """Pack the blocks of a page."""
    if not blocks:
        return b""
    numbers = [len(blocks)]
    at = 0
    for block in blocks:
        numbers.extend((block.kind, block.level, block.confidence, block.source))
        at = _add_runs(numbers, block.runs, at)
        if block.kind == BlockKind.TABLE:
            _add_table(numbers, block.table or Table(0, 0, 0, ()))
    packed = array("i", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return bytes([_LAYOUT]) + zlib.compress(packed.tobytes(), 1)


def unpack(packed: bytes, words: int) -> list[Block]:
    """Return the blocks of a page of so many words; raises InvalidBlocks."""
    if not packed:
        return []
    if packed[0] != _LAYOUT:
        raise InvalidBlocks("unknown layout")
    # What a page of so many words can need, so that a few bytes cannot fill the memory.
    longest = _NUMBER_BYTES * (1_000 + 60 * words)
    if len(packed) > longest + 1_000:  # empty parts of a packed stream unpack to nothing
        raise InvalidBlocks("longer than a page of its words can have")
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(packed[1:], longest)
    except zlib.error as error:
        raise InvalidBlocks("cannot be unpacked") from error
    if not unpacking.eof or unpacking.unused_data or len(plain) % _NUMBER_BYTES:
        raise InvalidBlocks("cut off, or more than a page of its words can have")
    numbers = array("i", plain)
    if sys.byteorder == "big":
        numbers.byteswap()
    return _Unpacking(numbers, words).blocks()


def _add_runs(numbers: list[int], runs: Runs, at: int) -> int:
    numbers.append(len(runs))
    for first, stop in runs:
        # Differences are small, which compresses well.
        numbers.extend((first - at, stop - first))
        at = stop
    return at


def _add_table(numbers: list[int], table: Table) -> None:
    numbers.extend((table.rows, table.columns, table.header_rows, len(table.cells)))
    at = 0
    for cell in table.cells:
        numbers.extend((cell.row, cell.column, cell.row_span, cell.column_span))
        at = _add_runs(numbers, cell.runs, at)
    at = _add_runs(numbers, table.caption, at)
    at = _add_runs(numbers, table.unit, at)
    numbers.append(len(table.footnotes))
    for note in table.footnotes:
        at = _add_runs(numbers, note, at)


class _Unpacking:
    """Takes blocks out of a row of numbers."""

    def __init__(self, numbers: "array[int]", words: int) -> None:
        self._numbers = numbers
        self._next = 0
        self._words = words
        #: Words that blocks and the cells of tables may still name: each is named once.
        self._left = {"block": words, "table": words}
        self._grid = MAX_GRID
        self._at = 0  # the word after the last run of a block

    def blocks(self) -> list[Block]:
        found = [self._block() for _ in range(self._number(MAX_BLOCKS))]
        if self._next != len(self._numbers):
            raise InvalidBlocks("numbers after the last block")
        return found

    def _number(self, most: int, least: int = 0) -> int:
        if self._next == len(self._numbers):
            raise InvalidBlocks("cut off")
        value = self._numbers[self._next]
        self._next += 1
        if not least <= value <= most:
            raise InvalidBlocks(f"{value} is not between {least} and {most}")
        return value

    def _block(self) -> Block:
        kind = BlockKind(self._number(len(BlockKind) - 1))
        level, confidence = self._number(MAX_LEVEL), self._number(100)
        source = BlockSource(self._number(len(BlockSource) - 1))
        runs, self._at = self._runs("block", self._at)
        table = self._table() if kind == BlockKind.TABLE else None
        return Block(kind, runs, level, confidence, source, table)

    def _runs(self, of: str, at: int) -> tuple[Runs, int]:
        found = []
        for _ in range(self._number(self._words)):
            first = at + self._number(self._words, -self._words)
            at = first + self._number(self._words, 1)
            if first < 0 or at > self._words:
                raise InvalidBlocks("a word that the page does not have")
            self._left[of] -= at - first
            found.append((first, at))
        if self._left[of] < 0:
            raise InvalidBlocks("a word in two places")
        return tuple(found), at

    def _table(self) -> Table:
        rows, columns = self._number(MAX_TABLE_ROWS, 1), self._number(MAX_TABLE_COLUMNS, 1)
        header_rows = self._number(rows)
        self._grid -= rows * columns
        if self._grid < 0:
            raise InvalidBlocks("tables are too large")
        cells, at, area = [], 0, 0
        for _ in range(self._number(self._words)):
            row, column = self._number(rows - 1), self._number(columns - 1)
            down, across = self._number(rows - row, 1), self._number(columns - column, 1)
            runs, at = self._runs("table", at)
            area += down * across
            cells.append(Cell(row, column, down, across, runs))
        if area > rows * columns:
            raise InvalidBlocks("cells that overlap")
        caption, at = self._runs("table", at)
        unit, at = self._runs("table", at)
        notes = []
        for _ in range(self._number(self._words)):
            note, at = self._runs("table", at)
            notes.append(note)
        return Table(rows, columns, header_rows, tuple(cells), caption, unit, tuple(notes))


class PageText:
    """The text of a page by word index."""

    def __init__(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self.text = text
        self.spans = spans  # start and stop of each word

    def of(self, runs: Runs) -> str:
        """Return the text of runs of words, with single spaces."""
        return " ".join(
            chain.from_iterable(
                self.text[self.spans[first][0] : self.spans[stop - 1][1]].split()
                for first, stop in runs
            )
        )

    def lines(self, runs: Runs) -> str:
        """Return the text from the first to the last word of runs with its line breaks."""
        if not runs:
            return ""
        first, last = self.spans[runs[0][0]][0], self.spans[runs[-1][1] - 1][1]
        start = self.text.rfind("\n", 0, first) + 1
        return self.text[first if self.text[start:first].strip() else start : last]

    def grid(self, table: Table) -> list[list[str]]:
        """Return the texts of a table by row and column; a spanning cell is at its first place."""
        found = [[""] * table.columns for _ in range(table.rows)]
        for cell in table.cells:
            found[cell.row][cell.column] = self.of(cell.runs)
        return found


def words_of(runs: Runs) -> Iterator[int]:
    """Yield the indexes of the words of runs."""
    return chain.from_iterable(range(first, stop) for first, stop in runs)


def runs_of(words: Sequence[int]) -> Runs:
    """Join indexes of words, in their order, to runs."""
    return join_runs((word, word + 1) for word in words)


def join_runs(runs: Iterable[Run]) -> Runs:
    """Join each run with the one before it if that ends where it begins."""
    found: list[Run] = []
    start = end = -1
    for first, stop in runs:
        if first != end:
            if start >= 0:
                found.append((start, end))
            start = first
        end = stop
    return (*found, (start, end)) if start >= 0 else ()
