"""The protocol that every file format implements, and the values passed to it.

`formats` maps media types to parsers; plugins implement the same protocol (`plugin_parser`).
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from quire.model.pages import Outline, Page, PageFailure

OcrMode = Literal["auto", "always", "never"]


class ReadOptions(NamedTuple):
    """How to read files. Every field can change the text, so all are part of page keys."""

    parser: str = "auto"  # auto: by media type; otherwise the name of a plugin's parser
    ocr: OcrMode = "auto"
    ocr_languages: tuple[str, ...] = ()  # for plugins; the built-in model reads all its languages
    row_size: int = 3000  # table rows per page
    layout: str = ""  # plugin that looks at pictures of pages: NAME, NAME:all or none


class ReadRequest(NamedTuple):
    """The pages first…last (from 1, inclusive) of one file."""

    path: Path
    media_type: str
    options: ReadOptions = ReadOptions()
    first: int = 1
    last: int = 1
    #: Returns whether the text of an image is stored already; OCR then skips the image.
    known_image: Callable[[str], bool] | None = None


class Parser(Protocol):
    """Reads files of one or more media types."""

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Open a file and count its pages. Raises Unreadable."""

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested pages in order, one at a time."""

    def recipe(self, media_type: str, options: ReadOptions) -> dict[str, Any]:
        """Return everything besides the file that decides the text of its pages."""


class BuiltinParser:
    """Base of the parsers that ship with Quire: their recipe.

    `name`, `version` and `library` are stored in reuse keys. Raise `version` when the text of any
    page changes, so that files are read again; never change `name`.
    """

    name: str
    version: int = 1
    library: str | None = None  # distribution whose version decides the text too

    def recipe(self, media_type: str, options: ReadOptions) -> dict[str, Any]:
        """Return everything besides the file that decides the text of its pages."""
        return {
            "media_type": media_type,
            "parser": self.name,
            "version": self.version,
            "library": installed_version(self.library) if self.library else None,
        }


@functools.cache
def installed_version(library: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return None
