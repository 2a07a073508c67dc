"""Blocks of formats that say themselves what is a heading, a list item or a table."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.model import blocks
from quire.model.blocks import Block, BlockKind, BlockSource, Cell, Table
from quire.parse import encoding, word_boxes


class Piece(NamedTuple):
    """A paragraph, or a table as lines of cells that tabs separate."""

    text: str
    kind: BlockKind = BlockKind.PARAGRAPH
    level: int = 0


def packed(pieces: Iterable[Piece], text: str) -> bytes:
    """Pack the blocks of pieces that follow each other in the text of a page.

    If their words are not those of the page, there are no blocks: the text is right in any case.
    """
    found: list[Block] = []
    at = 0
    for piece in pieces:
        clean = encoding.clean(piece.text)
        count = len(word_boxes.spans(clean))
        if count:
            found.append(_block(piece, clean, at, count))
            at += count
    if at != len(word_boxes.spans(text)) or len(found) > blocks.MAX_BLOCKS:
        return b""
    return blocks.pack(found)


def _block(piece: Piece, clean: str, at: int, count: int) -> Block:
    lines = [line.split("\t") for line in clean.split("\n")]
    table = _table(lines, at) if piece.kind == BlockKind.TABLE else None
    kind = BlockKind.PARAGRAPH if piece.kind == BlockKind.TABLE and table is None else piece.kind
    level = min(piece.level, blocks.MAX_LEVEL)
    return Block(kind, ((at, at + count),), level, 100, BlockSource.MARKUP, table)


def _table(lines: Sequence[Sequence[str]], at: int) -> Table | None:
    """Return the grid of lines; None if it is larger than a table may be, or a single column."""
    columns = max(map(len, lines))
    too_large = (
        len(lines) > blocks.MAX_TABLE_ROWS
        or columns > blocks.MAX_TABLE_COLUMNS
        or len(lines) * columns > blocks.MAX_GRID
    )
    if columns < 2 or too_large:
        return None
    cells = []
    for row, line in enumerate(lines):
        for column, text in enumerate(line):
            if count := len(word_boxes.spans(text)):
                cells.append(Cell(row, column, 1, 1, ((at, at + count),)))
                at += count
    return Table(len(lines), columns, _has_header(lines), tuple(cells))


def _has_header(lines: Sequence[Sequence[str]]) -> int:
    """Tell whether the first row names the columns: it is full, and has words only."""
    first = lines[0]
    is_full = len(first) == max(map(len, lines)) and all(text.strip() for text in first[1:])
    return int(len(lines) > 1 and is_full and not any(map(_is_number, first)))


def _is_number(text: str) -> bool:
    signs = text.strip(" $€£%()-+")
    is_year = len(signs) == 4 and signs.isdigit()
    return signs.replace(",", "").replace(".", "").isdigit() and not is_year
