"""Parsers that plugins add: which of them reads a file, and what they yield, checked.

This module imports no parser, so that a process can be told of plugins at no cost.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quire.errors import BadInput, Permanent, Unreadable
from quire.model.contracts import ParserKind
from quire.model.pages import Page, PageFailure

_known: dict[str, ParserKind] = {}
_suffixes: dict[str, str] = {}
_WAYS = ("text", "ocr", "none")


def use(parsers: Mapping[str, ParserKind]) -> None:
    """Read by these parsers from now on in this process, and by no other plugin's."""
    _known.clear()
    _suffixes.clear()
    for name, kind in sorted(parsers.items()):
        _known[name] = kind
        _suffixes.update(dict.fromkeys(kind.suffixes, kind.media_types[0]))


def require(name: str) -> None:
    """Refuse the name of a parser that this process does not have."""
    if name != "auto" and name not in _known:
        raise BadInput(
            f"corpus setting parser: {name!r} is not known here. Known: "
            f"{', '.join(['auto', *_known])}. Load the plugin that has it, or name another."
        )


def chosen(name: str, media_type: str, *, is_built_in: bool) -> ParserKind | None:
    """Return the plugin's parser that reads a type under a corpus's setting; None: our own does.

    A parser that is named reads the types it says; every other file is read as under `auto`.
    """
    require(name)
    if name != "auto" and media_type in _known[name].media_types:
        return _known[name]
    if is_built_in:
        return None
    able = [kind for kind in _known.values() if media_type in kind.media_types]
    if len(able) > 1:
        names = " or ".join(f"parser={kind.name}" for kind in able)
        raise BadInput(f"type {media_type}: more than one plugin reads it. Set which one: {names}.")
    return able[0] if able else None


def names() -> list[str]:
    """List the parsers of plugins, each with the types it reads."""
    return [f"{kind.name} ({', '.join(kind.media_types)})" for kind in _known.values()]


def named_type(name: str) -> str | None:
    """Return the type that a plugin says files with such a name have."""
    lower = name.lower()
    fits = [suffix for suffix in _suffixes if lower.endswith(suffix)]
    return _suffixes[max(fits, key=len)] if fits else None


def read(kind: ParserKind, path: Path) -> Iterator[Page | PageFailure]:
    """Yield the pages that a plugin reads from a file, checked; a text alone is numbered."""
    try:
        made = kind.function(path)
        if isinstance(made, str | bytes) or not isinstance(made, Iterable):
            raise _wrong(kind, f"returned {_word(made)}", "yield pages or texts")
        for number, each in enumerate(made, start=1):
            yield _checked(kind, number, Page(number, each) if isinstance(each, str) else each)
    except Unreadable:
        raise
    except Permanent as error:
        # The document's own name takes the place of the blob's in this class of errors only.
        raise Unreadable(str(error) or f"{path.name}: {kind.name} cannot read it.") from error


def _checked(kind: ParserKind, number: int, page: Any) -> Page | PageFailure:
    if not isinstance(page, Page | PageFailure):
        raise _wrong(kind, f"yielded {_word(page)}", "yield pages or texts")
    if page.number != number:
        raise _wrong(
            kind,
            f"yielded page {page.number} (expected {number})",
            "number pages from 1, each once",
        )
    if isinstance(page, Page):
        if not isinstance(page.text, str):
            raise _wrong(
                kind, f"gave page {number} {_word(page.text)}", "the text of a page is str"
            )
        if page.via not in _WAYS:
            raise _wrong(
                kind, f"read page {number} via {page.via!r}", f"via is {' or '.join(_WAYS)}"
            )
    return page


def _word(value: object) -> str:
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def _wrong(kind: ParserKind, what: str, remedy: str) -> Permanent:
    return Permanent(f"parser {kind.name} {what}. Mend the plugin: {remedy}.")
