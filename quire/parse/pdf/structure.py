"""Turns the words of a PDF page into blocks: tables, headings, paragraphs, lists, page numbers.

What needs several pages is not decided here, so that a page has the same blocks wherever it
stands. Lines that repeat at the edges are found when a document is shown (`model.running_lines`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from quire.model.blocks import (
    MAX_LEVEL,
    Block,
    BlockKind,
    BlockSource,
    Runs,
    join_runs,
    words_of,
)
from quire.parse.pdf import columns, lines, rulings, table_finder
from quire.parse.pdf.lines import Segment, Words

#: Heights of the font box.
_PARAGRAPH_GAP = 0.55
_SAME_LINE_GAP = 4.0
_INDENT = 0.8
_LARGER = 1.12
_SMALLER = 0.93
_EDGE = 0.12  # share of the page's height in which running lines stand
_LOW = 0.6  # footnotes stand below this share of the page's height
_LONGEST_HEADING = 200  # characters
_LONGEST_BOLD_HEADING = 120
_MAX_HEADING_LINES = 3
_MAX_INSERTED = 200  # tables and entries that are put between the texts of columns
_HEAD = 20  # characters of a line that tell that it is no title
_MIN_NEIGHBOURS = 2  # segments beside others on a page that may have a table
_MIN_TEXT = 200  # characters outside of tables that show what is usual on a page

_BULLET = re.compile(r"[•●▪■◦○‣⁃∙·➢►✓❖\uf0b7\uf0a7–—*-](?=\s)")
_ITEM = re.compile(_BULLET.pattern + r"|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})[.)](?=\s+\S)")
_LEADERS = ("....", "____", "……")
_SECTION = re.compile(
    r"(?:item|part|chapter|section|article|note|appendix|annex|schedule|kapitel|abschnitt)\s+"
    r"[\dIVX]{1,4}[A-Z]?\b|(?P<number>\d{1,3}(?:\.\d{1,3}){0,5})\.?\s+(?=[^\W\d_])"
    r"|[IVX]{1,5}\.\s+(?=[A-Z])",
    re.IGNORECASE,
)
_CAPTION = re.compile(
    r"(?:figure|fig\.|table|exhibit|chart|abbildung|tabelle|tableau)\s+[\dIVX]{1,5}(?:[-.]\d{1,3})*"
    r"\s*[:.|–-]",
    re.IGNORECASE,
)
_PAGE_NUMBER = re.compile(
    r"(?:page|seite|p\.)?+\s*+[-–—|]?+\s*+(?:[A-Z]{1,2}-)?(?:\d{1,4}|[ivxlc]{1,6})\s*+[-–—|]?+"
    r"(?:\s*+(?:of|/|von)\s*+\d{1,4})?+",
    re.IGNORECASE,
)
_NOTE_MARK = re.compile(r"(?:\(\w{1,2}\)|\*{1,3}|[†‡§]|\d{1,2})\s?(?=\S)")
_SENTENCE_END = (".", ";", ",", ":-")


class Line(NamedTuple):
    """Segments that follow each other on one line of running text."""

    runs: Runs
    left: float
    top: float
    right: float
    bottom: float
    height: float  # of the font box
    text: str
    bold: bool


class PageShape(NamedTuple):
    """What is usual on a page."""

    height: float
    text_height: float  # font box of most characters
    is_bold: bool  # most characters are bold
    left: float
    right: float


class _Placed(NamedTuple):
    """A block with its place, to be put in reading order."""

    block: Block
    left: float
    top: float
    right: float
    bottom: float


def blocks(
    words: Words,
    height: float,
    titles: Sequence[tuple[str, int]] = (),
    drawn: Callable[[], rulings.Edges | None] = lambda: None,
) -> list[Block]:
    """Return the blocks of a page in reading order.

    `titles` are the entries of the file's outline that point to this page, with their levels;
    `drawn` returns the lines that are drawn on it, and is called if it may have a table.
    """
    turned = lines.upright(words)
    is_turned = turned is not words
    segments = lines.segments(turned)
    if not segments:
        return []
    rows = lines.rows(segments)
    free, grids = segments, []
    if not is_turned and sum(len(row.segments) - 1 for row in rows) >= _MIN_NEIGHBOURS:
        edges = drawn()
        grids = rulings.find(words, edges) if edges is not None else []
    if grids:
        free = _without(segments, [each.runs for each in grids])
        rows = lines.rows(free)
    found, entries = table_finder.find(rows)
    free = _without(free, [each.runs for each in found])
    free = _without(free, [each.runs for entry in entries for each in entry])
    is_text = sum(len(each.text) for each in free) >= _MIN_TEXT
    shape = _shape(free if is_text else segments, float("inf") if is_turned else height)
    placed = [_table(each) for each in (*grids, *found)]
    placed += map(_entry, entries)
    ordered = columns.in_order(free) if _are_beside(rows) else None
    text = _text_blocks(_lines(ordered or free), shape, _keys(titles))
    if ordered is None or len(placed) > _MAX_INSERTED:
        return [each.block for each in _in_order([*placed, *text])]
    return [each.block for each in _inserted(placed, text)]


def _without(segments: Sequence[Segment], taken: Sequence[Runs]) -> list[Segment]:
    """Leave out the segments of tables and the like, some of which were joined there."""
    if not taken:
        return list(segments)
    inside = {word for runs in taken for word in words_of(runs)}
    return [each for each in segments if each.first not in inside]


def _shape(segments: Sequence[Segment], height: float) -> PageShape:
    sizes: dict[int, list[float]] = {}
    signs = Counter[int]()
    bold = total = 0
    for each in segments:
        size, length = round(each.height * 2), len(each.text)
        sizes.setdefault(size, []).append(each.height)
        signs[size] += length
        bold += length * each.bold
        total += length
    exact = sizes[max(signs, key=signs.__getitem__)]
    return PageShape(
        height, median(exact), bold > total / 2,
        min(each.left for each in segments), max(each.right for each in segments),
    )  # fmt: skip


def _table(found: table_finder.Found) -> _Placed:
    block = Block(
        BlockKind.TABLE, found.runs, confidence=found.confidence,
        source=found.source, table=found.table,
    )  # fmt: skip
    return _Placed(block, found.left, found.top, found.right, found.bottom)


def _entry(segments: Sequence[Segment]) -> _Placed:
    runs = join_runs(run for each in segments for run in each.runs)
    block = Block(BlockKind.LIST_ITEM, runs, 1, confidence=80)
    left, right = segments[0].left, segments[-1].right
    return _Placed(
        block, left, min(s.top for s in segments), right, max(s.bottom for s in segments)
    )


def _lines(segments: Sequence[Segment]) -> list[Line]:
    """Join segments that follow each other in the text and on the page."""
    found: list[Line] = []
    for each in segments:
        if found and _is_same_line(found[-1], each):
            found[-1] = _joined(found[-1], each)
        else:
            runs, left, top, right, bottom, height, text, _, bold = each
            found.append(Line(runs, left, top, right, bottom, height, text, bold))
    return found


def _is_same_line(line: Line, segment: Segment) -> bool:
    overlap = min(line.bottom, segment.bottom) - max(line.top, segment.top)
    if overlap < 0.5 * min(line.height, segment.height):
        return False
    return -0.5 * line.height < segment.left - line.right < _SAME_LINE_GAP * line.height


def _joined(line: Line, segment: Segment) -> Line:
    # Raised marks do not make a line higher.
    low, high = (segment.bottom, segment.top) if segment.height > line.height else (
        line.bottom, line.top
    )  # fmt: skip
    return Line(
        (*line.runs, *segment.runs), line.left, high, max(line.right, segment.right), low,
        low - high, f"{line.text} {segment.text}", line.bold and segment.bold,
    )  # fmt: skip


def _keys(titles: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the levels of the outline's titles by what is left of them without space and signs."""
    return {_letters(title): min(level, MAX_LEVEL) for title, level in titles if _letters(title)}


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def _text_blocks(found: Sequence[Line], shape: PageShape, titles: dict[str, int]) -> list[_Placed]:
    placed: list[_Placed] = []
    at = 0
    while at < len(found):
        stop, block = _next_block(found, at, shape, titles)
        group = found[at:stop]
        placed.append(
            _Placed(
                block, min(e.left for e in group), group[0].top,
                max(e.right for e in group), max(e.bottom for e in group),
            )
        )  # fmt: skip
        at = stop
    return placed


