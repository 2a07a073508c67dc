"""One part of a slide as blocks: its title, lists, tables and other text."""

from quire.model.blocks import BlockKind
from quire.parse import composer, encoding, table_headers
from quire.parse.composer import LINE_BREAK, PARAGRAPH_BREAK, Composer, GridCell
from quire.parse.office import ooxml
from quire.parse.office.ooxml import Attributes, attribute, number

#: Placeholders repeated on every slide: number, date, footer.
_FOOTER_FIELDS = ("sldNum", "dt", "ftr")
_TITLES = ("title", "ctrTitle")
#: Placeholders whose paragraphs have bullets unless they say otherwise.
_BULLETED = ("body", "obj", "")
_MAX_SPAN = 1_000


class _Paragraph:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.level = 0
        self.has_bullet: bool | None = None


class SlidePart:
    """Takes the elements of a slide, of its diagrams or of its notes, and composes them."""

    def __init__(self, page: Composer, *, is_slide: bool, heading: str = "") -> None:
        self._page = page
        self._is_slide = is_slide
        self._heading = heading  # written above the first piece, if there is one
        self._is_first = True  # the next piece is the first of its part
        self._paragraphs: list[_Paragraph] = []
        self._placeholder: str | None = None  # its type, inside a placeholder
        self._rows: list[list[GridCell]] = []
        self._cell: list[str] | None = None
        self._span = (1, 1)  # columns, rows
        self._is_merged = False
        self._tables = 0
        self._has_header = False
        self._in_text = False
        self._skipped = 0

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        if self._skipped or name == ooxml.DUPLICATE:
            self._skipped += 1
        elif (act := _STARTS.get(name)) is not None:
            act(self, attributes)
        elif self._paragraphs and name in ooxml.CHARACTERS:
            self._paragraphs[-1].parts.append(ooxml.CHARACTERS[name])

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if self._skipped:
            self._skipped -= 1
        elif (act := _ENDS.get(name)) is not None:
            act(self)

    def characters(self, text: str) -> None:
        """Take text."""
        is_field = self._placeholder in _FOOTER_FIELDS
        if self._in_text and not self._skipped and not is_field and self._paragraphs:
            self._paragraphs[-1].parts.append(text)

    def _start_shape(self, attributes: Attributes) -> None:
        self._placeholder = None

    def _set_placeholder(self, attributes: Attributes) -> None:
        self._placeholder = attributes.get("type", "")

    def _start_paragraph(self, attributes: Attributes) -> None:
        self._paragraphs.append(_Paragraph())

    def _set_level(self, attributes: Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].level = number(attribute(attributes, "lvl"), 0, 8)

    def _set_bullet(self, attributes: Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].has_bullet = True

    def _set_no_bullet(self, attributes: Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].has_bullet = False

    def _start_text(self, attributes: Attributes) -> None:
        self._in_text = True

    def _end_text(self) -> None:
        self._in_text = False

    def _end_paragraph(self) -> None:
        if not self._paragraphs:
            return
        paragraph = self._paragraphs.pop()
        text = encoding.clean("".join(paragraph.parts)).strip()
        if not text:
            return
        if self._cell is not None:
            self._cell.append(text)
            return
        kind, level = self._kind(paragraph)
        self._page.add(kind, text, level, separator=self._separator())

    def _kind(self, paragraph: _Paragraph) -> tuple[BlockKind, int]:
        if self._is_slide and self._placeholder in _TITLES:
            return BlockKind.HEADING, 1
        has_bullet = paragraph.has_bullet
        if has_bullet is None:
            has_bullet = self._is_slide and self._placeholder in _BULLETED
        return (BlockKind.LIST_ITEM, paragraph.level + 1) if has_bullet else (
            BlockKind.PARAGRAPH, 0
        )  # fmt: skip

    def _separator(self) -> str:
        if not self._is_first:
            return LINE_BREAK
        self._is_first = False
        self._page.add(BlockKind.HEADING, self._heading, level=2)
        return LINE_BREAK if self._heading else PARAGRAPH_BREAK

    def _start_table(self, attributes: Attributes) -> None:
        self._tables += 1
        if self._tables == 1:
            self._rows, self._has_header = [], False

    def _set_table_look(self, attributes: Attributes) -> None:
        if self._tables == 1:
            self._has_header = attribute(attributes, "firstRow") in ("1", "true")

    def _start_row(self, attributes: Attributes) -> None:
        if self._tables == 1:
            self._rows.append([])

    def _start_cell(self, attributes: Attributes) -> None:
        if self._tables == 1 and self._rows:
            self._cell = []
            spans = (attribute(attributes, name) for name in ("gridSpan", "rowSpan"))
            across, down = (max(1, number(value, 1, _MAX_SPAN)) for value in spans)
            self._span = across, down
            merged = (attribute(attributes, name) for name in ("hMerge", "vMerge"))
            self._is_merged = any(value in ("1", "true") for value in merged)

    def _end_cell(self) -> None:
        if self._tables != 1 or self._cell is None:
            return
        # A cell that others cover is there all the same, and usually empty.
        text = composer.line(" ".join(self._cell))
        if not self._is_merged:
            self._rows[-1].append(GridCell(text, *self._span))
        elif text and self._rows[-1]:
            last = self._rows[-1][-1]
            self._rows[-1][-1] = last._replace(text=f"{last.text} {text}".strip())
        self._cell = None

    def _end_table(self) -> None:
        self._tables = max(0, self._tables - 1)
        if not self._tables:
            found = table_headers.count([[cell.text for cell in row] for row in self._rows])
            headers = max(found, int(self._has_header))
            self._page.table(self._rows, headers, separator=self._separator())
            self._rows = []


_STARTS = {
    "sp": SlidePart._start_shape,
    "ph": SlidePart._set_placeholder,
    "p": SlidePart._start_paragraph,
    "pPr": SlidePart._set_level,
    "buChar": SlidePart._set_bullet,
    "buAutoNum": SlidePart._set_bullet,
    "buBlip": SlidePart._set_bullet,
    "buNone": SlidePart._set_no_bullet,
    "t": SlidePart._start_text,
    "tbl": SlidePart._start_table,
    "tblPr": SlidePart._set_table_look,
    "tr": SlidePart._start_row,
    "tc": SlidePart._start_cell,
}
_ENDS = {
    "p": SlidePart._end_paragraph,
    "t": SlidePart._end_text,
    "tc": SlidePart._end_cell,
    "tbl": SlidePart._end_table,
}
