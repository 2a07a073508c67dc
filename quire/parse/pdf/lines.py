"""Groups the words of a page into segments and rows.

A *segment* is a run of words that a reader takes together: on one line, with no gap wider than a
space. A *row* has all segments at one height. In running text a row has one segment for each column
of the page; in a table it has one for each cell.
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.model.blocks import Runs, join_runs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

#: Widths in heights of the font box, which is about 1.2 times the font size.
_WIDE_GAP = 0.85
_NUMBER_GAP = 0.45  # before a currency sign, and between two numbers
_SIGN_GAP = 0.1  # from a number to the currency sign of the next one
_JUMP_BACK = 0.8
_CURRENCY_GAP = 8.0  # from a currency sign to its number
_PERCENT_GAP = 3.0  # from a number to its percent sign
_SAME_LINE = 0.5  # share of the smaller height that overlaps
_MAX_TALL = 0.3  # share of words that are higher than wide on a page of level text
_MIN_TURNED = 0.6  # share of long words that are higher than wide on a page of turned text

_NUMBER = re.compile(
    r"[(\[+\-–−$€£¥~<>]*\d[\d.,:/'–\-]*(?:[)\]%x*†‡]|\([a-z0-9]\)|bps)*|[(]?[—–\-−]{1,3}[)%]*|"
    r"(?:NM|N/?A|n/?[ma]|nm|nil)\*?"
)
_SIGNS = frozenset(["$", "€", "£", "¥", "US$", "C$", "A$", "R$", "HK$", "(", "$(", "($", "-", "+"])
_ENDS = frozenset([")", "%", "%)", ")%", "x", "*", "]"])
_DIGIT = re.compile(r"\d")
_WORD_CHARACTER = re.compile(r"[^\W\d_]")


class Words(NamedTuple):
    """The words of a page and where they are."""

    texts: Sequence[str]
    left: "Numbers"
    top: "Numbers"
    right: "Numbers"
    bottom: "Numbers"
    bold: "Flags"
    kinds: "npt.NDArray[np.int8]"  # IS_NUMBER and the like


class Segment(NamedTuple):
    """Words that stand together on one line."""

    runs: Runs
    left: float
    top: float
    right: float
    bottom: float
    height: float  # of the font box
    text: str
    is_number: bool
    bold: bool

    @property
    def first(self) -> int:
        """The index of the first word."""
        return self.runs[0][0]

    def joined(self, other: "Segment", *, is_number: bool) -> "Segment":
        """Return this segment with the one to its right."""
        top, bottom = min(self.top, other.top), max(self.bottom, other.bottom)
        return Segment(
            join_runs((*self.runs, *other.runs)),
            min(self.left, other.left), top, max(self.right, other.right), bottom, bottom - top,
            f"{self.text} {other.text}", is_number, self.bold and other.bold,
        )  # fmt: skip


class Row:
    """Segments at one height, from left to right."""

    __slots__ = ("bottom", "numbers", "segments", "top")

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.top, self.bottom = segments[0].top, segments[0].bottom
        self.numbers = 0  # segments that are numbers; a dash alone shows nothing
        for each in segments:
            if each.top < self.top:
                self.top = each.top
            if each.bottom > self.bottom:
                self.bottom = each.bottom
            if each.is_number and _DIGIT.search(each.text) is not None:
                self.numbers += 1

    @property
    def height(self) -> float:
        """The height of the largest font box."""
        return max(each.height for each in self.segments)


def is_number(text: str) -> bool:
    """Tell whether a word reads as a number, or stands for one as a dash does."""
    return _NUMBER.fullmatch(text) is not None


IS_NUMBER, IS_SIGN, IS_END = 1, 2, 4


def kinds(texts: Sequence[str]) -> "npt.NDArray[np.int8]":
    """Return whether words are numbers or signs beside them, as flags."""
    import numpy as np

    # Long words without a digit are none, and looking them up would take longer than to see that.
    found = [0 if len(text) > 4 and text[:-1].isalpha() else _kind(text) for text in texts]
    return np.frombuffer(bytes(found), np.int8)


@functools.lru_cache(20_000)
def _kind(text: str) -> int:
    return IS_NUMBER * is_number(text) | IS_SIGN * (text in _SIGNS) | IS_END * (text in _ENDS)


def upright(words: Words) -> Words:
    """Return the words as a reader sees them who turns the page until the lines are level."""
    import numpy as np

    width, height = words.right - words.left, words.bottom - words.top
    if np.count_nonzero(height > width) < _MAX_TALL * len(width):
        return words
    is_long = np.fromiter((len(text) > 3 for text in words.texts), np.bool_, len(words.texts))
    if not is_long.any() or (height > width)[is_long].mean() < _MIN_TURNED:
        return words
    # Upwards if words that follow each other in a line stand above each other.
    near = np.abs(np.diff(words.left)) < width[1:] / 2
    steps = np.diff(words.top)[near]
    if len(steps) and np.median(steps) > 0:
        return words._replace(
            left=words.top, right=words.bottom, top=-words.right, bottom=-words.left
        )
    return words._replace(left=-words.bottom, right=-words.top, top=words.left, bottom=words.right)


def segments(words: Words) -> list[Segment]:
    """Return the segments of a page, in the order of its text."""
    import numpy as np

    count = len(words.texts)
    if not count:
        return []
    numeric, sign = (words.kinds & IS_NUMBER) > 0, (words.kinds & IS_SIGN) > 0
    left, top, right, bottom = words.left, words.top, words.right, words.bottom
    height = bottom - top
    overlap = np.minimum(bottom[1:], bottom[:-1]) - np.maximum(top[1:], top[:-1])
    is_same_line = overlap > _SAME_LINE * np.minimum(height[1:], height[:-1])
    tall = np.maximum(height[1:], height[:-1])
    gap = (left[1:] - right[:-1]) / np.maximum(tall, 0.1)
    value = numeric | sign
    is_tight = (numeric[:-1] & value[1:]) | (sign[1:] & ~sign[:-1])
    widest = np.where(is_tight, _NUMBER_GAP, _WIDE_GAP)
    widest[numeric[:-1] & sign[1:]] = _SIGN_GAP
    is_cut = ~is_same_line | (gap > widest) | (gap < -_JUMP_BACK)
    starts = np.concatenate([[0], np.flatnonzero(is_cut) + 1])
    stops = np.concatenate([starts[1:], [count]])
    low, high = np.minimum.reduceat(top, starts), np.maximum.reduceat(bottom, starts)
    is_value = np.logical_and.reduceat(words.kinds > 0, starts)
    is_value &= np.logical_or.reduceat(numeric, starts)
    runs = list(zip(starts.tolist(), stops.tolist(), strict=True))
    texts = words.texts
    columns = (
        zip(runs),  # each segment has one run
        np.minimum.reduceat(left, starts).tolist(), low.tolist(),
        np.maximum.reduceat(right, starts).tolist(), high.tolist(), (high - low).tolist(),
        [" ".join(texts[first:stop]) for first, stop in runs],
        is_value.tolist(), np.logical_and.reduceat(words.bold, starts).tolist(),
    )  # fmt: skip
    # As Segment._make, which checks the length of each.
    return list(map(functools.partial(tuple.__new__, Segment), zip(*columns, strict=True)))


def rows(found: Sequence[Segment]) -> list[Row]:
    """Group segments by height, from the top of the page down."""
    grouped: list[list[Segment]] = []
    top = bottom = height = float("-inf")  # of the first segment of a row
    for each in sorted(found, key=lambda s: s.top + s.bottom):
        _, _, upper, _, lower, high, *_ = each
        overlap = (lower if lower < bottom else bottom) - (upper if upper > top else top)
        if grouped and overlap > _SAME_LINE * (high if high < height else height):
            grouped[-1].append(each)
        else:
            grouped.append([each])
            top, bottom, height = upper, lower, high
    return [
        Row(each if len(each) < 2 else _with_signs(sorted(each, key=lambda s: s.left)))
        for each in grouped
    ]


def _with_signs(row: list[Segment]) -> list[Segment]:
    """Join currency signs to the number on their right, percent signs to the one on their left."""
    found: list[Segment] = []
    for each in row:
        if found and _is_sign_of(found[-1], each):
            found[-1] = found[-1].joined(each, is_number=True)
        else:
            found.append(each)
    return found


def _is_sign_of(left: Segment, right: Segment) -> bool:
    gap = (right.left - left.right) / max(right.height, 0.1)
    if left.text in _SIGNS and right.is_number:
        return gap < _CURRENCY_GAP
    return right.text in _ENDS and left.is_number and gap < _PERCENT_GAP


def has_letters(text: str) -> bool:
    """Tell whether a text has a letter of any script."""
    return _WORD_CHARACTER.search(text) is not None
