"""Packs the bounding boxes of a page's words; the words themselves are not stored.

Word *i* of a page is the *i*-th run of non-space characters in its text, so boxes in text order
are enough. The exception is a word hyphenated across two lines: one run of text with two boxes.
The offset of such a *break* is stored with the boxes.

Coordinates are tenths of a point. Each box is stored as the difference from the position that the
box before it predicts, column by column, which compresses to about three bytes per word.
"""

import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quire.model import blocks
from quire.model.blocks import Runs
from quire.model.pages import Page, Word

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Boxes = npt.NDArray[np.float64]  # rows of x, y, width, height in points

WORD = re.compile(r"\S+")
Box = tuple[float, float, float, float]  # x, y, width, height

_HEAD = struct.Struct("<BBII")  # layout version, bytes per number, words, breaks
_LAYOUT = 1
_MAX_COORDINATE = 100_000_000  # tenths of a point; damaged files have absurd boxes


def pack(boxes: "Boxes", breaks: Sequence[int] = ()) -> bytes:
    """Pack boxes in the order of the words; `breaks` are offsets that split a word in two."""
    import numpy as np

    if not len(boxes):
        return b""
    columns = _tenths(boxes)
    x, y, width, height = columns
    columns[0, 1:] -= x[:-1] + width[:-1]
    columns[1, 1:] -= y[:-1].copy()
    columns[3, 1:] -= height[:-1].copy()
    small = columns.min() >= -(1 << 15) and columns.max() < 1 << 15
    kind = np.dtype("<i2" if small else "<i4")
    # All low bytes, then all high bytes: the latter are mostly zero and compress well.
    planes = columns.astype(kind).reshape(-1, 1).view(np.uint8).T.tobytes()
    tail = np.diff(np.asarray(breaks, "<i4"), prepend=0).astype("<i4").tobytes() if breaks else b""
    head = _HEAD.pack(_LAYOUT, kind.itemsize, len(boxes), len(breaks))
    return head + zlib.compress(planes + tail, 1)


def unpack(packed: bytes, text: str) -> list[Word]:
    """Return the words of a page with their boxes, or [] if the boxes are of another text."""
    spans, boxes = _read(packed, text)
    return [
        Word(x, y, width, height, text[start:stop])
        for (start, stop), (x, y, width, height) in zip(spans, boxes, strict=True)
    ]


def located(page: Page) -> tuple[list[tuple[int, int]], list[Box]]:
    """Return the spans of a page's words and their boxes (x, y, width, height), if it has any."""
    found, some = _read(page.words, page.text)
    return (found, [(x, y, w, h) for x, y, w, h in some]) if found else (spans(page.text), [])


def word_spans(page: Page) -> list[tuple[int, int]]:
    """Return the start and stop offset of each word of a page, as blocks count them."""
    if len(page.words) >= _HEAD.size:
        layout, _, count, breaks = _HEAD.unpack_from(page.words)
        # Without breaks the boxes need not be unpacked to know the words.
        if layout == _LAYOUT and not breaks and len(found := spans(page.text)) == count:
            return found
    return _read(page.words, page.text)[0] or spans(page.text)


def most_bytes(characters: int) -> int:
    """Return how long the packed boxes of a text can be: at most one of each character."""
    return _HEAD.size + 64 + 20 * characters


def count(packed: bytes) -> int:
    """Return how many words have boxes, without unpacking them."""
    found: tuple[int, ...] = _HEAD.unpack_from(packed) if len(packed) >= _HEAD.size else (0, 0, 0)
    return found[2]


def boxes(
    packed: bytes, text: str, start: int, stop: int
) -> list[tuple[float, float, float, float]]:
    """Return the boxes that cover text[start:stop], one per line: (x, y, width, height)."""
    spans, found = _read(packed, text)
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, stop, key=lambda span: span[0])
    lines: list[list[float]] = []  # left, top, right, bottom
    for x, y, width, height in found[first:last]:
        box = [x, y, x + width, y + height]
        left, top, right, bottom = lines[-1] if lines else box
        overlap = min(bottom, box[3]) - max(top, box[1])
        if lines and overlap > 0.5 * min(bottom - top, height) and x >= left:
            lines[-1] = [left, min(top, y), max(right, box[2]), max(bottom, box[3])]
        else:
            lines.append(box)
    return [
        (round(left, 1), round(top, 1), round(right - left, 1), round(bottom - top, 1))
        for left, top, right, bottom in lines
    ]


