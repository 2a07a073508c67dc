"""Puts lines of a page whose file goes across its columns into the order in which they are read.

Most files have one column after the other; their order is kept. Where a file has the lines of two
columns in turns, its text has a gap at the same place in most of these lines, with running text on
both sides. Labels with values, and tables, have no running text there.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from quire.parse.pdf.lines import Segment

MIN_LINES = 6  # that are in two columns
_MIN_SHARE = 0.4  # of the segments, which these lines have
_MAX_COLUMNS = 4
_SAME_LINE = 0.5  # share of the smaller height that overlaps
_RUNNING = 22  # characters of an average line of running text
_SHARE = 0.6  # of the lines with a gap, which have it in one place
_SLACK = 2.0  # points by which a line may reach into a gap


def in_order(segments: Sequence[Segment], depth: int = 0) -> list[Segment] | None:
    """Return the segments column by column, or None if their order is that already."""
    pairs = [(one, other) for one, other in pairwise(segments) if _is_across(one, other)]
    if len(pairs) < MIN_LINES or depth == _MAX_COLUMNS:
        return None
    place = _gutter(pairs, len(segments))
    if place is None:
        return None
    found: list[Segment] = []
    for left, right, over in _bands(segments, place):
        for side in (left, right):
            found += in_order(side, depth + 1) or side
        found += over
    return found


def _is_across(one: Segment, other: Segment) -> bool:
    """Tell whether the file goes from one text to another on the same line."""
    overlap = min(one.bottom, other.bottom) - max(one.top, other.top)
    return other.left > one.right and overlap > _SAME_LINE * min(one.height, other.height)


def _gutter(pairs: Sequence[tuple[Segment, Segment]], count: int) -> float | None:
    """Return the place where most pairs have a gap, if running text is on both sides of it."""
    ends = sorted(event for one, other in pairs for event in ((one.right, 1), (other.left, -1)))
    depth = deepest = 0
    place = 0.0
    for (x, step), (following, _) in pairwise(ends):
        depth += step
        if depth > deepest:
            deepest, place = depth, (x + following) / 2
    around = [(one, other) for one, other in pairs if one.right <= place <= other.left]
    # A line in three columns has two gaps.
    chained = sum(one[1] is other[0] for one, other in pairwise(pairs))
    least = max(MIN_LINES, _SHARE * (len(pairs) - chained), _MIN_SHARE * count / 2)
    if len(around) < least:
        return None
    for side in zip(*around, strict=True):
        if median(len(each.text) for each in side) < _RUNNING:
            return None
    return place


def _bands(
    segments: Sequence[Segment], place: float
) -> Iterator[tuple[list[Segment], list[Segment], list[Segment]]]:
    """Yield what is left and right of a gutter, down to lines that go over it, and these."""
    left: list[Segment] = []
    right: list[Segment] = []
    over: list[Segment] = []
    for each in segments:
        if each.left < place - _SLACK and each.right > place + _SLACK:
            over.append(each)
            continue
        if over:
            yield left, right, over
            left, right, over = [], [], []
        (left if each.left + each.right < 2 * place else right).append(each)
    yield left, right, over