def _next_block(
    found: Sequence[Line], at: int, shape: PageShape, titles: dict[str, int]
) -> tuple[int, Block]:
    """Return the end of the block that starts with a line, and the block."""
    line = found[at]
    if _is_page_number(line, shape):
        return at + 1, _block(_edge_kind(line, shape), [line])
    if (heading := _heading(found, at, shape, titles)) is not None:
        return heading
    kind = _kind(line, shape)
    stop = at + 1
    while stop < len(found) and _goes_on(found[at:stop][-1], found[stop], line, kind, shape):
        if _heading(found, stop, shape, titles) is not None:
            break
        stop += 1
    return stop, _block(kind, found[at:stop], level=1 if kind == BlockKind.LIST_ITEM else 0)


def _block(kind: BlockKind, group: Sequence[Line], level: int = 0) -> Block:
    runs = join_runs(run for line in group for run in line.runs)
    return Block(kind, runs, level, confidence=80)


def _is_page_number(line: Line, shape: PageShape) -> bool:
    edge = _EDGE * shape.height
    at_edge = line.bottom < edge or line.top > shape.height - edge
    return at_edge and _PAGE_NUMBER.fullmatch(line.text.strip()) is not None


def _edge_kind(line: Line, shape: PageShape) -> BlockKind:
    return BlockKind.HEADER if line.top < shape.height / 2 else BlockKind.FOOTER


