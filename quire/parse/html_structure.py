"""The blocks of an HTML page: its elements as they come, without a tree.

Navigation, banners and footers are running lines, not content, unless most of the page is in them:
then their end was forgotten. A table that holds tables is a means of layout, and so is one of a
single row or column.
"""

import re

from quire.model.blocks import BlockKind, Runs, join_runs
from quire.parse import table_headers
from quire.parse.composer import Composer, GridCell

_MAX_TABLES = 50  # inside each other
_LOOKED_AT = 30  # rows whose text tells which are headers
_LONGEST_NAME = 300  # characters of a cell that are looked at
_MAX_SPAN = 100_000
_HEADINGS = {f"h{level}": level for level in range(1, 7)} | {"title": 1}
_INLINE = frozenset(("br", "td", "th", "tr", "tbody", "thead", "tfoot", "caption"))
_SECTIONS = frozenset(("article", "main", "section"))
_SPAN = re.compile(r"(colspan|rowspan)\s*+=\s*+[\"']?+\s*+(\d{1,12})", re.IGNORECASE)
_LANDMARK = re.compile(
    r"role\s*+=\s*+[\"']?+(navigation|banner|contentinfo|search)\b", re.IGNORECASE
)
_LANDMARKS = {
    "nav": BlockKind.HEADER, "navigation": BlockKind.HEADER, "banner": BlockKind.HEADER,
    "search": BlockKind.HEADER, "contentinfo": BlockKind.FOOTER,
    "header": BlockKind.HEADER, "footer": BlockKind.FOOTER,
}  # fmt: skip


class _Table:
    def __init__(self) -> None:
        self.rows: list[list[GridCell]] = []
        self.head_rows = 0
        self.caption: Runs = ()
        self.in_head = self.in_cell = self.in_caption = False
        self.is_layout = False


class _Found:
    """A block, and the landmark that it stands in."""

    def __init__(self, kind: BlockKind, runs: Runs, level: int, landmark: BlockKind | None):
        self.kind, self.runs, self.level, self.landmark = kind, runs, level, landmark
        self.table: _Table | None = None


