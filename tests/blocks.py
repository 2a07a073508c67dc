"""Shows the blocks of a page as a test writes them down."""

from __future__ import annotations

from pathlib import Path

from quire.model.blocks import Block, BlockKind, PageText, unpack
from quire.model.pages import Page
from quire.parse import formats, word_boxes
from quire.parse.parser import ReadOptions


def read(path: Path, kind: str, options: ReadOptions | None = None) -> list[Page]:
    """All pages of a file, none of which may fail."""
    options = options or ReadOptions()
    outline = formats.inspect(path, kind, options)
    found = list(formats.read(path, kind, options, 1, outline.length))
    assert all(isinstance(page, Page) for page in found), found
    return [page for page in found if isinstance(page, Page)]


def blocks_of(page: Page) -> list[Block]:
    """The blocks of a page; unpacking checks them."""
    return unpack(page.blocks, len(word_boxes.word_spans(page)))


def shown(page: Page) -> list[object]:
    """Each block as (kind, level, text), or a table as (kind, header rows, grid)."""
    text = PageText(page.text, word_boxes.word_spans(page))
    found: list[object] = []
    for block in blocks_of(page):
        kind = block.kind.name.lower()
        if block.table is not None:
            found.append((kind, block.table.header_rows, text.grid(block.table)))
        elif block.level:
            found.append((kind, block.level, text.of(block.runs)))
        else:
            found.append((kind, text.of(block.runs)))
    return found


def spans(page: Page) -> list[tuple[int, int, int, int]]:
    """The cells of a page's tables that reach over others: row, column, rows, columns."""
    tables = [block.table for block in blocks_of(page) if block.kind == BlockKind.TABLE]
    return [
        (cell.row, cell.column, cell.row_span, cell.column_span)
        for table in tables
        if table
        for cell in table.cells
        if cell.row_span > 1 or cell.column_span > 1
    ]
