"""The body of a Word file as pages of blocks.

Paragraphs and tables are composed as their elements end, from the inside out: cells contain
paragraphs, paragraphs text boxes. A table inside a cell is text of that cell.
"""

from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple

from quire.model.blocks import BlockKind
from quire.model.pages import Page
from quire.parse import composer, encoding, table_headers
from quire.parse.composer import Composer, GridCell
from quire.parse.office import ooxml
from quire.parse.office.ooxml import Attributes, attribute, is_on, number
from quire.parse.office.word_styles import Numbering, Styles

#: A file without breaks of pages is cut before a heading after so many words, …
_SECTION_WORDS = 400
#: … and anywhere between paragraphs after so many.
_LONG_SECTION_WORDS = 2_000
#: The text that follows is left on the last page.
MAX_PAGES = 100_000
_LONGEST_BOLD_HEADING = 120  # characters
_BOLD_CONFIDENCE = 60
_MAX_LABEL = 80
_NO_LIST = "0"  # takes a paragraph out of the list of its style
_SENTENCE_END = (".", ";", ",", ":", "!", "?")


class Notes(NamedTuple):
    """Texts by id. Footnotes and comments go on the page that refers to them first."""

    footnotes: dict[str, str]
    endnotes: dict[str, str]
    comments: dict[str, str]

    def take(self, reference: str, note_id: str) -> str:
        """Return a note the first time that it is referred to."""
        notes = self.comments if reference == "commentReference" else self.footnotes
        return notes.pop(note_id, "")

    def rest(self) -> list[str]:
        """Return the notes that stand at the end of the document."""
        return [text for notes in self for text in notes.values()]


class _Paragraph:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.style: str | None = None
        self.outline_level: int | None = None
        self.num_id: str | None = None
        self.num_level: int | None = None
        self.is_bold = True  # all of its runs are
        self.is_continued = False  # its start is on the page before
        self.ends_page = False  # a section ends with it

    def text(self) -> str:
        return "".join(self.parts).strip()


class _Cell:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.span = 1
        self.merge: str | None = None  # restart or continue
        self.row_span = 1


class _Row:
    def __init__(self) -> None:
        self.cells: list[tuple[int, _Cell]] = []  # by column
        self.before = self.width = 0  # columns left free, columns so far
        self.is_header = False
        self.breaks_before = False  # a page ends before it