class Structure:
    """Takes elements and words in the order of the page."""

    def __init__(self) -> None:
        self._words = 0
        self._found: list[_Found] = []
        self._open: _Found | None = None  # the block to which words are added
        self._heading = 0
        self._lists = self._items = self._code = self._captions = self._sections = 0
        self._landmarks: list[tuple[str, BlockKind]] = []
        self._tables: list[_Table] = []
        self._deeper_tables = 0

    def add(self, text: str) -> None:
        """Take the words between two breaks."""
        count = len(text.split())
        if not count:
            return
        runs = ((self._words, self._words + count),)
        self._words += count
        table = self._tables[-1] if self._tables else None
        if table is None or table.is_layout or not (table.in_cell or table.in_caption):
            self._add_to_block(runs)
        elif table.in_cell:
            cell = table.rows[-1][-1]
            is_looked_at = len(table.rows) <= _LOOKED_AT and len(cell.text) < _LONGEST_NAME
            shown = f"{cell.text} {text}" if is_looked_at else cell.text
            table.rows[-1][-1] = cell._replace(runs=join_runs((*cell.runs, *runs)), text=shown)
        else:
            table.caption = join_runs((*table.caption, *runs))

    def start(self, tag: str, markup: str) -> None:
        """Take the start of an element, with the text of its tag."""
        if tag not in _INLINE:
            self._open = None if tag in _CLOSING else self._open
        if tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _CELLS:
            self._start_in_table(tag, markup)
        else:
            self._count(tag, 1)
        landmark = _LANDMARK.search(markup) if "role" in markup else None
        name = landmark[1].lower() if landmark else tag
        if name in _LANDMARKS and (landmark or tag == "nav" or not self._sections):
            self._landmarks.append((tag, _LANDMARKS[name]))
        elif tag == "main":
            self._landmarks.clear()

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        if tag in _CLOSING:
            self._open = None
        if tag in _HEADINGS:
            self._heading = 0
        elif tag in _CELLS:
            self._end_in_table(tag)
        else:
            self._count(tag, -1)
        if self._landmarks and self._landmarks[-1][0] == tag:
            self._landmarks.pop()

    def packed(self) -> bytes:
        """Return the blocks as a page stores them."""
        for table in reversed(self._tables):
            self._finish(table)
        self._tables = []
        outside = sum(_length(each.runs) for each in self._found if each.landmark is not None)
        has_landmarks = 2 * outside <= self._words
        composer = Composer()
        for each in self._found:
            if each.table is not None:
                _add_table(composer, each.table)
                continue
            landmark = each.landmark if has_landmarks else None
            is_title = each.kind == BlockKind.HEADING and each.level == 1
            if landmark is not None and not is_title:
                composer.block(landmark, each.runs)
            else:
                composer.block(each.kind, each.runs, each.level)
        return composer.packed()

    def _count(self, tag: str, step: int) -> None:
        if tag in ("ul", "ol"):
            self._lists = max(0, self._lists + step)
            self._items = min(self._items, self._lists)
        elif tag == "li":
            self._items = max(1, self._lists) if step > 0 else max(0, self._lists - 1)
        elif tag == "pre":
            self._code = max(0, self._code + step)
        elif tag == "figcaption":
            self._captions = max(0, self._captions + step)
        elif tag in _SECTIONS:
            self._sections = max(0, self._sections + step)

    def _add_to_block(self, runs: Runs) -> None:
        if self._open is not None:
            self._open.runs = join_runs((*self._open.runs, *runs))
            return
        kind, level = BlockKind.PARAGRAPH, 0
        if self._heading:
            kind, level = BlockKind.HEADING, self._heading
        elif self._code:
            kind = BlockKind.CODE
        elif self._captions:
            kind = BlockKind.CAPTION
        elif self._items:
            kind, level = BlockKind.LIST_ITEM, self._items
        self._open = _Found(kind, runs, level, self._landmark())
        self._found.append(self._open)

    def _landmark(self) -> BlockKind | None:
        return self._landmarks[-1][1] if self._landmarks else None

    def _start_in_table(self, tag: str, markup: str) -> None:
        if tag == "table":
            self._start_table()
            return
        table = self._tables[-1] if self._tables and not self._deeper_tables else None
        if table is None or table.is_layout:
            return
        table.in_cell, table.in_caption = tag in ("td", "th"), tag == "caption"
        if tag in ("thead", "tbody", "tfoot"):
            table.in_head = tag == "thead"
        elif tag == "tr":
            self._start_row(table)
        elif table.in_cell:
            if not table.rows:
                self._start_row(table)
            spans = {name.lower(): min(int(n), _MAX_SPAN) for name, n in _SPAN.findall(markup)}
            cell = GridCell("", spans.get("colspan", 1), spans.get("rowspan", 1), tag == "th")
            table.rows[-1].append(cell)

    def _start_table(self) -> None:
        if len(self._tables) == _MAX_TABLES:
            self._deeper_tables += 1
            return
        if self._tables:
            self._lay_out(self._tables[-1])
        self._tables.append(_Table())

    def _start_row(self, table: _Table) -> None:
        table.rows.append([])
        if table.in_head and table.head_rows == len(table.rows) - 1:
            table.head_rows += 1

    def _end_in_table(self, tag: str) -> None:
        if self._deeper_tables:
            self._deeper_tables -= tag == "table"
        elif self._tables and tag == "table":
            self._finish(self._tables.pop())
        elif self._tables and tag in ("td", "th", "caption", "tr"):
            self._tables[-1].in_cell = self._tables[-1].in_caption = False
        elif self._tables and tag == "thead":
            self._tables[-1].in_head = False

    def _finish(self, table: _Table) -> None:
        if table.is_layout or len(table.rows) < 2 or max(map(len, table.rows)) < 2:
            self._lay_out(table)
            return
        runs = join_runs(run for row in table.rows for cell in row for run in cell.runs)
        found = _Found(BlockKind.TABLE, runs or table.caption, 0, self._landmark())
        found.table = table
        if found.runs:
            self._found.append(found)
        self._open = None

    def _lay_out(self, table: _Table) -> None:
        """Make paragraphs of what was taken for cells."""
        kind, landmark = BlockKind.PARAGRAPH, self._landmark()
        pieces = [table.caption, *(cell.runs for row in table.rows for cell in row)]
        self._found += [_Found(kind, runs, 0, landmark) for runs in pieces if runs]
        table.rows, table.caption, table.is_layout = [], (), True
        self._open = None


_CELLS = frozenset(("table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th"))
#: Elements whose start or end ends a block.
_CLOSED = (
    "p h1 h2 h3 h4 h5 h6 table ul ol pre blockquote section title address article aside body"
    " caption dd dl dt details div fieldset figcaption figure footer form header hr html li main"
    " nav option summary tbody tfoot thead tr td th"
)
_CLOSING = frozenset(_CLOSED.split())


def _add_table(composer: Composer, table: _Table) -> None:
    rows = table.rows
    headers = next((at for at, row in enumerate(rows) if not _is_header(row)), 0)
    if not headers and table.head_rows < len(rows):
        headers = table.head_rows
    if not headers:
        headers = table_headers.count([[cell.text.strip() for cell in row] for row in rows])
    marked = [[cell._replace(text="") for cell in row] for row in rows]
    composer.table(marked, headers, caption_runs=table.caption)


def _is_header(row: list[GridCell]) -> bool:
    return bool(row) and all(cell.is_header for cell in row)


def _length(runs: Runs) -> int:
    return sum(stop - first for first, stop in runs)
