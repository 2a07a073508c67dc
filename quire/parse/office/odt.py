"""Texts of OpenDocument (ODT), read from their XML in pieces."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.blocks import BlockKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import composer, encoding
from quire.parse.composer import GridCell
from quire.parse.flow import Flow
from quire.parse.office import archive, ooxml
from quire.parse.office.ooxml import Attributes, attribute, number
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

_BODY, _STYLES, _MANIFEST = "content.xml", "styles.xml", "META-INF/manifest.xml"
_DRAWN_BREAK = b"soft-page-break"
_PIECE_BYTES = 1 << 20
_MAX_LEVEL = 9
_MAX_SPACES, _MAX_SPAN, _MAX_REPEATED = 100, 1_000, 100_000
#: Elements whose text is not of the document: changes, comments, forms, citations of notes.
_SKIPPED = frozenset(("tracked-changes", "annotation", "forms", "note-citation"))


class OdtParser(BuiltinParser):
    """ODT files."""

    name = "odt"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Check that the file is complete and safe to unpack."""
        archive.check(path)
        with archive.open_archive(path) as members:
            if _BODY not in members.NameToInfo:
                raise Unreadable(f"{path.name}: is damaged: {_BODY} is missing.")
            if _contains(members, _MANIFEST, b"encryption-data"):
                raise Unreadable(
                    f"{path.name}: is protected by a password. Remove the protection and ingest "
                    "it again."
                )
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield all pages: their number is known only at the end."""
        path = request.path
        self.inspect(path, request.media_type, request.options)
        with archive.open_archive(path) as members:
            try:
                yield from _pages(members)
            except Unreadable as error:
                raise Unreadable(f"{path.name}: {error}") from error
            except expat.ExpatError as error:
                raise Unreadable(f"{path.name}: is damaged ({error}).") from error


def _contains(members: zipfile.ZipFile, part: str, wanted: bytes) -> bool:
    if part not in members.NameToInfo:
        return False
    tail = b""
    with members.open(part) as file:
        while piece := file.read(_PIECE_BYTES):
            if wanted in tail + piece:
                return True
            tail = piece[-len(wanted) :]
    return False


def _pages(members: zipfile.ZipFile) -> Iterator[Page]:
    body = _Body(is_drawn=_contains(members, _BODY, _DRAWN_BREAK))
    if _STYLES in members.NameToInfo:
        with members.open(_STYLES) as file:
            ooxml.read(file, body.styles)
    with members.open(_BODY) as file:
        yield from body.pages(file)


class _Styles:
    """Takes styles of paragraphs and lists, from both parts that have some."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._breaking: set[str] = set()  # paragraphs that start a page
        self._numbered: set[tuple[str, int]] = set()  # list and level
        self._style = self._list = ""

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        own = attribute(attributes, "name") or ""
        if name == "style":
            self._style = own
            self._parents[own] = attribute(attributes, "parent-style-name") or ""
        elif name == "list-style":
            self._list = own
        elif name == "paragraph-properties":
            if attribute(attributes, "break-before") == "page":
                self._breaking.add(self._style)
        elif name == "list-level-style-number" and attribute(attributes, "num-format"):
            self._numbered.add((self._list, number(attribute(attributes, "level"), 1, 10)))

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def characters(self, text: str) -> None:
        """Styles have no text."""

    def breaks(self, style: str) -> bool:
        """Tell whether a paragraph starts a page."""
        return style in self._breaking

    def is_title(self, style: str) -> bool:
        """Tell whether a style is that of the title, or made from it."""
        return "Title" in (style, self._parents.get(style))

    def is_numbered(self, style: str, level: int) -> bool:
        """Tell whether the items of a list have numbers."""
        return (style, level) in self._numbered


class _Paragraph:
    def __init__(self, heading: int, style: str) -> None:
        self.parts: list[str] = []
        self.heading = heading
        self.style = style


class _Table:
    def __init__(self) -> None:
        self.rows: list[list[GridCell]] = []
        self.headers = 0
        self.cell: list[str] = []
        self.span = (1, 1, 1)  # columns, rows, repetitions
        self.in_headers = False
        self.repeated = 0  # cells that are not in the file