class WordBody:
    """Takes the elements of `document.xml`, and has the finished pages."""

    def __init__(
        self, styles: Styles, numbering: Numbering, notes: Notes, *, has_rendered_breaks: bool
    ) -> None:
        self._styles, self._numbering, self._notes = styles, numbering, notes
        self._is_rendered = has_rendered_breaks
        self._finished: list[Page] = []
        self._number = 1
        self._page = Composer()
        self._page_notes: list[str] = []
        self._title = ""  # the first heading of the page
        self._level = 0  # of the last heading with a style
        self._caption = ""  # a caption that may belong to the table after it
        self._paragraphs: list[_Paragraph] = []
        self._rows: list[_Row] = []
        self._open_merges: dict[int, _Cell] = {}  # column → the cell that goes on downwards
        self._tables = 0  # open ones, inside each other
        self._has_first_row = False  # the table's look says that its first row differs
        self._in_text = False
        self._in_run_properties = False
        self._is_bold = False
        self._skipped = 0  # depth inside a skipped element

    def pages(self, file: IO[bytes]) -> Iterator[Page]:
        """Yield the pages of the body; the last one is still open (see `last_page`)."""
        for _ in ooxml.stream(file, self):
            yield from self._finished
            self._finished.clear()

    def last_page(self, running: Mapping[str, BlockKind]) -> Page:
        """Return the last page, with the notes that nothing refers to, and running lines."""
        self._flush_caption()
        self._page_notes += self._notes.rest()
        self._write_notes()
        for text, kind in running.items():
            self._page.add(kind, text)
        return self._page.page(self._number, self._label(is_last=True))

    # Elements

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        if self._skipped or name in (ooxml.DUPLICATE, "moveFrom"):
            self._skipped += 1
            return
        if (act := _STARTS.get(name)) is not None:
            act(self, name, attributes)
        elif self._paragraphs and name in ooxml.CHARACTERS:
            self._paragraphs[-1].parts.append(ooxml.CHARACTERS[name])

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if self._skipped:
            self._skipped -= 1
            return
        if (act := _ENDS.get(name)) is not None:
            act(self)

    def characters(self, text: str) -> None:
        """Take text."""
        if self._in_text and not self._skipped and self._paragraphs:
            paragraph = self._paragraphs[-1]
            paragraph.parts.append(text)
            paragraph.is_bold = paragraph.is_bold and (self._is_bold or text.isspace())

    # Paragraphs

    def _start_paragraph(self, name: str, attributes: Attributes) -> None:
        self._paragraphs.append(_Paragraph())

    def _start_text(self, name: str, attributes: Attributes) -> None:
        self._in_text = True

    def _end_text(self) -> None:
        self._in_text = False

    def _start_run(self, name: str, attributes: Attributes) -> None:
        style = self._paragraphs[-1].style if self._paragraphs else None
        self._is_bold = self._styles.is_bold(style)

    def _start_run_properties(self, name: str, attributes: Attributes) -> None:
        self._in_run_properties = True

    def _end_run_properties(self) -> None:
        self._in_run_properties = False

    def _set_bold(self, name: str, attributes: Attributes) -> None:
        if self._in_run_properties:
            self._is_bold = is_on(attributes)

    def _set_property(self, name: str, attributes: Attributes) -> None:
        if not self._paragraphs:
            return
        paragraph, value = self._paragraphs[-1], attribute(attributes, "val")
        if name == "pStyle":
            paragraph.style = value
        elif name == "outlineLvl":
            paragraph.outline_level = number(value, 9, 9)
        elif name == "numId":
            paragraph.num_id = value
        else:
            paragraph.num_level = number(value, 0, 8)

    def _refer(self, name: str, attributes: Attributes) -> None:
        if found := self._notes.take(name, attribute(attributes, "id") or ""):
            self._page_notes.append(found)

    def _end_paragraph(self) -> None:
        if not self._paragraphs:
            return
        paragraph = self._paragraphs.pop()
        if self._tables:
            text = paragraph.text()
            if self._rows and self._rows[-1].cells and text:
                self._rows[-1].cells[-1][1].parts.append(text)
        else:
            self._write(paragraph)
            if paragraph.ends_page and not self._is_rendered and not self._paragraphs:
                self._break()

    def _write(self, paragraph: _Paragraph) -> None:
        text = encoding.clean(paragraph.text())
        if not text:
            return
        kind, level, confidence = self._kind(paragraph, text)
        if (number := self._count(paragraph)) and not paragraph.is_continued:
            text = f"{number} {text}"
        if kind == BlockKind.CAPTION:
            self._flush_caption()
            self._caption = text
            return
        self._flush_caption()
        if kind == BlockKind.HEADING:
            if not self._is_rendered and self._page.words >= _SECTION_WORDS:
                self._break()
            self._title = self._title or composer.line(text)
        elif not self._is_rendered and self._page.words >= _LONG_SECTION_WORDS:
            self._break()
        self._page.add(kind, text, level, confidence=confidence)

    def _kind(self, paragraph: _Paragraph, text: str) -> tuple[BlockKind, int, int]:
        own = paragraph.outline_level
        if own is not None:
            level = own + 1 if own < 9 else None
        else:
            level = self._styles.heading_level(paragraph.style)
        if level is not None:
            self._level = level
            return BlockKind.HEADING, level, 100
        if self._styles.is_caption(paragraph.style):
            return BlockKind.CAPTION, 0, 100
        if self._styles.is_code(paragraph.style):
            return BlockKind.CODE, 0, 100
        if (found := self._list_of(paragraph)) is not None:
            return BlockKind.LIST_ITEM, found[1] + 1, 100
        is_short = len(text) <= _LONGEST_BOLD_HEADING and not text.endswith(_SENTENCE_END)
        if paragraph.is_bold and is_short and any(map(str.isalpha, text)):
            return BlockKind.HEADING, self._level + 1, _BOLD_CONFIDENCE
        return BlockKind.PARAGRAPH, 0, 100

    def _list_of(self, paragraph: _Paragraph) -> tuple[str, int] | None:
        num_id, level = paragraph.num_id, paragraph.num_level
        if num_id is None or level is None:
            of_style = self._styles.numbering(paragraph.style) or (None, 0)
            level = of_style[1] if level is None and (num_id or of_style[0]) else level
            num_id = of_style[0] if num_id is None else num_id
        if level is None or num_id == _NO_LIST:
            return None
        return num_id or "", level

    def _count(self, paragraph: _Paragraph) -> str:
        found = self._list_of(paragraph)
        if found is None or paragraph.is_continued or not self._numbering.is_list(found[0]):
            return ""
        return self._numbering.count(*found)

    # Pages

    def _start_break(self, name: str, attributes: Attributes) -> None:
        if name == "br" and attribute(attributes, "type") != "page":
            if self._paragraphs:
                self._paragraphs[-1].parts.append("\n")
            return
        if name == "pageBreakBefore" and not is_on(attributes):
            return
        if self._tables:
            if self._rows:
                self._rows[-1].breaks_before = True
        elif len(self._paragraphs) == 1:
            self._break_paragraph()
        elif not self._paragraphs:
            self._break()

    def _start_section(self, name: str, attributes: Attributes) -> None:
        """Note that a section ends with this paragraph, and a page unless it says otherwise."""
        if self._paragraphs and (name == "sectPr" or self._paragraphs[-1].ends_page):
            self._paragraphs[-1].ends_page = attribute(attributes, "val") != "continuous"

    def _break_paragraph(self) -> None:
        """End the page within a paragraph; what follows goes on the next one."""
        paragraph = self._paragraphs[0]
        has_text = bool(paragraph.text())
        self._write(paragraph)
        paragraph.parts = []
        paragraph.is_continued = paragraph.is_continued or has_text
        self._break()

    def _break(self) -> None:
        """End the page. One without words is none: Word marks some breaks twice."""
        self._flush_caption()
        if not self._page.words or self._number >= MAX_PAGES:
            return
        self._write_notes()
        self._finished.append(self._page.page(self._number, self._label()))
        self._number += 1
        self._page, self._title = Composer(), ""

    def _label(self, *, is_last: bool = False) -> str | None:
        if self._is_rendered or (is_last and self._number == 1):
            return None
        title = f": {self._title[:_MAX_LABEL]}" if self._title else ""
        return f"section {self._number}{title}"

    def _write_notes(self) -> None:
        for note in self._page_notes:
            self._page.add(BlockKind.FOOTNOTE, note)
        self._page_notes = []

    def _flush_caption(self) -> None:
        self._page.add(BlockKind.CAPTION, self._caption)
        self._caption = ""

    # Tables

    def _start_table(self, name: str, attributes: Attributes) -> None:
        self._tables += 1
        if self._tables == 1:
            self._rows, self._open_merges, self._has_first_row = [], {}, False

    def _start_row(self, name: str, attributes: Attributes) -> None:
        if self._tables == 1:
            self._rows.append(_Row())

    def _start_cell(self, name: str, attributes: Attributes) -> None:
        if self._tables == 1 and self._rows:
            row = self._rows[-1]
            row.cells.append((row.width, _Cell()))

    def _set_table_property(self, name: str, attributes: Attributes) -> None:
        if self._tables != 1:
            return
        value = attribute(attributes, "val")
        if name == "tblLook":
            mask = (value or "0")[:8]
            is_hex = all(char in "0123456789abcdefABCDEF" for char in mask)
            first_row = attribute(attributes, "firstRow")
            self._has_first_row = first_row == "1" or (
                first_row is None and is_hex and bool(int(mask, 16) & 0x20)
            )
        elif self._rows and name == "tblHeader":
            self._rows[-1].is_header = is_on(attributes)
        elif self._rows and name == "gridBefore":
            self._rows[-1].before = self._rows[-1].width = number(value, 0, 1_000)
        elif self._rows and self._rows[-1].cells:
            cell = self._rows[-1].cells[-1][1]
            if name == "gridSpan":
                cell.span = max(1, number(value, 1, 1_000))
            elif name == "vMerge":
                cell.merge = value or "continue"

    def _end_cell(self) -> None:
        if self._tables != 1 or not self._rows or not self._rows[-1].cells:
            return
        row = self._rows[-1]
        column, cell = row.cells[-1]
        row.width += cell.span
        above = self._open_merges.get(column)
        is_merged = cell.merge == "continue" and not row.breaks_before
        if is_merged and above is not None and above.span == cell.span:
            above.row_span += 1
            above.parts += cell.parts
            row.cells.pop()
            return
        self._open_merges.pop(column, None)
        if cell.merge == "restart":
            self._open_merges[column] = cell

    def _end_row(self) -> None:
        if self._tables == 1 and self._rows and self._rows[-1].breaks_before:
            self._break_table()

    def _break_table(self) -> None:
        """End the page before the last row; the header rows are repeated, as Word shows them."""
        last = self._rows.pop()
        headers = self._header_rows()
        if len(self._rows) > headers or self._page.words:
            self._write_table()
            self._break()
        last.breaks_before = False
        self._rows = [*self._rows[:headers], last]
        for at, row in enumerate(self._rows):
            for _, cell in row.cells:
                cell.row_span = min(cell.row_span, max(headers - at, 1))
        self._open_merges = {}

    def _header_rows(self) -> int:
        return next((at for at, row in enumerate(self._rows) if not row.is_header), len(self._rows))

    def _end_table(self) -> None:
        self._tables = max(0, self._tables - 1)
        if not self._tables:
            self._write_table()
            self._rows, self._open_merges = [], {}

    def _write_table(self) -> None:
        rows = [self._grid_row(row) for row in self._rows]
        headers = self._header_rows()
        if not headers or headers == len(rows):
            headers = table_headers.count([[cell.text for cell in row] for row in rows])
            headers = headers if self._has_first_row else min(headers, 1)
        caption, self._caption = self._caption, ""
        self._page.table(rows, headers, caption)

    def _grid_row(self, row: _Row) -> list[GridCell]:
        found = [GridCell("", row.before)] if row.before else []
        for _, cell in row.cells:
            text = composer.line(" ".join(cell.parts))
            found.append(GridCell(text, cell.span, cell.row_span))
        return found


_STARTS = {
    "p": WordBody._start_paragraph,
    "t": WordBody._start_text,
    "r": WordBody._start_run,
    "rPr": WordBody._start_run_properties,
    "b": WordBody._set_bold,
    **dict.fromkeys(("pStyle", "outlineLvl", "numId", "ilvl"), WordBody._set_property),
    **dict.fromkeys(("footnoteReference", "commentReference"), WordBody._refer),
    **dict.fromkeys(("br", "lastRenderedPageBreak", "pageBreakBefore"), WordBody._start_break),
    **dict.fromkeys(("sectPr", "type"), WordBody._start_section),
    "tbl": WordBody._start_table,
    "tr": WordBody._start_row,
    "tc": WordBody._start_cell,
    **dict.fromkeys(
        ("tblLook", "tblHeader", "gridBefore", "gridSpan", "vMerge"), WordBody._set_table_property
    ),
}
_ENDS = {
    "p": WordBody._end_paragraph,
    "t": WordBody._end_text,
    "rPr": WordBody._end_run_properties,
    "tc": WordBody._end_cell,
    "tr": WordBody._end_row,
    "tbl": WordBody._end_table,
}
