"""The structure of a document: its outline, tables and blocks, and the whole of it as Markdown."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from quire.control.caller import Caller
from quire.control.documents import no_page, row_of
from quire.errors import TooLarge
from quire.model import running_lines
from quire.model.blocks import Block, BlockKind, BlockSource, PageText, Runs, Table, unpack
from quire.model.pages import Page
from quire.model.running_lines import EdgeLine
from quire.parse import word_boxes
from quire.store.reports import documents as reports
from quire.text import markdown

MOST_CELLS = 20_000  # of one table, and after which a list of tables ends; empty ones too
MOST_CHARS = 2_000_000  # of a page, to show its structure: words take a hundred times as much
MOST_MARKDOWN = 20_000_000  # characters of an answer of the API
_PAGES = 20  # that are read at a time
_RUNNING = (BlockKind.HEADER, BlockKind.FOOTER)
_NEAR = 8  # pages before and after one that show what repeats on it
_NAMES = {kind: kind.name.lower() for kind in BlockKind}
_SOURCES = {source: source.name.lower() for source in BlockSource}


class PageBlocks(NamedTuple):
    """A page with its blocks; without blocks, its text is one paragraph."""

    number: int
    label: str | None
    text: PageText
    blocks: list[Block]
    boxes: list[word_boxes.Box]  # of its words; empty if it has none
    height: float
    is_read: bool


class _FoundTable(NamedTuple):
    """A table of a page; `number` counts those of the page."""

    page: PageBlocks
    number: int
    table: Table
    continues: bool

    def as_json(self) -> dict[str, Any]:
        """Return the table for the API and the CLI."""
        told = {"page": self.page.number, "number": self.number, "continues": self.continues}
        return {**told, **_table_json(self.page, self.table)}


class WrittenTable(NamedTuple):
    """A table as JSON, Markdown and CSV."""

    details: dict[str, Any]
    markdown: str
    csv: str


def of_page(caller: Caller, document_id: int, number: int) -> dict[str, Any]:
    """Return the blocks of a page in reading order, with their texts and boxes."""
    first, last = max(number - 1 - _NEAR, 0), number + _NEAR
    for page in _with_running_lines(caller, document_id, after=first, until=last):
        if page.number == number and page.is_read:
            return _page_json(page)
    raise no_page(document_id, number)


def outline(caller: Caller, document_id: int) -> dict[str, Any]:
    """Return the headings of a document, in order, with levels from 1."""
    found = [
        (page, block)
        for page in _with_running_lines(caller, document_id)
        for block in page.blocks
        if block.kind == BlockKind.HEADING
    ]
    # Bookmarks have levels; those of other headings are guessed from their size, and come below.
    told = [b.level for _, b in found if b.source == BlockSource.OUTLINE]
    shift = max(told, default=0)
    raw = [b.level + (0 if b.source == BlockSource.OUTLINE else shift) for _, b in found]
    ranks = {level: rank for rank, level in enumerate(sorted(set(raw)), start=1)}
    items = [
        {"level": ranks[level], "title": page.text.of(block.runs), "page": page.number}
        for level, (page, block) in zip(raw, found, strict=True)
    ]
    return {"items": items}


def tables(
    caller: Caller, document_id: int, *, limit: int = 50, cursor: int | None = None
) -> dict[str, Any]:
    """List the tables of a document; the cursor is the last page that was listed."""
    items: list[dict[str, Any]] = []
    last = cells = 0
    for found in _tables(caller, document_id, after=cursor or 0):
        is_full = len(items) >= limit or cells > MOST_CELLS
        if is_full and found.page.number != last:
            return {"items": items, "next": str(last)}
        items.append(found.as_json())
        cells += _cut(found.table).rows * found.table.columns
        last = found.page.number
    return {"items": items, "next": None}


def tables_as_text(
    caller: Caller, document_id: int, *, page: int | None = None
) -> list[WrittenTable]:
    """Return the tables of a document, or of one page, as Markdown and CSV.

    The CSV of a table that continues one of the page before has no header.
    """
    after, until = (0, None) if page is None else (page - 1, page)
    written = []
    for found in _tables(caller, document_id, after=after, until=until):
        table, text = found.table, found.page.text
        rows = markdown.rows(table, text)[1 if found.continues else 0 :]
        csv = markdown.table_csv(rows)
        written.append(WrittenTable(found.as_json(), markdown.of_table(table, text), csv))
    return written


def _tables(
    caller: Caller, document_id: int, *, after: int = 0, until: int | None = None
) -> Iterator[_FoundTable]:
    """Yield the tables of pages, and whether each continues the last one of the page before."""
    near = until + _NEAR if until is not None else None
    first = max(after - _NEAR, 0)
    before: PageBlocks | None = None
    for page in _with_running_lines(caller, document_id, after=first, until=near):
        if after < page.number and (until is None or page.number <= until):
            shown = [block for block in page.blocks if block.table is not None]
            for number, block in enumerate(shown, start=1):
                if block.table is not None:
                    continues = before is not None and _continues(before, page, block)
                    yield _FoundTable(page, number, block.table, continues)
        before = page


def _continues(before: PageBlocks, page: PageBlocks, block: Block) -> bool:
    """Tell whether a table at the top of a page goes on from the foot of the page before."""
    above = [each for each in before.blocks if each.kind not in _RUNNING]
    below = [each for each in page.blocks if each.kind not in _RUNNING]
    last = above[-1].table if above else None
    if last is None or block.table is None or below[0] is not block:
        return False
    heads = markdown.headers(block.table, page.text)
    is_alike = not any(heads) or heads == markdown.headers(last, before.text)
    return is_alike and block.table.columns == last.columns


def as_markdown(caller: Caller, document_id: int, *, most: int | None = None) -> str:
    """Return a document as Markdown, without the lines that repeat on its pages.

    A Markdown file is returned as it was written. Raises TooLarge if there are more than so many
    characters.
    """
    with caller.db.read() as conn:
        is_markdown = row_of(conn, caller, document_id).media_type == "text/markdown"
    parts, length = list[str](), 0
    for part in _markdown_parts(caller, document_id, is_markdown):
        parts.append(part)
        length += len(part)
        if most is not None and length > most:
            raise TooLarge(
                f"document {document_id}: as Markdown it has more than {most:,} characters. Read "
                f"it page by page, or on the server: quire document markdown {document_id}"
            )
    between = "\n" if is_markdown else "\n\n"
    return between.join(parts) + "\n" if parts else ""


def _markdown_parts(caller: Caller, document_id: int, is_markdown: bool) -> Iterator[str]:
    """Yield the text of pages as it is, or each block as Markdown."""
    if is_markdown:
        yield from (page.text.text for page in _pages(caller, document_id))
        return
    for page in _with_running_lines(caller, document_id):
        yield from filter(None, (markdown.of_block(block, page.text) for block in page.blocks))


def _pages(
    caller: Caller, document_id: int, *, after: int = 0, until: int | None = None
) -> Iterator[PageBlocks]:
    """Yield pages of a document."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
    while True:
        limit = _PAGES if until is None else min(_PAGES, until - after)
        with caller.db.read() as conn:
            found = reports.pages_of(conn, row, limit=limit, after=after) if limit > 0 else []
        for one in found:
            if len(one.text or "") > MOST_CHARS:
                raise TooLarge(
                    f"document {document_id}: page {one.number} has {len(one.text):,} characters. "
                    f"The structure of a page is shown up to {MOST_CHARS:,}; its text and the file "
                    "are there as before."
                )
            yield _page(one)
        if len(found) < limit or not found:
            return
        after = found[-1].number


