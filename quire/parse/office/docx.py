"""Word files (DOCX), read from their XML: the body, then notes, then headers and footers."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding
from quire.parse.office import archive, ooxml
from quire.parse.parser import BuiltinParser, ReadRequest

_BODY = "word/document.xml"
_EXTRA_PARTS = re.compile(r"word/(?:(footnotes|endnotes|comments)|(?:header|footer)\d*)\.xml")


class DocxParser(BuiltinParser):
    """DOCX files; the document is one page."""

    name = "office"

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
        texts: dict[str, None] = {}  # distinct, in order: sections repeat their headers
        with archive.open_archive(path) as members:
            found = filter(None, map(_EXTRA_PARTS.fullmatch, members.namelist()))
            # Notes first, then headers and footers.
            extra = sorted((not match[1], match[0]) for match in found)
            for part in [_BODY, *(name for _, name in extra)]:
                try:
                    with members.open(part) as file:
                        texts["\n\n".join(ooxml.paragraphs(file))] = None
                except Unreadable as error:
                    raise Unreadable(f"{path.name}: {error}") from error
                except expat.ExpatError as error:
                    raise Unreadable(f"{path.name}: is damaged ({part}: {error}).") from error
        yield Page(1, encoding.clean("\n\n".join(filter(None, texts))))
