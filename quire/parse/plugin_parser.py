"""Parsers from plugins: choosing one for a file, and validating what it yields.

Imports no built-in parser, so that loading plugins stays cheap.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quire.errors import BadInput, Permanent, Unreadable
from quire.model import blocks
from quire.model.contracts import ParserKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import word_boxes
from quire.parse.parser import ReadOptions, ReadRequest

_parsers: dict[str, ParserKind] = {}
_suffixes: dict[str, str] = {}
_VIA = ("text", "ocr", "none")


def install(parsers: Mapping[str, ParserKind]) -> None:
    """Replace the plugin parsers of this process."""
    _parsers.clear()
    _suffixes.clear()
    for name, kind in sorted(parsers.items()):
        _parsers[name] = kind
        _suffixes.update(dict.fromkeys(kind.suffixes, kind.media_types[0]))


def require(name: str) -> None:
    """Raise BadInput unless `name` is `auto` or an installed plugin parser."""
    if name != "auto" and name not in _parsers:
        raise BadInput(
            f"corpus setting parser: {name!r} is not known here. Known: "
            f"{', '.join(['auto', *_parsers])}. Load the plugin that provides it, or choose "
            "another."
        )


def choose(name: str, media_type: str, *, is_builtin: bool) -> ParserKind | None:
    """Return the plugin parser for a media type, or None to use the built-in one.

    `name` is the corpus setting. A named parser reads the media types it declares; all other
    files are read as under `auto`.
    """
    require(name)
    if name != "auto" and media_type in _parsers[name].media_types:
        return _parsers[name]
    if is_builtin:
        return None
    candidates = [kind for kind in _parsers.values() if media_type in kind.media_types]
    if len(candidates) > 1:
        names = " or ".join(f"parser={kind.name}" for kind in candidates)
        raise BadInput(f"type {media_type}: more than one plugin reads it. Set which one: {names}.")
    return candidates[0] if candidates else None


def names() -> list[str]:
    """List the names of the plugin parsers."""
    return list(_parsers)


def labels() -> list[str]:
    """List the plugin parsers, each with the media types it reads."""
    return [f"{kind.name} ({', '.join(kind.media_types)})" for kind in _parsers.values()]


def type_by_suffix(name: str) -> str | None:
    """Return the media type that a plugin declares for the suffix of a file name."""
    lower = name.lower()
    matches = [suffix for suffix in _suffixes if lower.endswith(suffix)]
    return _suffixes[max(matches, key=len)] if matches else None


class PluginParser:
    """Adapts a plugin's function to the Parser protocol."""

    def __init__(self, kind: ParserKind) -> None:
        self._kind = kind

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Return one unit: a plugin reads the whole file."""
        return Outline(media_type, "whole", 1)

    def recipe(self, media_type: str, options: ReadOptions) -> dict[str, Any]:
        """Return everything besides the file that decides the text of its pages."""
        return {"media_type": media_type, "plugin": self._kind.name, "version": self._kind.version}

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the validated pages of a file; plain strings become numbered pages."""
        kind = self._kind
        try:
            pages = kind.function(request.path)
            if isinstance(pages, str | bytes) or not isinstance(pages, Iterable):
                raise _invalid(kind, f"returned {_describe(pages)}", "yield pages or texts")
            for number, item in enumerate(pages, start=1):
                page = Page(number, item) if isinstance(item, str) else item
                yield _validated(kind, number, page)
        except Unreadable:
            raise
        except Permanent as error:
            # Ingestion puts the document's name in place of the blob's only for Unreadable.
            message = str(error) or f"{request.path.name}: {kind.name} cannot read it."
            raise Unreadable(message) from error


def _validated(kind: ParserKind, number: int, page: Page | PageFailure) -> Page | PageFailure:
    if not isinstance(page, Page | PageFailure):
        raise _invalid(kind, f"yielded {_describe(page)}", "yield pages or texts")
    wrong = None
    if page.number != number:
        wrong = f"yielded page {page.number} (expected {number})", "number pages from 1, each once"
    elif isinstance(page, Page) and not isinstance(page.text, str):
        wrong = f"gave page {number} {_describe(page.text)}", "the text of a page is str"
    elif isinstance(page, Page) and not _has_valid_blocks(page):
        wrong = (
            f"gave page {number} blocks that are not of its words",
            "use quire.model.blocks.pack",
        )
    elif isinstance(page, Page) and page.via not in _VIA:
        wrong = f"read page {number} via {page.via!r}", f"via is {' or '.join(_VIA)}"
    if wrong:
        raise _invalid(kind, *wrong)
    return page


def _has_valid_blocks(page: Page) -> bool:
    try:
        blocks.unpack(page.blocks, len(word_boxes.word_spans(page)) if page.blocks else 0)
    except blocks.InvalidBlocks:
        return False
    return True


def _describe(value: object) -> str:
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def _invalid(kind: ParserKind, what: str, remedy: str) -> Permanent:
    return Permanent(f"parser {kind.name} {what}. Fix the plugin: {remedy}.")