def _with_running_lines(
    caller: Caller, document_id: int, *, after: int = 0, until: int | None = None
) -> Iterator[PageBlocks]:
    """Yield pages with the lines that repeat on them marked as headers and footers.

    They are read twice: all of them with their boxes would be too much to hold.
    """
    first = _pages(caller, document_id, after=after, until=until)
    running = running_lines.find(map(_edges, first))
    for page in _pages(caller, document_id, after=after, until=until):
        marked = [
            _marked(block, page, is_running=(page.number, index) in running)
            for index, block in enumerate(page.blocks)
        ]
        yield page._replace(blocks=marked)


def _page(one: Any) -> PageBlocks:
    text, packed = one.text or "", one.words or b""
    page = Page(one.number, text, packed)
    spans, boxes = word_boxes.located(page)
    blocks = unpack(one.blocks or b"", len(spans))
    if not blocks and spans:
        blocks = [Block(BlockKind.PARAGRAPH, ((0, len(spans)),), confidence=0)]
    return PageBlocks(
        one.number, one.label, PageText(text, spans), blocks, boxes, one.height or 0.0,
        one.text is not None,
    )  # fmt: skip


def _edges(page: PageBlocks) -> list[EdgeLine]:
    if not page.boxes or not page.height:
        return []
    found = []
    for index, block in enumerate(page.blocks):
        if block.table is None and block.runs:
            _, top, _, bottom = _union(page, block.runs)
            line = EdgeLine(
                page.number, index, page.text.of(block.runs), top / page.height,
                bottom / page.height, block.kind == BlockKind.HEADING,
            )  # fmt: skip
            found.append(line)
    return found


