"""Word files (DOCX), read from their XML: the body, then notes, then headers and footers."""

import itertools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding, text_blocks
from quire.parse.office import archive, ooxml
from quire.parse.parser import BuiltinParser, ReadRequest
from quire.parse.text_blocks import Piece

_BODY = "word/document.xml"
_STYLES = "word/styles.xml"
_EXTRA_PARTS = re.compile(r"word/(?:(footnotes|endnotes|comments)|(?:header|footer)\d*)\.xml")


class DocxParser(BuiltinParser):
    """DOCX files; the document is one page."""

    name = "office"
    version = 2  # pages have blocks

    def inspect(self, path: Path, media_type: str) -> Outline:
        """Check that the file is complete and safe to unpack."""
        archive.check(path)
        with archive.open_archive(path) as members:
            if _BODY not in members.namelist():
                raise Unreadable(f"{path.name}: is damaged: {_BODY} is missing.")
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the whole text as one page."""
        path = request.path
        self.inspect(path, request.media_type)
        texts: dict[str, list[Piece]] = {}  # distinct, in order: sections repeat their headers
        with archive.open_archive(path) as members:
            found = filter(None, map(_EXTRA_PARTS.fullmatch, members.namelist()))
            # Notes first, then headers and footers.
            extra = sorted((not match[1], match[0]) for match in found)
            for part in [_BODY, *(name for _, name in extra)]:
                try:
                    found_in_part = self._pieces(members, part)
                    texts.setdefault("\n\n".join(p.text for p in found_in_part), found_in_part)
                except Unreadable as error:
                    raise Unreadable(f"{path.name}: {error}") from error
                except expat.ExpatError as error:
                    raise Unreadable(f"{path.name}: is damaged ({part}: {error}).") from error
        text = encoding.clean("\n\n".join(filter(None, texts)))
        pieces = itertools.chain.from_iterable(texts.values())
        yield Page(1, text, blocks=text_blocks.packed(pieces, text))

    def _pieces(self, members: zipfile.ZipFile, part: str) -> list[Piece]:
        levels: dict[str, int] = {}
        if part == _BODY and _STYLES in members.NameToInfo:
            with members.open(_STYLES) as file:
                levels = ooxml.heading_levels(file)
        with members.open(part) as file:
            return ooxml.pieces(file, levels)
