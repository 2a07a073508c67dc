"""Extracts text from Office Open XML: paragraphs and tables of Word files and slides.

Both formats use the same element names in different namespaces. Parts are streamed, because the
body of a long document has many megabytes.
"""

from collections.abc import Callable
from typing import IO
from xml.parsers import expat

from quire.errors import Unreadable

_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
#: Repeats its sibling's content for old programs.
_DUPLICATE = "Fallback"
#: Placeholders repeated on every slide: number, date, footer.
_FOOTER_FIELDS = ("sldNum", "dt", "ftr")

#: Elements inside each other, and attributes of one element. Office writes fewer than a hundred.
MAX_DEPTH = 1_000
MAX_ATTRIBUTES = 1_000

Attributes = dict[str, str]


def paragraphs(file: IO[bytes]) -> list[str]:
    """Return the paragraphs and tables of a part, in document order."""
    reader = _Reader()
    _parse(file, reader.start, reader.end, reader.characters)
    return reader.found


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

    def __init__(self) -> None:
        self.found: list[str] = []
        self._open = [self.found]  # where finished text goes: the part, a table, row or cell
        self._lines: list[list[str]] = [[]]
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
        elif kind == "t":
            self._in_text = True
        elif kind in _CHARACTERS:
            self._lines[-1].append(_CHARACTERS[kind])
        elif kind == "sp":
            self._is_field = False
        elif kind == "ph":
            self._is_field = attributes.get("type") in _FOOTER_FIELDS

    def end(self, name: str) -> None:
        if self._skipped:
            self._skipped -= 1
            return
        kind = name.rpartition(" ")[2]
        if kind == "t":
            self._in_text = False
        elif kind == "p":
            self._keep("".join(self._lines.pop()).strip())
        elif kind == "tc":
            cell = " ".join(self._open.pop())
            self._open[-1].append(" ".join(cell.split()))  # an empty cell keeps its column
        elif kind == "tr":
            self._keep("\t".join(self._open.pop()).rstrip("\t"))
        elif kind == "tbl":
            self._keep("\n".join(self._open.pop()))

    def characters(self, text: str) -> None:
        if self._in_text and not self._skipped and not self._is_field:
            self._lines[-1].append(text)

    def _keep(self, text: str) -> None:
        if text:
            self._open[-1].append(text)