def _kind(line: Line, shape: PageShape) -> BlockKind:
    if _CAPTION.match(line.text):
        return BlockKind.CAPTION
    is_small = line.height < _SMALLER * shape.text_height
    if is_small and line.top > _LOW * shape.height and _NOTE_MARK.match(line.text):
        return BlockKind.FOOTNOTE
    if _ITEM.match(line.text) or _is_entry(line.text):
        return BlockKind.LIST_ITEM
    return BlockKind.PARAGRAPH


def _is_entry(text: str) -> bool:
    """Tell whether a line is one of a table of contents: leaders to the number of a page."""
    title = text.rstrip("0123456789")
    return title != text and title[-10:].replace(" ", "").endswith(_LEADERS)


def _goes_on(last: Line, line: Line, first: Line, kind: BlockKind, shape: PageShape) -> bool:
    """Tell whether a line belongs to the paragraph of the line before it."""
    gap = line.top - last.bottom
    size = max(last.height, line.height)
    if gap > _PARAGRAPH_GAP * size or gap < -0.6 * size:
        return False
    if line.left > last.right or line.right < last.left:  # another column
        return False
    if not 0.88 < line.height / max(last.height, 0.1) < 1.14:
        return False
    starts = _kind(line, shape)
    if starts in (BlockKind.LIST_ITEM, BlockKind.CAPTION):
        return False
    if kind == BlockKind.FOOTNOTE:
        return starts != BlockKind.FOOTNOTE
    if kind == BlockKind.LIST_ITEM:
        return line.left > first.left - 2.5 * size
    # The first line of a paragraph is indented after a short last line.
    is_indented = line.left > last.left + _INDENT * size and last.left <= first.left
    return not (is_indented and last.text.endswith((".", ":", "?", "!")))


def _heading(
    found: Sequence[Line], at: int, shape: PageShape, titles: dict[str, int]
) -> tuple[int, Block] | None:
    """Return the end of a heading that starts with this line, and the heading."""
    line = found[at]
    if len(line.text) > _LONGEST_HEADING:
        return None
    if titles and (told := _told(found, at, titles)) is not None:
        return told
    strength = _strength(line, shape)
    if strength is None or not lines.has_letters(line.text) or not _stands_alone(found, at, shape):
        return None
    stop = at + 1
    while (
        stop < len(found)
        and stop - at < _MAX_HEADING_LINES
        and _same_style(found[stop - 1], found[stop])
    ):
        stop += 1
    if stop < len(found) and _same_style(found[stop - 1], found[stop]):
        return None  # a long text in this style
    group = found[at:stop]
    if sum(len(each.text) for each in group) > _LONGEST_HEADING:
        return None
    if group[-1].text.rstrip().endswith(_SENTENCE_END) and not _SECTION.match(line.text):
        return None
    level = _level(line, shape)
    return stop, _block(BlockKind.HEADING, group, level=level)._replace(confidence=strength)


