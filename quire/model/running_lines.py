"""Finds the lines that repeat at the top and bottom of pages: running headers and footers.

One page cannot tell, and a page is stored once for all documents that have it. So this is decided
when a document is shown, from the blocks of its pages.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Blocks from each edge that are looked at, and the longest of them.
_LINES = 3
_LONGEST = 200  # characters
_MIN_REPEATS = 3
_SHORT = 4  # pages; of a shorter document, most pages have to repeat a line
_NEAR = 0.03  # of the height of a page
_EDGE = 0.16

_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")


class EdgeLine(NamedTuple):
    """A block near the edge of a page."""

    page: int
    block: int  # index among the blocks of its page
    text: str
    top: float  # share of the height of the page
    bottom: float
    is_heading: bool = False  # "Chapter 1" and "Chapter 2" are two headings


def find(pages: Iterable[Sequence[EdgeLine]]) -> set[tuple[int, int]]:
    """Return (page, block) of the running lines among the blocks of pages, which are by page."""
    alike: dict[tuple[str, bool], list[EdgeLine]] = defaultdict(list)
    count = 0
    for blocks in pages:
        count += 1
        downwards = sorted(blocks, key=lambda each: each.top)
        edges = {each.block: each for each in (*downwards[:_LINES], *downwards[-_LINES:])}
        for each in edges.values():
            is_top = each.bottom < 0.5
            if len(each.text) <= _LONGEST and (each.bottom < _EDGE or each.top > 1 - _EDGE):
                alike[_masked(each), is_top].append(each)
    least = min(_MIN_REPEATS, count) if count < _SHORT else _MIN_REPEATS
    return {
        (each.page, each.block)
        for lines in alike.values()
        for group in _at_one_height(lines)
        if len({line.page for line in group}) >= max(least, 2)
        for each in group
    }


def _masked(line: EdgeLine) -> str:
    """Return the text of a line without what counts pages."""
    text = " ".join(line.text.casefold().split())
    return text if line.is_heading else _DIGITS.sub("0", text)


def _at_one_height(lines: Sequence[EdgeLine]) -> list[list[EdgeLine]]:
    groups: list[list[EdgeLine]] = []
    for each in sorted(lines, key=lambda line: line.top):
        if groups and each.top - groups[-1][-1].top < _NEAR:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups
