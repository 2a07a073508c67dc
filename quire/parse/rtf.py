"""Rich text (RTF): paragraphs, headings by style, lists with their numbers, tables, notes, pages.

The file is a row of control words, groups and text, read by one regular expression in linear time.
What a group is for is told by its first word; groups for programs alone are skipped.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from quire.errors import Unreadable
from quire.model.blocks import MAX_TABLE_COLUMNS, BlockKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import composer, encoding
from quire.parse.composer import GridCell
from quire.parse.flow import Flow
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_BYTES = 200 << 20
_MAX_DEPTH = 1_000
_MAX_LEVEL = 9
_MAX_CELLS = 100_000  # of a table; the rows below are another one
_TOKEN = re.compile(
    r"\\(?:'(?P<byte>[0-9a-fA-F]{2})|(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?"
    r"|(?P<sign>[^a-zA-Z']))|(?P<open>\{)|(?P<close>\})|(?P<text>[^\\{}\r\n]++)|[\r\n]++|.",
    re.DOTALL,
)
_SIGNS = {"~": "\u00a0", "_": "-", "-": "", "\\": "\\", "{": "{", "}": "}", "\n": "\n", "\r": "\n"}
_CHARACTERS = {
    "tab": "\t", "line": "\n", "emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018",
    "rquote": "\u2019", "ldblquote": "\u201c", "rdblquote": "\u201d", "bullet": "\u2022",
    "emspace": " ", "enspace": " ", "qmspace": " ",
}  # fmt: skip
#: Groups whose text is not of the document.
_SKIPPED = frozenset((
    "fonttbl", "colortbl", "info", "pict", "object", "header", "headerl", "headerr", "headerf",
    "footer", "footerl", "footerr", "footerf", "listtable", "listoverridetable", "rsidtbl",
    "generator", "themedata", "colorschememapping", "datastore", "latentstyles", "xmlnstbl",
    "fldinst", "revtbl", "filetbl", "bkmkstart", "bkmkend", "nonshppict", "annotation",
    "atnid", "atnauthor", "xe", "tc", "pgptbl", "sp",
))  # fmt: skip
#: Groups that old programs skip because of the sign \*, but whose text is shown.
_SHOWN = frozenset(("shpinst", "shptxt", "footnote", "listtext", "pntext", "shppict"))
_CODE_PAGES = {"ansi": "cp1252", "mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
_HEADING = re.compile(r"(?:heading|überschrift|titre|título|titolo) ([1-9])", re.IGNORECASE)


class RtfParser(BuiltinParser):
    """RTF files."""

    name = "rtf"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Raise Unreadable if the file is too large to be read at once."""
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise Unreadable(
                f"{path.name}: has {size >> 20:,} MiB (at most {MAX_BYTES >> 20} MiB)."
            )
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield all pages: their number is known only at the end."""
        self.inspect(request.path, request.media_type, request.options)
        try:
            yield from pages(request.path.read_bytes())
        except Unreadable as error:
            raise Unreadable(f"{request.path.name}: {error}") from error


def pages(content: bytes) -> Iterator[Page]:
    """Yield the pages of a rich text."""
    reader = _Reader()
    text = content.decode("latin-1")
    at = 0
    while token := _TOKEN.match(text, at):
        at = reader.take(token)
        yield from reader.flow.finished
        reader.flow.finished.clear()
    reader.end_paragraph()
    reader.end_table()
    yield from reader.flow.finished
    yield reader.flow.last()


class _Group:
    """What holds inside a pair of braces."""

    __slots__ = ("destination", "skipped_per_unicode")

    def __init__(self, destination: str = "", skipped_per_unicode: int = 1) -> None:
        self.destination = destination  # skip, style, note, mark or nothing
        self.skipped_per_unicode = skipped_per_unicode


class _Reader:
    def __init__(self) -> None:
        self.flow = Flow(is_drawn=False)
        self._groups = [_Group()]
        self._deeper = 0
        self._code_page = "cp1252"
        self._bytes = bytearray()  # characters that wait to be decoded together
        self._parts: list[str] = []
        self._notes: list[str] = []
        self._mark: list[str] = []  # the number or bullet of a list item
        self._to_skip = 0  # characters that stand for one in Unicode
        self._levels: dict[int, int] = {}  # style → level of heading
        self._style = 0
        self._style_name: list[str] = []
        self._outline: int | None = None
        self._list_level = 0
        self._in_table = False
        self._rows: list[list[GridCell]] = []
        self._cells: list[GridCell] = []
        self._cell: list[str] = []
        self._count = 0  # cells of the rows
        self._is_ignorable = False

    def take(self, token: re.Match[str]) -> int:
        """Take a token; return where to continue."""
        kind = token.lastgroup
        if kind == "byte":
            self._add_byte(int(token["byte"], 16))
            return token.end()
        if kind in ("word", "number"):
            value = int(token["number"]) if token["number"] else None
            return self._word(token["word"], value, token)
        if kind is None:  # a line break in the file
            return token.end()
        self._flush()
        if kind == "open":
            self._open()
        elif kind == "close":
            self._close()
        elif kind == "text":
            self._add_text(token["text"])
        elif kind == "sign":
            self._sign(token["sign"])
        return token.end()

    # Groups

    def _open(self) -> None:
        if len(self._groups) == _MAX_DEPTH:
            self._deeper += 1
            return
        outer = self._groups[-1]
        self._groups.append(_Group(outer.destination, outer.skipped_per_unicode))
        self._to_skip = 0

    def _close(self) -> None:
        if self._deeper:
            self._deeper -= 1
            return
        if len(self._groups) == 1:
            return
        inner = self._groups.pop().destination
        if inner == "style":
            self._end_style()
        elif inner == "note" and self._groups[-1].destination != "note":
            if text := composer.line(_joined(self._notes)):
                self.flow.note(text)
            self._notes = []
        self._is_ignorable = False
        self._to_skip = 0

    def _sign(self, sign: str) -> None:
        if sign == "*":
            self._is_ignorable = True
        elif sign in "\r\n":
            self.end_paragraph()
        else:
            self._add_text(_SIGNS.get(sign, ""))

    # Text

    def _add_byte(self, value: int) -> None:
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._bytes.append(value)

    def _flush(self) -> None:
        if self._bytes:
            text = self._bytes.decode(self._code_page, "replace")
            self._bytes = bytearray()
            self._put(text)

    def _add_text(self, text: str) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(text))
            self._to_skip -= skipped
            text = text[skipped:]
        if any(char > "\x7f" for char in text):  # bytes that are not escaped
            text = text.encode("latin-1", "replace").decode(self._code_page, "replace")
        self._put(text)

    def _put(self, text: str) -> None:
        destination = self._groups[-1].destination
        if destination == "":
            self._parts.append(text)
        elif destination == "note":
            self._notes.append(text)
        elif destination == "mark":
            self._mark.append(text)
        elif destination == "style":
            self._style_name.append(text)

    # Words

    def _word(self, word: str, value: int | None, token: re.Match[str]) -> int:
        if word == "u" and value is not None:
            self._unicode(value)
            return token.end()
        self._flush()
        if word == "bin":
            return token.end() + min(max(value or 0, 0), MAX_BYTES)
        is_ignorable, self._is_ignorable = self._is_ignorable, False
        group = self._groups[-1]
        if word in _SKIPPED or (is_ignorable and word not in _SHOWN):
            group.destination = "skip"
        elif group.destination == "skip":
            pass
        elif word in _CHARACTERS:
            self._put(_CHARACTERS[word])
        elif (act := _WORDS.get(word)) is not None:
            act(self, value)
        elif word in _CODE_PAGES:
            self._code_page = _CODE_PAGES[word]
        return token.end()

    def _unicode(self, value: int) -> None:
        self._flush()
        self._put(chr(value % 0x10000))  # a half of a pair, maybe
        self._to_skip = self._groups[-1].skipped_per_unicode

    def _set_code_page(self, value: int | None) -> None:
        name = f"cp{value}" if value != 65001 else "utf-8"
        try:
            "".encode(name)
        except LookupError:
            return
        self._code_page = name

    def _set_unicode_skip(self, value: int | None) -> None:
        self._groups[-1].skipped_per_unicode = min(max(value if value is not None else 1, 0), 100)

    def _start_styles(self, value: int | None) -> None:
        self._groups[-1].destination = "style"

    def _start_note(self, value: int | None) -> None:
        self._groups[-1].destination = "note"

    def _start_mark(self, value: int | None) -> None:
        self._groups[-1].destination = "mark"
        self._mark = []

    def _set_style(self, value: int | None) -> None:
        self._style = value or 0

    def _end_style(self) -> None:
        name = "".join(self._style_name).strip()
        self._style_name = []
        if found := _HEADING.match(name):
            self._levels[self._style] = int(found[1])
        elif self._outline is not None and self._outline < _MAX_LEVEL:
            self._levels[self._style] = self._outline + 1
        self._style, self._outline = 0, None

    def _set_outline(self, value: int | None) -> None:
        self._outline = min(max(value or 0, 0), _MAX_LEVEL)

    def _set_list_level(self, value: int | None) -> None:
        self._list_level = min(max(value or 0, 0), _MAX_LEVEL - 1)

    def _reset(self, value: int | None) -> None:
        """Forget what holds for a paragraph (\\pard)."""
        if self._groups[-1].destination == "":
            self._style, self._outline, self._list_level = 0, None, 0
            self._in_table = False

    def _set_in_table(self, value: int | None) -> None:
        self._in_table = True

    def _end_paragraph_word(self, value: int | None) -> None:
        if self._groups[-1].destination == "note":
            self._notes.append(" ")
        elif self._groups[-1].destination == "":
            self.end_paragraph()

    def end_paragraph(self) -> None:
        """Write the paragraph that has been collected."""
        self._flush()
        text = encoding.clean(_joined(self._parts)).strip()
        mark = composer.line(_joined(self._mark))
        self._parts, self._mark = [], []
        if self._in_table:
            self._cell.append(f"{mark} {text}".strip())
            return
        if not text:
            return
        self.end_table()
        level = self._levels.get(self._style)
        if self._outline is not None:
            level = self._outline + 1 if self._outline < _MAX_LEVEL else None
        if level is not None:
            self.flow.add(BlockKind.HEADING, f"{mark} {text}".strip(), level)
        elif mark:
            is_number = any(map(str.isalnum, mark))
            shown = f"{mark} {text}" if is_number else text
            self.flow.add(BlockKind.LIST_ITEM, shown, self._list_level + 1)
        else:
            self.flow.add(BlockKind.PARAGRAPH, text)

    def _page(self, value: int | None) -> None:
        if self._groups[-1].destination == "":
            self.end_paragraph()
            self.end_table()
            self.flow.end_page()

    # Tables

    def _end_cell(self, value: int | None) -> None:
        self._in_table = True
        self.end_paragraph()
        self._cells.append(GridCell(composer.line(" ".join(self._cell))))
        self._cell = []
        if len(self._cells) > MAX_TABLE_COLUMNS:
            self._end_row(None)

    def _end_row(self, value: int | None) -> None:
        if self._cells:
            self._rows.append(self._cells)
            self._count += len(self._cells)
        self._cells = []
        self._in_table = False
        if self._count > _MAX_CELLS:
            self.end_table()

    def end_table(self) -> None:
        """Write the table that has been collected."""
        if self._cells or any(self._cell):
            self._cells += [GridCell(composer.line(" ".join(self._cell)))] if self._cell else []
            self._rows.append(self._cells)
        if self._rows:
            self.flow.table(self._rows)
        self._rows, self._cells, self._cell, self._count = [], [], [], 0


def _joined(parts: list[str]) -> str:
    """Join parts; halves of a character in UTF-16 follow each other."""
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_WORDS: dict[str, Callable[[_Reader, int | None], None]] = {
    "ansicpg": _Reader._set_code_page,
    "uc": _Reader._set_unicode_skip,
    "stylesheet": _Reader._start_styles,
    "footnote": _Reader._start_note,
    "listtext": _Reader._start_mark,
    "pntext": _Reader._start_mark,
    "s": _Reader._set_style,
    "outlinelevel": _Reader._set_outline,
    "ilvl": _Reader._set_list_level,
    "pard": _Reader._reset,
    "intbl": _Reader._set_in_table,
    "par": _Reader._end_paragraph_word,
    "sect": _Reader._page,
    "page": _Reader._page,
    "cell": _Reader._end_cell,
    "nestcell": _Reader._end_cell,
    "row": _Reader._end_row,
}
