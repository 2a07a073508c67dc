"""Writes blocks as Markdown, and tables as Markdown, HTML or CSV.

What a document says is data: signs that mean something in Markdown, HTML or a spreadsheet formula
are escaped.
"""

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from quire.model.blocks import Block, BlockKind, Cell, PageText, Table

_SIGNS = re.compile(r"([\\`*_<\[\]])")
_REFERENCE = re.compile(r"&(?=#?\w{1,40};)")
_FIRST = re.compile(r"^(#{1,6}(?=\s)|[-+>](?=\s)|\d{1,9}(?=[.)]\s)|={3,}|-{3,}|~{3,})")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.,$€£¥(])")


def of_block(block: Block, text: PageText) -> str:
    """Return one block as Markdown; running lines are left out."""
    if block.kind in (BlockKind.HEADER, BlockKind.FOOTER):
        return ""
    if block.table is not None:
        return of_table(block.table, text)
    words = text.of(block.runs)
    if block.kind == BlockKind.HEADING:
        return f"{'#' * min(max(block.level, 1), 6)} {_inline(words)}"
    if block.kind == BlockKind.LIST_ITEM:
        return _list_item(words, block.level)
    if block.kind == BlockKind.CODE:
        return textwrap.indent(textwrap.dedent(text.lines(block.runs)), "    ")
    return _paragraph(words)


def of_table(table: Table, text: PageText) -> str:
    """Return a table with its caption, unit and notes."""
    caption, unit = text.of(table.caption), text.of(table.unit)
    parts = [_paragraph(" ".join(filter(None, (caption, unit))))] if caption or unit else []
    parts.append(table_html(table, text) if _needs_html(table) else _pipes(table, text))
    parts += [_paragraph(text.of(note)) for note in table.footnotes]
    return "\n\n".join(parts)


def headers(table: Table, text: PageText) -> list[str]:
    """Return one text above each column: header lines from the top down, spanning ones too."""
    found: list[list[str]] = [[] for _ in range(table.columns)]
    for cell in table.cells:
        if cell.row < table.header_rows:
            for column in range(cell.column, cell.column + cell.column_span):
                found[column].append(text.of(cell.runs))
    return [" ".join(each) for each in found]


def rows(table: Table, text: PageText) -> list[list[str]]:
    """Return headers as one row, then the rows below them."""
    return [headers(table, text), *text.grid(table)[table.header_rows :]]


def table_html(table: Table, text: PageText) -> str:
    """Return a table as HTML, with the spans of its cells."""
    lines = [""] * table.rows
    for row, _, cell in places(table):
        lines[row] += _cell_html(cell, "th" if row < table.header_rows else "td", text)
    return "\n".join(["<table>", *(f"<tr>{line}</tr>" for line in lines), "</table>"])


def table_csv(grid: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV that a spreadsheet opens without running anything."""
    written = io.StringIO()
    writer = csv.writer(written)
    for row in grid:
        writer.writerow([f"'{text}" if _FORMULA.match(text) else text for text in row])
    return written.getvalue()


def places(table: Table) -> Iterator[tuple[int, int, Cell | None]]:
    """Yield row, column and cell of each place that no other cell covers."""
    starts = {(cell.row, cell.column): cell for cell in table.cells}
    covered = [bytearray(table.columns) for _ in range(table.rows)]  # a span may be huge
    for cell in table.cells:
        columns = slice(cell.column, cell.column + cell.column_span)
        for row in covered[cell.row : cell.row + cell.row_span]:
            row[columns] = b"\1" * cell.column_span
    for at, row in enumerate(covered):
        for column, is_covered in enumerate(row):
            found = starts.get((at, column))
            if found is not None or not is_covered:
                yield at, column, found


def _cell_html(cell: Cell | None, tag: str, text: PageText) -> str:
    if cell is None:
        return f"<{tag}></{tag}>"
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    return f"<{tag}{spans}>{escape(text.of(cell.runs))}</{tag}>"


def _needs_html(table: Table) -> bool:
    body = [cell for cell in table.cells if cell.row >= table.header_rows]
    return any(cell.row_span > 1 or cell.column_span > 1 for cell in body)


def _pipes(table: Table, text: PageText) -> str:
    lines = [_row(row) for row in rows(table, text)]
    lines.insert(1, "|" + " --- |" * table.columns)
    return "\n".join(lines)


def _row(row: Sequence[str]) -> str:
    return "| " + " | ".join(_inline(text).replace("|", r"\|") for text in row) + " |"


def _inline(text: str) -> str:
    return _REFERENCE.sub("&amp;", _SIGNS.sub(r"\\\1", text))


def _paragraph(text: str) -> str:
    safe = _inline(text)
    return _FIRST.sub(lambda found: _escaped(found[0]), safe)


def _escaped(mark: str) -> str:
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _list_item(words: str, level: int) -> str:
    mark, _, rest = words.partition(" ")
    indent = "  " * max(level - 1, 0)
    if mark.rstrip(".)").isdigit():
        return f"{indent}{mark} {_inline(rest)}"
    is_bullet = len(mark) == 1 and not mark.isalnum()
    return f"{indent}- {_inline(rest if is_bullet else words)}"
