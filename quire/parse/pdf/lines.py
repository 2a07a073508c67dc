"""Groups the words of a page into segments and rows.

A *segment* is a run of words that a reader takes together: on one line, with no gap wider than a
space. A *row* has all segments at one height. In running text a row has one segment for each column
of the page; in a table it has one for each cell.
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.model.blocks import Runs

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


class Segment:
    """Words that stand together on one line."""

    __slots__ = (
        "bold", "bottom", "height", "is_number", "left", "right", "runs", "text", "top",
    )  # fmt: skip

    def __init__(
        self,
        runs: Runs,
        sides: Sequence[float],
        text: str,
        *,
        is_number: bool,
        bold: bool,
    ) -> None:
        self.runs = runs
        self.left, self.top, self.right, self.bottom = sides
        self.height = self.bottom - self.top  # of the font box
        self.text = text
        self.is_number = is_number
        self.bold = bold

    @property
    def first(self) -> int:
        """The index of the first word."""
        return self.runs[0][0]

    def joined(self, other: "Segment", *, is_number: bool) -> "Segment":
        """Return this segment with the one to its right."""
        return Segment(
            (*self.runs, *other.runs) if self.runs[-1][1] != other.runs[0][0]
            else (*self.runs[:-1], (self.runs[-1][0], other.runs[0][1]), *other.runs[1:]),
            (
                min(self.left, other.left), min(self.top, other.top),
                max(self.right, other.right), max(self.bottom, other.bottom),
            ),
            f"{self.text} {other.text}",
            is_number=is_number,
            bold=self.bold and other.bold,
        )  # fmt: skip


class Row:
    """Segments at one height, from left to right."""

    __slots__ = ("bottom", "segments", "top")

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.top, self.bottom = segments[0].top, segments[0].bottom
        for each in segments[1:]:
            self.top, self.bottom = min(self.top, each.top), max(self.bottom, each.bottom)

    @property
    def height(self) -> float:
        """The height of the largest font box."""
        return max(each.bottom - each.top for each in self.segments)

    @property
    def numbers(self) -> int:
        """How many segments are numbers; a dash alone shows nothing."""
        return sum(
            each.is_number and _DIGIT.search(each.text) is not None for each in self.segments
        )


def is_number(text: str) -> bool:
    """Tell whether a word reads as a number, or stands for one as a dash does."""
    return _NUMBER.fullmatch(text) is not None


_IS_NUMBER, _IS_SIGN, _IS_END = 1, 2, 4


@functools.lru_cache(20_000)
def _kind(text: str) -> int:
    """Return whether a word is a number or a sign beside one, as flags."""
    return _IS_NUMBER * is_number(text) | _IS_SIGN * (text in _SIGNS) | _IS_END * (text in _ENDS)


def is_value(texts: Sequence[str]) -> bool:
    """Tell whether words are a number, with the signs around it."""
    rest = [text for text in texts if text not in _SIGNS and text not in _ENDS]
    return bool(rest) and all(map(is_number, rest))


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
    kinds = np.fromiter(map(_kind, words.texts), np.int8, count)
    numeric, sign = (kinds & _IS_NUMBER) > 0, (kinds & _IS_SIGN) > 0
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
    sides = np.stack(
        [
            np.minimum.reduceat(left, starts), np.minimum.reduceat(top, starts),
            np.maximum.reduceat(right, starts), np.maximum.reduceat(bottom, starts),
        ],
        axis=1,
    )  # fmt: skip
    all_values = np.logical_and.reduceat(kinds > 0, starts)
    is_value = (all_values & np.logical_or.reduceat(numeric, starts)).tolist()
    bold = np.logical_and.reduceat(words.bold, starts).tolist()
    texts = words.texts
    return [
        Segment(((first, stop),), box, " ".join(texts[first:stop]), is_number=number, bold=heavy)
        for first, stop, box, number, heavy in zip(
            starts.tolist(), stops.tolist(), sides.tolist(), is_value, bold, strict=True
        )
    ]


def rows(found: Sequence[Segment]) -> list[Row]:
    """Group segments by height, from the top of the page down."""
    grouped: list[list[Segment]] = []
    for each in sorted(found, key=lambda s: s.top + s.bottom):
        if grouped:
            reference = grouped[-1][0]
            overlap = min(reference.bottom, each.bottom) - max(reference.top, each.top)
            if overlap > _SAME_LINE * min(reference.height, each.height):
                grouped[-1].append(each)
                continue
        grouped.append([each])
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
