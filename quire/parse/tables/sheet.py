"""A sheet: rows of texts, its cut into pages, and each page as blocks.

A page has rows of one sheet, and never a part of a row. The rows at the top that name the columns
are repeated on each page.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from quire.model.blocks import MAX_GRID, BlockKind
from quire.model.pages import Page
from quire.parse import composer, table_headers
from quire.parse.composer import Composer, GridCell

Row = list[str]
NumberedRow = tuple[int, Row]  # from 0

_MAX_TITLE_ROWS = 8
_LOOKED_AT = 60  # rows, in search of titles and headers


class Merge(NamedTuple):
    """Merged cells: first row and column, last row and column, from 0."""

    row: int
    column: int
    last_row: int
    last_column: int


class Sheet(NamedTuple):
    """A named sequence of rows."""

    name: str  # empty in a CSV file
    height: int
    width: int
    rows: Callable[[], Iterator[Row]]  # starts at the first row on each call
    merged: tuple[Merge, ...] = ()
    is_hidden: bool = False


class Head(NamedTuple):
    """What is above the rows of a sheet: its title, then the names of its columns."""

    titles: tuple[str, ...]
    headers: tuple[tuple[int, Row], ...]  # by row, from 0
    stop: int  # the first row below


class SheetRange(NamedTuple):
    """The rows of a page."""

    sheet: Sheet
    first: int  # from 0
    stop: int


def ranges(sheets: Sequence[Sheet], row_size: int) -> list[SheetRange]:
    """Cut sheets into pages: of `row_size` rows, or fewer if they are very wide."""
    found = []
    for sheet in sheets:
        size = max(1, min(row_size, MAX_GRID // (2 * max(sheet.width, 1))))
        for first in range(0, sheet.height, size):
            found.append(SheetRange(sheet, first, min(first + size, sheet.height)))
    return found


def label(of: SheetRange) -> str:
    """Name a page as people would."""
    sheet = of.sheet
    rows = f"rows {of.first + 1:,} to {of.stop:,}"
    if not sheet.name:
        return rows
    name = f"{sheet.name} (hidden)" if sheet.is_hidden else sheet.name
    return name if of.stop - of.first == sheet.height else f"{name}, {rows}"


def head(sheet: Sheet) -> Head:
    """Find the title of a sheet and the names of its columns."""
    top = [(at, row) for at, row in enumerate(itertools.islice(sheet.rows(), _LOOKED_AT))]
    filled = [(at, row) for at, row in top if any(map(str.strip, row))]
    titles = []
    for _, row in filled[: _MAX_TITLE_ROWS + 1]:
        texts = [composer.line(cell) for cell in row if cell.strip()]
        if len(texts) > 1 or table_headers.is_number(texts[0]):
            break
        titles.append(texts[0])
    if len(titles) > _MAX_TITLE_ROWS or len(titles) == len(filled) or sheet.width == 1:
        titles = []
    filled = filled[len(titles) :]
    count = table_headers.count([row for _, row in filled])
    headers = tuple(filled[:count])
    stop = headers[-1][0] + 1 if headers else filled[0][0] if titles else 0
    return Head(tuple(titles), headers, stop)


def page(of: SheetRange, above: Head, rows: Sequence[Row], number: int) -> Page:
    """Compose a page of the rows of a range."""
    sheet = of.sheet
    made = Composer()
    made.add(BlockKind.HEADING, composer.line(sheet.name), level=1)
    numbered = enumerate(rows, of.first)
    body = [(at, row) for at, row in numbered if at >= above.stop and any(row)]
    caption = "\n".join(above.titles) if not of.first else ""
    if sheet.width < 2:  # lines of text
        lines = (composer.line("".join(row)) for _, row in (*above.headers, *body))
        made.add(BlockKind.PARAGRAPH, "\n".join(lines))
        return made.page(number, label(of))
    first, *others = _tables(body)
    rows_of_first = [*above.headers, *first]
    top = _trimmed(rows_of_first) if others else rows_of_first
    made.table(_grid(top, sheet.merged), len(above.headers), caption)
    for each in map(_trimmed, others):
        headers = table_headers.count([row for _, row in each])
        made.table(_grid(each, sheet.merged), headers)
    return made.page(number, label(of))


def _tables(body: Sequence[NumberedRow]) -> list[Sequence[NumberedRow]]:
    """Cut rows where, after an empty one, another table starts."""
    found = []
    start = 0
    for at in range(1, len(body)):
        if body[at][0] > body[at - 1][0] + 1:
            above = [row for _, row in body[max(start, at - _LOOKED_AT) : at]]
            below = [row for _, row in _next_rows(body, at)]
            if table_headers.starts_table(above, below):
                found.append(body[start:at])
                start = at
    return [*found, body[start:]]


def _trimmed(rows: Sequence[NumberedRow]) -> Sequence[NumberedRow]:
    """Return rows without the columns after the last that they use."""
    width = max((at + 1 for _, row in rows for at, cell in enumerate(row) if cell), default=0)
    return [(number, row[:width]) for number, row in rows]


def _next_rows(body: Sequence[NumberedRow], at: int) -> Sequence[NumberedRow]:
    """Return the rows from one on up to an empty one."""
    stop = at + 1
    while stop < min(len(body), at + _LOOKED_AT) and body[stop][0] == body[stop - 1][0] + 1:
        stop += 1
    return body[at:stop]


def _grid(kept: Sequence[tuple[int, Row]], merged: Sequence[Merge]) -> list[list[GridCell]]:
    """Return rows as cells; those that a merged cell covers are left out."""
    at_rows = [at for at, _ in kept]
    spans: list[dict[int, tuple[int, int]]] = [{} for _ in kept]  # column → columns, rows
    covered: list[set[int]] = [set() for _ in kept]
    left = MAX_GRID  # merged cells that overlap must not cost more than a large table
    for index, at in enumerate(at_rows):
        first, stop = bisect_left(merged, (at,)), bisect_left(merged, (at + 1,))
        for merge in merged[first:stop]:
            below = bisect_right(at_rows, merge.last_row, index)
            columns = range(merge.column, min(merge.last_column + 1, len(kept[index][1])))
            left -= len(columns) * (below - index)
            if left < 0 or not columns or columns[0] < 0 or columns[0] in covered[index]:
                continue
            spans[index][columns[0]] = (len(columns), below - index)
            for row in range(index, below):
                covered[row].update(columns if row > index else columns[1:])
    return [
        [
            GridCell(composer.line(cell), *spans[index].get(column, (1, 1)))
            for column, cell in enumerate(row)
            if column not in covered[index] or cell.strip()
        ]
        for index, (_, row) in enumerate(kept)
    ]
