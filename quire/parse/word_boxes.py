"""Word boxes, packed small: the words themselves are never stored.

Word *i* of a page is the *i*-th stretch of non-space in the page's text, so a list of boxes in
text order is enough. The one exception is a word that a hyphen split over two lines: it is one
stretch of text with two boxes, and the place of the *cut* is stored with the boxes.

Boxes are tenths of a point. What is written is how each box differs from the place that the box
before it predicts, a column at a time, which compresses to about three bytes a word.
"""

import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quire.model.pages import Page, Word

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Boxes = npt.NDArray[np.float64]  # rows of x, y, width, height in points

WORD = re.compile(r"\S+")

_HEAD = struct.Struct("<BBII")  # layout, bytes a number, words, cuts
_LAYOUT = 1
_FARTHEST = 100_000_000  # tenths of a point: damaged files name boxes light years away


def pack(boxes: "Boxes", cuts: Sequence[int] = ()) -> bytes:
    """Pack boxes in the order of the words of the text; `cuts` split a word of it in two."""
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
    # All low bytes, then all high bytes: the high ones are nearly all zero.
    planes = columns.astype(kind).reshape(-1, 1).view(np.uint8).T.tobytes()
    tail = np.diff(np.asarray(cuts, "<i4"), prepend=0).astype("<i4").tobytes() if cuts else b""
    head = _HEAD.pack(_LAYOUT, kind.itemsize, len(boxes), len(cuts))
    return head + zlib.compress(planes + tail, 1)


def unpack(packed: bytes, text: str) -> list[Word]:
    """Return the words of a page with their boxes; none when the text is not the one packed."""
    spans, boxes = _read(packed, text)
    return [
        Word(x, y, width, height, text[start:stop])
        for (start, stop), (x, y, width, height) in zip(spans, boxes, strict=True)
    ]


def boxes(
    packed: bytes, text: str, start: int, stop: int
) -> list[tuple[float, float, float, float]]:
    """Return the boxes that cover text[start:stop], one per line, as (x, y, width, height)."""
    spans, found = _read(packed, text)
    first = bisect_right(spans, start, key=lambda span: span[1])
    last = bisect_left(spans, stop, key=lambda span: span[0])
    lines: list[list[float]] = []  # left, top, right, bottom
    for x, y, width, height in found[first:last]:
        box = [x, y, x + width, y + height]
        if lines and _same_line(lines[-1], box):
            lines[-1] = _union(lines[-1], box)
        else:
            lines.append(box)
    return [
        (round(left, 1), round(top, 1), round(right - left, 1), round(bottom - top, 1))
        for left, top, right, bottom in lines
    ]


def pawls(pages: Iterable[Page], version: int = 1) -> Any:
    """Return pages and their words in the PAWLs form, version 1 (plain) or 2 (compact)."""
    if version == 2:
        return {"v": 2, "p": [_compact(page) for page in pages]}
    return [
        {
            "page": {"width": page.width, "height": page.height, "index": page.number - 1},
            "tokens": [word._asdict() for word in unpack(page.words, page.text)],
        }
        for page in pages
    ]


def spans(text: str, cuts: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return where each word of the text starts and stops."""
    whole = [found.span() for found in WORD.finditer(text)]
    return list(_divided(whole, cuts)) if cuts else whole


def _compact(page: Page) -> dict[str, Any]:
    words = unpack(page.words, page.text)
    return {
        "w": round(page.width, 1),
        "h": round(page.height, 1),
        "t": [[word.x, word.y, word.width, word.height, word.text] for word in words],
    }


def _tenths(boxes: "Boxes") -> "npt.NDArray[np.int64]":
    """Return the columns x, y, width, height in whole tenths of a point."""
    import numpy as np

    # The corners are rounded, not the sizes, or a long line would drift.
    corners = np.asarray(boxes, np.float64).T * 10
    corners[2:] += corners[:2]
    if not abs(corners).max() <= _FARTHEST:  # also where it is not a number
        corners = np.nan_to_num(corners).clip(-_FARTHEST, _FARTHEST)
    whole = np.rint(corners).astype(np.int64)
    whole[2:] -= whole[:2]
    return whole


def _read(packed: bytes, text: str) -> tuple[list[tuple[int, int]], list[list[float]]]:
    import numpy as np

    if not packed:
        return [], []
    layout, size, count, cut_count = _HEAD.unpack_from(packed)
    if layout != _LAYOUT:
        return [], []
    plain = zlib.decompress(packed[_HEAD.size :])
    block = np.frombuffer(plain, np.uint8, count * 4 * size)
    columns = block.reshape(size, -1).T.copy().view(f"<i{size}").reshape(4, count).astype(np.int64)
    cuts = np.cumsum(np.frombuffer(plain, "<i4", cut_count, count * 4 * size)).tolist()
    found = spans(text, cuts)
    if len(found) != count:
        return [], []
    gap, y, width, height = columns
    # x is the sum of all gaps and of all widths before it.
    x = np.cumsum(gap) + np.cumsum(width) - width
    rows = np.stack([x, np.cumsum(y), width, np.cumsum(height)], axis=1)
    return found, (rows / 10).tolist()


def _divided(whole: Iterable[tuple[int, int]], cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    at = 0
    for start, stop in whole:
        while at < len(cuts) and cuts[at] < stop:
            if cuts[at] > start:
                yield start, cuts[at]
                start = cuts[at]
            at += 1
        yield start, stop


def _same_line(line: list[float], box: list[float]) -> bool:
    overlap = min(line[3], box[3]) - max(line[1], box[1])
    return overlap > 0.5 * min(line[3] - line[1], box[3] - box[1]) and box[0] >= line[0]


def _union(a: list[float], b: list[float]) -> list[float]:
    return [min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])]
