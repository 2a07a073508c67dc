"""Streams the XML of Office files: elements and text, within limits.

Word files, slides and workbooks use the same names for many elements, in different namespaces, so
names are compared without them. The body of a long document has many megabytes: it is read in
pieces, and never as a tree.
"""

from collections.abc import Callable, Iterator
from typing import IO, Protocol
from xml.parsers import expat

from quire.errors import Unreadable

#: Elements that stand for characters in the text of a run.
CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
#: Repeats its sibling's content for old programs.
DUPLICATE = "Fallback"
_PIECE_BYTES = 1 << 16

#: Elements inside each other, and attributes of one element. Office writes fewer than a hundred.
MAX_DEPTH = 1_000
MAX_ATTRIBUTES = 1_000

Attributes = dict[str, str]


class Handler(Protocol):
    """Takes the elements of a part."""

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element, by its name without namespace."""

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def characters(self, text: str) -> None:
        """Take text."""


def elements(file: IO[bytes], kind: str) -> list[Attributes]:
    """Return the attributes of each element of one kind; a namespace is kept as `URL NAME`."""
    found: list[Attributes] = []

    def start(name: str, attributes: Attributes) -> None:
        if name.rpartition(" ")[2] == kind:
            found.append(attributes)

    for _ in _parse(file, start):
        pass
    return found


def read(file: IO[bytes], handler: Handler) -> None:
    """Pass all elements of a part to a handler."""
    for _ in stream(file, handler):
        pass


def stream(file: IO[bytes], handler: Handler) -> Iterator[None]:
    """Pass the elements of a part to a handler; yield after each piece of the part."""

    def start(name: str, attributes: Attributes) -> None:
        handler.start(name.rpartition(" ")[2], attributes)

    def end(name: str) -> None:
        handler.end(name.rpartition(" ")[2])

    yield from _parse(file, start, end, handler.characters)


def attribute(attributes: Attributes, name: str) -> str | None:
    """Return an attribute by its name without namespace."""
    if name in attributes:
        return attributes[name]
    suffix = " " + name
    return next((value for key, value in attributes.items() if key.endswith(suffix)), None)


def is_on(attributes: Attributes) -> bool:
    """Return the value of a switch: on, unless it says otherwise."""
    return attribute(attributes, "val") not in ("0", "false", "off", "none")


def number(value: str | None, default: int, most: int = 1 << 30) -> int:
    """Return an attribute as a number from 0 to `most`."""
    if value is None or not value.isascii() or not value.isdigit():
        return default
    return most if len(value) > 10 else min(int(value), most)


def _parse(
    file: IO[bytes],
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] = lambda _: None,
    characters: Callable[[str], None] | None = None,
) -> Iterator[None]:
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
    while piece := file.read(_PIECE_BYTES):
        parser.Parse(piece, False)
        yield
    parser.Parse(b"", True)


def _refuse(*declared: object) -> None:
    raise Unreadable("its XML declares entities, which Office files never do.")
