"""The text in the XML of Word files and slides: paragraphs, cells of a row, rows of a table.

Both formats name these alike but for their namespace. The parts are read as a stream, since the
body of a long document has many megabytes.
"""

from typing import IO
from xml.parsers import expat

from quire.errors import Unreadable

_SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
#: Repeats for old programs what its neighbour says.
_REPEATED = "Fallback"
#: The fields that every slide has, the same or counted on.
_FIELDS = ("sldNum", "dt", "ftr")


def paragraphs(file: IO[bytes]) -> list[str]:
    """Return the paragraphs and tables of a part, in their order."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = _refuse
    parser.ParseFile(file)
    return reader.found


def _refuse(*declared: object) -> None:
    raise Unreadable("its XML declares entities, which Office files never do.")


class _Reader:
    """Collects text from the inside out: a cell may hold paragraphs, a paragraph a text box."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._open = [self.found]  # what takes finished text: the part, a table, a row, a cell
        self._lines: list[list[str]] = [[]]
        self._in_text = False
        self._skipped = 0  # how many elements deep in what is not read
        self._is_field = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        kind = name.rpartition(" ")[2]
        if self._skipped or kind == _REPEATED:
            self._skipped += 1
        elif kind in ("tbl", "tr", "tc"):
            self._open.append([])
        elif kind == "p":
            self._lines.append([])
        elif kind == "t":
            self._in_text = True
        elif kind in _SIGNS:
            self._lines[-1].append(_SIGNS[kind])
        elif kind == "sp":
            self._is_field = False
        elif kind == "ph":
            self._is_field = attributes.get("type") in _FIELDS

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
            self._open[-1].append(" ".join(cell.split()))  # an empty cell keeps its place
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
