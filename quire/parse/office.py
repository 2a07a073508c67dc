"""Word files by kreuzberg, one call a file: paragraphs and tables in their order."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import archive, encoding, panics
from quire.parse.options import Options

VERSION = 1
_BODY = "word/document.xml"


def look(path: Path, media_type: str) -> Outline:
    """Check that a file is whole and safe to unpack."""
    archive.check(path)
    with archive.opened(path) as members:
        if _BODY not in members.namelist():
            raise Unreadable(f"{path.name}: is damaged: {_BODY} is missing.")
        members.read(_BODY)  # checks its sum
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
    import kreuzberg

    look(path, media_type)
    try:
        with panics.as_unreadable(path.name):
            found = kreuzberg.extract_file_sync(path, mime_type=media_type, config=_config())
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{path.name}: is damaged ({error}).") from error
    yield Page(1, encoding.clean(found.content).strip())


@functools.cache
def _config() -> Any:
    import kreuzberg

    return kreuzberg.ExtractionConfig(use_cache=False, output_format="plain")
