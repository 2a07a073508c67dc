"""Word files (DOCX), read from their XML: pages as Word last drew them, or else sections."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.blocks import BlockKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import composer
from quire.parse.office import archive, ooxml
from quire.parse.office.ooxml import Attributes, Handler, attribute
from quire.parse.office.word_body import Notes, WordBody
from quire.parse.office.word_styles import Numbering, Styles
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

_BODY = "word/document.xml"
_RUNNING = re.compile(r"word/(header|footer)\d{0,6}\.xml")
_RENDERED_BREAK = b"lastRenderedPageBreak"
_PIECE_BYTES = 1 << 20

_Reader = TypeVar("_Reader", bound=Handler)


class DocxParser(BuiltinParser):
    """DOCX files."""

    name = "office"
    version = 3

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Check that the file is complete and safe to unpack."""
        archive.check(path)
        with archive.open_archive(path) as members:
            if _BODY not in members.namelist():
                raise Unreadable(f"{path.name}: is damaged: {_BODY} is missing.")
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


def _pages(members: zipfile.ZipFile) -> Iterator[Page]:
    notes = Notes(
        *(
            _read(members, f"word/{part}.xml", _Notes()).texts
            for part in ("footnotes", "endnotes", "comments")
        )
    )
    body = WordBody(
        _read(members, "word/styles.xml", Styles()),
        _read(members, "word/numbering.xml", Numbering()),
        notes,
        has_rendered_breaks=_contains(members, _BODY, _RENDERED_BREAK),
    )
    with members.open(_BODY) as file:
        yield from body.pages(file)
    yield body.last_page(_running_lines(members))


def _read(members: zipfile.ZipFile, part: str, reader: _Reader) -> _Reader:
    if part in members.NameToInfo:
        with members.open(part) as file:
            ooxml.read(file, reader)
    return reader


def _contains(members: zipfile.ZipFile, part: str, wanted: bytes) -> bool:
    tail = b""
    with members.open(part) as file:
        while piece := file.read(_PIECE_BYTES):
            if wanted in tail + piece:
                return True
            tail = piece[-len(wanted) :]
    return False


def _running_lines(members: zipfile.ZipFile) -> dict[str, BlockKind]:
    """Return the distinct texts of headers and footers: sections repeat them."""
    found: dict[str, BlockKind] = {}
    for name in sorted(filter(_RUNNING.fullmatch, members.namelist())):
        kind = BlockKind.HEADER if name.startswith("word/header") else BlockKind.FOOTER
        for text in _read(members, name, _Notes()).texts.values():
            found.setdefault(text, kind)
    return found


class _Notes:
    """Reads the texts of a part by the id of the note; a header is one note."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._id = ""
        self._parts: list[str] = []
        self._skipped = 0
        self._depth = 0
        self._in_text = False

    def start(self, name: str, attributes: Attributes) -> None:
        """Take the start of an element."""
        self._depth += 1
        if self._skipped or name == ooxml.DUPLICATE:
            self._skipped += 1
        elif name in _NOTE_ELEMENTS:
            self._id = attribute(attributes, "id") or name
        elif name == "t":
            self._in_text = True
        elif name == "p":
            self._parts.append("\n")
        elif name in ooxml.CHARACTERS:
            self._parts.append(ooxml.CHARACTERS[name])

    def end(self, name: str) -> None:
        """Take the end of an element."""
        self._depth -= 1
        if self._skipped:
            self._skipped -= 1
        elif name == "t":
            self._in_text = False
        elif name == "tc":
            self._parts.append("\t")
        elif name in _NOTE_ELEMENTS or not self._depth:
            if text := composer.line("".join(self._parts)):
                self.texts[self._id] = text
            self._parts = []

    def characters(self, text: str) -> None:
        """Take text."""
        if self._in_text and not self._skipped:
            self._parts.append(text)


_NOTE_ELEMENTS = frozenset(("footnote", "endnote", "comment"))
