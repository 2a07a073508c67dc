"""Extracts text from Office Open XML: paragraphs and tables of Word files and slides.

Both formats use the same element names in different namespaces. Parts are streamed, because the
body of a long document has many megabytes.
"""

import re
from collections.abc import Callable, Mapping
from typing import IO
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.blocks import BlockKind
from quire.parse.text_blocks import Piece

_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
#: Repeats its sibling's content for old programs.
_DUPLICATE = "Fallback"
#: Placeholders repeated on every slide: number, date, footer.
_FOOTER_FIELDS = ("sldNum", "dt", "ftr")
_TITLES = ("title", "ctrTitle")
_OUTLINE_LEVELS = tuple("012345678")
_PLAIN = (BlockKind.PARAGRAPH, 0)

#: Elements inside each other, and attributes of one element. Office writes fewer than a hundred.
MAX_DEPTH = 1_000
MAX_ATTRIBUTES = 1_000

Attributes = dict[str, str]

#: The names of heading styles are English in every language; their ids are not.
_HEADING = re.compile(r"(?:heading ([1-9])|title)", re.IGNORECASE)


def paragraphs(file: IO[bytes]) -> list[str]:
    """Return the paragraphs and tables of a part, in document order."""
    return [piece.text for piece in pieces(file)]


def pieces(file: IO[bytes], levels: Mapping[str, int] | None = None) -> list[Piece]:
    """Return the paragraphs and tables of a part with what they are.

    `levels` are those of heading styles, by the id of the style.
    """
    reader = _Reader(levels or {})
    _parse(file, reader.start, reader.end, reader.characters)
    return reader.found


def heading_levels(file: IO[bytes]) -> dict[str, int]:
    """Return the levels of heading styles by their ids, from the styles of a Word file."""
    found: dict[str, int] = {}
    current = ""

    def start(name: str, attributes: Attributes) -> None:
        nonlocal current
        kind = name.rpartition(" ")[2]
        if kind == "style":
            current = _attribute(attributes, "styleId")
        elif kind == "name" and current:
            match = _HEADING.fullmatch(_attribute(attributes, "val"))
            if match is not None:
                found[current] = int(match[1] or 1)

    _parse(file, start)
    return found


def _attribute(attributes: Attributes, name: str) -> str:
    for key, value in attributes.items():
        if key.rpartition(" ")[2] == name:
            return value
    return ""


def elements(file: IO[bytes], kind: str) -> list[Attributes]:
    """Return the attributes of each element of one kind; a namespace is kept as `URL NAME`."""
    found: list[Attributes] = []

    def start(name: str, attributes: Attributes) -> None:
        if name.rpartition(" ")[2] == kind:
            found.append(attributes)

    _parse(file, start)
    return found


def _parse(
    file: IO[bytes],
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] = lambda _: None,
    characters: Callable[[str], None] | None = None,
) -> None:
    depth = 0

    def enter(name: str, attributes: Attributes) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise Unreadable(f"its XML is nested deeper than {MAX_DEPTH:,} elements.")
        if len(attributes) > MAX_ATTRIBUTES:
            raise Unreadable(
                f"an element of its XML has {len(attributes):,} attributes "
                f"(at most {MAX_ATTRIBUTES:,})."
            )
        start(name, attributes)

    def leave(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name)

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = enter
    parser.EndElementHandler = leave
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = _refuse
    parser.ParseFile(file)


def _refuse(*declared: object) -> None:
    raise Unreadable("its XML declares entities, which Office files never do.")


class _Reader:
    """Collects text from the inside out: cells contain paragraphs, paragraphs text boxes."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        self.found: list[Piece] = []
        self._levels = levels
        self._open: list[list[str]] = []  # texts of the open tables, rows and cells
        self._lines: list[list[str]] = [[]]
        self._kinds: list[tuple[BlockKind, int]] = [_PLAIN]  # of the open paragraphs
        self._is_title = False
        self._in_text = False
        self._skipped = 0  # depth inside a skipped element
        self._is_field = False

    def start(self, name: str, attributes: Attributes) -> None:
        kind = name.rpartition(" ")[2]
        if self._skipped or kind == _DUPLICATE:
            self._skipped += 1
        elif kind in ("tbl", "tr", "tc"):
            self._open.append([])
        elif kind == "p":
            self._lines.append([])
            self._kinds.append((BlockKind.HEADING, 1) if self._is_title else _PLAIN)
        elif kind in ("pStyle", "numPr", "outlineLvl"):
            self._describe(kind, attributes)
        elif kind == "t":
            self._in_text = True
        elif kind in _CHARACTERS:
            self._lines[-1].append(_CHARACTERS[kind])
        elif kind in ("sp", "ph"):
            # A shape is what its placeholder says.
            self._is_field = kind == "ph" and attributes.get("type") in _FOOTER_FIELDS
            self._is_title = kind == "ph" and attributes.get("type") in _TITLES

    def end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        kind = name.rpartition(" ")[2]
        if kind == "t":
            self._in_text = False
        elif kind == "p":
            self._keep("".join(self._lines.pop()).strip(), *self._kinds.pop())
        elif kind == "tc":
            cell = " ".join(self._open.pop())
            self._open[-1].append(" ".join(cell.split()))  # an empty cell keeps its column
        elif kind == "tr":
            self._keep("\t".join(self._open.pop()).rstrip("\t"))
        elif kind == "tbl":
            self._keep("\n".join(self._open.pop()), BlockKind.TABLE)

    def characters(self, text: str) -> None:
        if self._in_text and not self._skipped and not self._is_field:
            self._lines[-1].append(text)

    def _describe(self, kind: str, attributes: Attributes) -> None:
        """Note what the open paragraph is, by its style, numbering or level."""
        value = _attribute(attributes, "val")
        if kind == "pStyle" and value in self._levels:
            self._kinds[-1] = BlockKind.HEADING, self._levels[value]
        elif kind == "outlineLvl" and value in _OUTLINE_LEVELS:
            self._kinds[-1] = BlockKind.HEADING, int(value) + 1
        elif kind == "numPr" and self._kinds[-1] == _PLAIN:
            self._kinds[-1] = BlockKind.LIST_ITEM, 1

    def _keep(self, text: str, kind: BlockKind = BlockKind.PARAGRAPH, level: int = 0) -> None:
        if text and self._open:
            self._open[-1].append(text)
        elif text:
            self.found.append(Piece(text, kind, level))
