"""Word files (DOCX), read straight from their XML: the body, then notes, then headers and footers.

kreuzberg 4.10 reads them too, but loses every & and < (github.com/xberg-io/xberg/issues/1242).
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.parsers import expat

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse.markup import encoding
from quire.parse.office import archive, ooxml
from quire.parse.options import Options

VERSION = 1
_BODY = "word/document.xml"
_MARGINS = re.compile(r"word/(?:(footnotes|endnotes|comments)|(?:header|footer)\d*)\.xml")


def look(path: Path, media_type: str) -> Outline:
    """Check that a file is whole and safe to unpack."""
    archive.check(path)
    with archive.opened(path) as members:
        if _BODY not in members.namelist():
            raise Unreadable(f"{path.name}: is damaged: {_BODY} is missing.")
    return Outline(media_type, "whole", 1)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int = 1,
    last: int = 1,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the whole text as one page."""
    look(path, media_type)
    texts: dict[str, None] = {}  # once each: sections repeat headers
    with archive.opened(path) as members:
        for part in [_BODY, *_margins(members.namelist())]:
            try:
                with members.open(part) as file:
                    texts["\n\n".join(ooxml.paragraphs(file))] = None
            except expat.ExpatError as error:
                raise Unreadable(f"{path.name}: is damaged ({part}: {error}).") from error
    yield Page(1, encoding.clean("\n\n".join(filter(None, texts))))


def _margins(names: list[str]) -> list[str]:
    """Return the parts around the body, notes before headers and footers."""
    found = [match for name in names if (match := _MARGINS.fullmatch(name))]
    return [match[0] for match in sorted(found, key=lambda match: (not match[1], match[0]))]