class _Body:
    """Takes the elements of `content.xml`."""

    def __init__(self, *, is_drawn: bool) -> None:
        self.styles = _Styles()
        self._flow = Flow(is_drawn=is_drawn)
        self._is_drawn = is_drawn
        self._in_body = False
        self._skipped = 0
        self._paragraphs: list[_Paragraph] = []
        self._lists: list[tuple[str, int]] = []  # style and last number of each open list
        self._item = False  # the next paragraph is the first of a list item
        self._table: _Table | None = None
        self._tables = 0  # open ones, inside each other
        self._note: list[str] | None = None

    def pages(self, file: IO[bytes]) -> Iterator[Page]:
        """Yield the pages of the body."""
        for _ in ooxml.stream(file, self):
            yield from self._flow.finished
            self._flow.finished.clear()
        yield self._flow.last()

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        if self._skipped or name in _SKIPPED:
            self._skipped += 1
        elif name == "body":
            self._in_body = True
        elif not self._in_body:
            self.styles.start(name, attributes)
        elif (act := _STARTS.get(name)) is not None:
            act(self, attributes)

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if self._skipped:
            self._skipped -= 1
        elif self._in_body and (act := _ENDS.get(name)) is not None:
            act(self)

    def characters(self, text: str) -> None:
        """Take text; line breaks in XML are spaces."""
        if self._paragraphs and not self._skipped:
            self._paragraphs[-1].parts.append(" ".join(text.split("\n")))

    # Paragraphs

    def _start_heading(self, attributes: Attributes) -> None:
        level = number(attribute(attributes, "outline-level"), 1, _MAX_LEVEL)
        self._open(attributes, max(level, 1))

    def _start_paragraph(self, attributes: Attributes) -> None:
        self._open(attributes, 0)

    def _open(self, attributes: Attributes, heading: int) -> None:
        style = attribute(attributes, "style-name") or ""
        is_free = not self._tables and self._note is None and not self._paragraphs
        if is_free and self.styles.breaks(style):
            self._flow.end_page()
        if self.styles.is_title(style):
            heading = 1
        self._paragraphs.append(_Paragraph(heading, style))

    def _end_paragraph(self) -> None:
        if not self._paragraphs:
            return
        paragraph = self._paragraphs.pop()
        text = encoding.clean("".join(paragraph.parts)).strip()
        if not text:
            return
        if self._note is not None:
            self._note.append(text)
        elif self._table is not None:
            self._table.cell.append(text)
        else:
            self._write(paragraph, text)

    def _write(self, paragraph: _Paragraph, text: str) -> None:
        if paragraph.heading:
            self._flow.add(BlockKind.HEADING, text, paragraph.heading)
        elif self._lists:
            level = len(self._lists)
            style, last = self._lists[-1]
            if self._item and self.styles.is_numbered(style, level):
                self._lists[-1] = style, last + 1
                text = f"{last + 1}. {text}"
            self._flow.add(BlockKind.LIST_ITEM, text, level)
        else:
            self._flow.add(BlockKind.PARAGRAPH, text)
        self._item = False

    def _tab(self, attributes: Attributes) -> None:
        self.characters("\t")

    def _spaces(self, attributes: Attributes) -> None:
        self.characters(" " * number(attribute(attributes, "c"), 1, _MAX_SPACES))

    def _line_break(self, attributes: Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].parts.append("\n")

    def _break(self, attributes: Attributes) -> None:
        """End the page that was drawn; the paragraph around it goes on on the next one."""
        if self._tables or self._note is not None or len(self._paragraphs) > 1:
            return
        if self._paragraphs:
            paragraph = self._paragraphs[0]
            text = encoding.clean("".join(paragraph.parts)).strip()
            self._write(paragraph, text)
            paragraph.parts = []
        self._flow.end_page()

    # Lists and notes

    def _start_list(self, attributes: Attributes) -> None:
        outer = self._lists[-1][0] if self._lists else ""
        self._lists.append((attribute(attributes, "style-name") or outer, 0))

    def _end_list(self) -> None:
        if self._lists:
            self._lists.pop()

    def _start_item(self, attributes: Attributes) -> None:
        self._item = True

    def _start_note(self, attributes: Attributes) -> None:
        self._note = []

    def _end_note(self) -> None:
        if self._note:
            self._flow.note(" ".join(self._note))
        self._note = None

    # Tables; one inside a cell is text of that cell

    def _start_table(self, attributes: Attributes) -> None:
        self._tables += 1
        if self._tables == 1:
            self._table = _Table()

    def _start_headers(self, attributes: Attributes) -> None:
        if self._table and self._tables == 1:
            self._table.in_headers = True

    def _end_headers(self) -> None:
        if self._table and self._tables == 1:
            self._table.in_headers = False
            self._table.headers = len(self._table.rows)

    def _start_row(self, attributes: Attributes) -> None:
        if self._table and self._tables == 1:
            self._table.rows.append([])

    def _start_cell(self, attributes: Attributes) -> None:
        if self._table and self._tables == 1 and self._table.rows:
            spans = ("number-columns-spanned", "number-rows-spanned", "number-columns-repeated")
            across, down, again = (
                max(1, number(attribute(attributes, each), 1, _MAX_SPAN)) for each in spans
            )
            self._table.cell, self._table.span = [], (across, down, again)

    def _end_cell(self) -> None:
        table = self._table
        if table is None or self._tables != 1 or not table.rows:
            return
        across, down, again = table.span
        cell = GridCell(composer.line(" ".join(table.cell)), across, down)
        table.repeated += again - 1
        if table.repeated > _MAX_REPEATED:
            again = 1
        table.rows[-1] += [cell] * again
        table.cell = []

    def _end_table(self) -> None:
        self._tables = max(0, self._tables - 1)
        if self._table is not None and not self._tables:
            self._flow.table([row for row in self._table.rows if row], self._table.headers)
            self._table = None


_STARTS = {
    "h": _Body._start_heading,
    "p": _Body._start_paragraph,
    "tab": _Body._tab,
    "s": _Body._spaces,
    "line-break": _Body._line_break,
    "soft-page-break": _Body._break,
    "list": _Body._start_list,
    "list-item": _Body._start_item,
    "note-body": _Body._start_note,
    "table": _Body._start_table,
    "table-header-rows": _Body._start_headers,
    "table-row": _Body._start_row,
    "table-cell": _Body._start_cell,
}
_ENDS = {
    "h": _Body._end_paragraph,
    "p": _Body._end_paragraph,
    "list": _Body._end_list,
    "note-body": _Body._end_note,
    "table-header-rows": _Body._end_headers,
    "table-cell": _Body._end_cell,
    "table": _Body._end_table,
}
