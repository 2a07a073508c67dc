"""Reads the outline of a PDF: the titles of its bookmarks, by the page that they point to."""

import ctypes
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

MAX_BOOKMARKS = 20_000
MAX_DEPTH = 9
_LONGEST_TITLE = 500  # characters

Titles = dict[int, list[tuple[str, int]]]  # page number → titles with their levels


def titles(document: Any) -> Titles:
    """Return the bookmarks of a pypdfium2 document; loops end where they begin."""
    import pypdfium2.raw as raw

    found: Titles = {}
    for bookmark, level in _walk(document, raw):
        destination = raw.FPDFBookmark_GetDest(document, bookmark)
        if not destination:
            action = raw.FPDFBookmark_GetAction(bookmark)
            destination = raw.FPDFAction_GetDest(document, action) if action else None
        if not destination:
            continue
        index = raw.FPDFDest_GetDestPageIndex(document, destination)
        title = _title(bookmark, raw)
        if index >= 0 and title:
            found.setdefault(index + 1, []).append((title, level))
    return found


def with_titles(keys: tuple[str, ...], found: Titles) -> tuple[str, ...]:
    """Return keys of pages that change when the titles that point to the page do."""
    if not found:
        return keys
    return tuple(
        blake2b(f"{key} {found[number]}".encode(errors="replace"), digest_size=16).hexdigest()
        if number in found
        else key
        for number, key in enumerate(keys, start=1)
    )


def _walk(document: Any, raw: Any) -> Iterator[tuple[Any, int]]:
    """Yield each bookmark once, with its level from 1."""
    seen = set[int]()
    waiting = [(raw.FPDFBookmark_GetFirstChild(document, None), 1)]
    while waiting:
        bookmark, level = waiting.pop()
        address = ctypes.cast(bookmark, ctypes.c_void_p).value
        if not address or address in seen or len(seen) >= MAX_BOOKMARKS:
            continue
        seen.add(address)
        yield bookmark, level
        waiting.append((raw.FPDFBookmark_GetNextSibling(document, bookmark), level))
        if level < MAX_DEPTH:
            waiting.append((raw.FPDFBookmark_GetFirstChild(document, bookmark), level + 1))


def _title(bookmark: Any, raw: Any) -> str:
    size = min(raw.FPDFBookmark_GetTitle(bookmark, None, 0), 1 << 16)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFBookmark_GetTitle(bookmark, buffer, size)
    text = buffer.raw[: size - 2].decode("utf-16-le", "replace")
    return " ".join(text.split())[:_LONGEST_TITLE]