def _marked(block: Block, page: PageBlocks, *, is_running: bool) -> Block:
    if not is_running:
        return block
    _, top, _, _ = _union(page, block.runs)
    kind = BlockKind.HEADER if top < page.height / 2 else BlockKind.FOOTER
    return block._replace(kind=kind, level=0)


def _union(page: PageBlocks, runs: Runs) -> tuple[float, float, float, float]:
    """Return left, top, right, bottom of words."""
    inside = [page.boxes[word] for first, stop in runs for word in range(first, stop)]
    return (
        min(x for x, _, _, _ in inside), min(y for _, y, _, _ in inside),
        max(x + w for x, _, w, _ in inside), max(y + h for _, y, _, h in inside),
    )  # fmt: skip


def _box(page: PageBlocks, runs: Runs) -> list[float] | None:
    """Return x, y, width, height of words, in points."""
    if not page.boxes or not runs:
        return None
    left, top, right, bottom = _union(page, runs)
    return [round(each, 1) for each in (left, top, right - left, bottom - top)]


def _page_json(page: PageBlocks) -> dict[str, Any]:
    return {
        "page": page.number,
        "label": page.label,
        "unreadable": page.text.text.count("\ufffd"),
        "blocks": [
            {
                "kind": _NAMES[block.kind],
                "level": block.level,
                "text": page.text.of(block.runs),
                "box": _box(page, block.runs),
                "words": block.runs,
                "confidence": block.confidence,
                "source": _SOURCES[block.source],
                "table": _table_json(page, block.table) if block.table else None,
            }
            for block in page.blocks
        ],
    }


def _cut(table: Table) -> Table:
    """Return a table, or the first rows of one that has more cells than are listed."""
    rows = min(table.rows, max(MOST_CELLS // table.columns, 1))
    if rows == table.rows:
        return table
    cells = (cell for cell in table.cells if cell.row + cell.row_span <= rows)
    return table._replace(rows=rows, header_rows=min(table.header_rows, rows), cells=tuple(cells))


def _table_json(page: PageBlocks, whole: Table) -> dict[str, Any]:
    text, table = page.text, _cut(whole)
    return {
        "rows": whole.rows,
        "is_cut": table is not whole,
        "columns": table.columns,
        "header_rows": table.header_rows,
        "caption": text.of(table.caption),
        "unit": text.of(table.unit),
        "footnotes": [text.of(note) for note in table.footnotes],
        "grid": text.grid(table),
        "cells": [
            {
                **cell._asdict(),
                "runs": cell.runs,
                "text": text.of(cell.runs),
                "box": _box(page, cell.runs),
            }
            for cell in table.cells
        ],
    }