def _told(found: Sequence[Line], at: int, titles: dict[str, int]) -> tuple[int, Block] | None:
    """Return the heading that the outline has for this line and those after it."""
    text = ""
    head = _letters(found[at].text[:_HEAD])
    begins = head, head.lstrip("0123456789")
    if not any(title.startswith(begins) for title in titles):
        return None
    if not lines.has_letters(found[at].text):
        return None
    for stop in range(at + 1, min(at + _MAX_HEADING_LINES, len(found)) + 1):
        text += _letters(found[stop - 1].text)
        # A title may leave out the number of its section.
        level = titles.get(text) or titles.get(text.lstrip("0123456789"))
        if level is not None:
            block = _block(BlockKind.HEADING, found[at:stop], level=level)
            return stop, block._replace(confidence=95, source=BlockSource.OUTLINE)
    return None


def _strength(line: Line, shape: PageShape) -> int | None:
    """Return how sure it is that a line is set as a heading, in percent; or None."""
    text = line.text.rstrip()
    strength = 85
    if line.height <= _LARGER * shape.text_height:
        if line.height < _SMALLER * shape.text_height or len(text) > _LONGEST_BOLD_HEADING:
            return None
        strength = 75 if line.bold and not shape.is_bold else 65
        if strength == 65 and not _is_capitals(text):
            return None
    if text.endswith(_SENTENCE_END) and not _SECTION.match(text):
        return None
    return None if _BULLET.match(text) or _CAPTION.match(text) else strength


def _is_capitals(text: str) -> bool:
    if not text.isupper():
        return False
    letters = [each for each in text if each.isalpha()]
    return len(letters) >= 4 and all(each.isupper() for each in letters)


def _stands_alone(found: Sequence[Line], at: int, shape: PageShape) -> bool:
    """Tell whether a line has no neighbour to its left or right, and space or a change above it."""
    line = found[at]
    if at and _overlaps(found[at - 1], line):
        return False
    if at + 1 < len(found) and _overlaps(found[at + 1], line):
        return False
    if not at:
        return True
    above = found[at - 1]
    gap = line.top - above.bottom
    return not (-0.6 * line.height < gap < 0.35 * line.height) or not _same_style(above, line)


def _overlaps(one: Line, other: Line) -> bool:
    shared = min(one.bottom, other.bottom) - max(one.top, other.top)
    return shared > 0.5 * min(one.height, other.height)


def _same_style(above: Line, line: Line) -> bool:
    """Tell whether a line goes on directly below another in the same size and weight."""
    gap = line.top - above.bottom
    is_near = -0.6 * line.height < gap < _PARAGRAPH_GAP * line.height
    is_like = 0.95 < line.height / max(above.height, 0.1) < 1.05 and line.bold == above.bold
    return is_near and is_like and line.text.isupper() == above.text.isupper()


def _level(line: Line, shape: PageShape) -> int:
    numbered = _SECTION.match(line.text)
    if numbered and numbered["number"]:
        return min(MAX_LEVEL, 1 + numbered["number"].count("."))
    ratio = line.height / max(shape.text_height, 0.1)
    for level, least in ((1, 1.5), (2, 1.25), (3, _LARGER)):
        if ratio > least:
            return level
    return 4 if line.text.isupper() else 5


def _are_beside(rows: Sequence[lines.Row]) -> bool:
    """Tell whether so many rows have texts beside each other that there may be columns."""
    return sum(len(row.segments) > 1 for row in rows) >= columns.MIN_LINES


def _inserted(placed: Sequence[_Placed], text: Sequence[_Placed]) -> list[_Placed]:
    """Put tables into text that is in order: after the last text that stands above them."""
    found = list(text)
    for each in sorted(placed, key=lambda one: one.top):
        above = [
            index
            for index, other in enumerate(found, start=1)
            if other.bottom <= each.top + 1.0
            and min(other.right, each.right) > max(other.left, each.left)
        ]
        found.insert(max(above, default=0), each)
    return found


def _in_order(placed: Sequence[_Placed]) -> list[_Placed]:
    """Return blocks from the top down; where some stand side by side, in the order of the text."""
    by_text = sorted(placed, key=lambda each: each.block.runs[0])
    downwards = sorted(placed, key=lambda each: each.top)
    for above, below in pairwise(downwards):
        if below.top < above.bottom - 0.5 * min(above.bottom - above.top, below.bottom - below.top):
            return by_text
    return downwards