def pawls(pages: Iterable[Page], version: int = 1) -> Any:
    """Return pages and their words in the PAWLs format, version 1 (plain) or 2 (compact).

    Blocks name the words by index, as runs: the first word, and the word after the last.
    """
    if version == 2:
        compact = [
            {
                "w": round(page.width, 1),
                "h": round(page.height, 1),
                "t": [list(word) for word in unpack(page.words, page.text)],
                "b": [[kind, level, runs] for kind, level, runs in _blocks(page)],
            }
            for page in pages
        ]
        return {"v": 2, "p": compact}
    return [
        {
            "page": {"width": page.width, "height": page.height, "index": page.number - 1},
            "tokens": [word._asdict() for word in unpack(page.words, page.text)],
            "blocks": [
                {"kind": kind, "level": level, "tokens": runs}
                for kind, level, runs in _blocks(page)
            ],
        }
        for page in pages
    ]


def _blocks(page: Page) -> list[tuple[str, int, Runs]]:
    if not page.words or not page.blocks:
        return []
    found = blocks.unpack(page.blocks, len(word_spans(page)))
    return [(block.kind.name.lower(), block.level, block.runs) for block in found]


def spans(text: str, breaks: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return the start and stop offset of each word."""
    whole = [found.span() for found in WORD.finditer(text)]
    return list(_split_at(whole, breaks)) if breaks else whole


def _tenths(boxes: "Boxes") -> "npt.NDArray[np.int64]":
    """Return the columns x, y, width, height as integers, in tenths of a point."""
    import numpy as np

    # Round corners, not sizes: rounding errors would add up along a line.
    corners = np.asarray(boxes, np.float64).T * 10
    corners[2:] += corners[:2]
    if not abs(corners).max() <= _MAX_COORDINATE:  # also true for NaN
        corners = np.nan_to_num(corners).clip(-_MAX_COORDINATE, _MAX_COORDINATE)
    whole = np.rint(corners).astype(np.int64)
    whole[2:] -= whole[:2]
    return whole


def _read(packed: bytes, text: str) -> tuple[list[tuple[int, int]], list[list[float]]]:
    import numpy as np

    if len(packed) < _HEAD.size:
        return [], []
    layout, size, count, break_count = _HEAD.unpack_from(packed)
    if layout != _LAYOUT or size not in (2, 4) or not break_count <= count <= len(text):
        return [], []
    # No more than the boxes need: what is stored came out of a box, as the text did.
    needed = count * 4 * size + break_count * 4
    try:
        plain = zlib.decompressobj().decompress(packed[_HEAD.size :], max(needed, 1))
    except zlib.error:
        return [], []
    if len(plain) < needed:
        return [], []
    block = np.frombuffer(plain, np.uint8, count * 4 * size)
    columns = block.reshape(size, -1).T.copy().view(f"<i{size}").reshape(4, count).astype(np.int64)
    breaks = np.cumsum(np.frombuffer(plain, "<i4", break_count, count * 4 * size)).tolist()
    found = spans(text, breaks)
    if len(found) != count:
        return [], []
    gap, y, width, height = columns
    # x is the sum of all gaps and all widths before it.
    x = np.cumsum(gap) + np.cumsum(width) - width
    rows = np.stack([x, np.cumsum(y), width, np.cumsum(height)], axis=1)
    return found, (rows / 10).tolist()


def _split_at(whole: Iterable[tuple[int, int]], breaks: Sequence[int]) -> Iterator[tuple[int, int]]:
    at = 0
    for start, stop in whole:
        while at < len(breaks) and breaks[at] < stop:
            if breaks[at] > start:
                yield start, breaks[at]
                start = breaks[at]
            at += 1
        yield start, stop
