"""Finds tables whose cells are drawn: the lines and rectangles of a page, and the grids they form.

Only paths of a few segments count: those of charts and logos have more. Rows that are not drawn are
told by the lines of numbers in the cells.
"""

import ctypes
import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.model.blocks import BlockSource, Cell, Table, runs_of
from quire.parse.pdf.lines import Segment, Words, is_number, is_value
from quire.parse.pdf.table_finder import Found

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Boxes = npt.NDArray[np.float64]

MAX_OBJECTS = 20_000  # of a page; more are a drawing
MAX_EDGES = 3_000
MAX_CELLS = 20_000
_MAX_SEGMENTS = 6
_THIN = 3.0  # points
_SHORT = 4.0
_NEAR = 2.5  # edges that nearly touch are one
_MAX_WORDS = 40  # in an average cell; more is a page laid out in boxes
_PATH = 2  # FPDF_PAGEOBJ_PATH
_LINE = 0  # FPDF_SEGMENT_LINETO


class Edges(NamedTuple):
    """Straight lines: rows of place, start, stop."""

    horizontal: list[tuple[float, float, float]]
    vertical: list[tuple[float, float, float]]


class _Functions(NamedTuple):
    count: Any
    get: Any
    kind: Any
    bounds: Any
    segments: Any
    segment: Any
    segment_kind: Any


@functools.cache
def _functions() -> _Functions:
    import pypdfium2.raw as raw

    pointer, number = ctypes.c_void_p, ctypes.c_int

    def bare(function: Any, result: Any, *arguments: Any) -> Any:
        address = ctypes.cast(function, pointer).value or 0
        return ctypes.PYFUNCTYPE(result, *arguments)(address)

    return _Functions(
        bare(raw.FPDFPage_CountObjects, number, pointer),
        bare(raw.FPDFPage_GetObject, pointer, pointer, number),
        bare(raw.FPDFPageObj_GetType, number, pointer),
        bare(raw.FPDFPageObj_GetBounds, number, *[pointer] * 5),
        bare(raw.FPDFPath_CountSegments, number, pointer),
        bare(raw.FPDFPath_GetPathSegment, pointer, pointer, number),
        bare(raw.FPDFPathSegment_GetType, number, pointer),
    )


def path_corners(page: Any) -> "Boxes":
    """Return left, bottom, right, top of each simple path of a page, in its own space."""
    import numpy as np

    pdfium = _functions()
    handle = ctypes.cast(page.raw, ctypes.c_void_p).value
    count = pdfium.count(handle)
    if not 4 <= count <= MAX_OBJECTS:
        return np.zeros((4, 0))
    objects = list(map(pdfium.get, repeat(handle), range(count)))
    paths = [
        each
        for each, kind in zip(objects, map(pdfium.kind, objects), strict=True)
        if kind == _PATH and _is_straight(each)
    ]
    if not 4 <= len(paths) <= MAX_EDGES:
        return np.zeros((4, 0))
    sides = (ctypes.c_float * 4)()
    start = ctypes.addressof(sides)
    places = [start, start + 4, start + 8, start + 12]
    found = [
        tuple(sides)
        for each in paths
        if pdfium.bounds(each, *places) and (pdfium.segments(each) > 2 or _is_level(sides))
    ]
    return np.array(found, np.float64).reshape(-1, 4).T


def _is_level(sides: Any) -> bool:
    """Tell whether a single line is horizontal or vertical."""
    return bool(min(sides[2] - sides[0], sides[3] - sides[1]) <= _THIN)


def _is_straight(path: int) -> bool:
    """Tell whether a path has few segments, the first of them a line and not a curve."""
    pdfium = _functions()
    if not 1 < pdfium.segments(path) <= _MAX_SEGMENTS:
        return False
    return bool(pdfium.segment_kind(pdfium.segment(path, 1)) == _LINE)


def edges(boxes: "Boxes", width: float, height: float) -> Edges:
    """Return the edges of lines and rectangles (x, y, width, height of each)."""
    found = Edges([], [])
    for x, y, w, h in boxes.tolist():
        if w > 0.98 * width and h > 0.9 * height:
            continue  # the background
        if h <= _THIN and w > _SHORT:
            found.horizontal.append((y + h / 2, x, x + w))
        elif w <= _THIN and h > _SHORT:
            found.vertical.append((x + w / 2, y, y + h))
        elif w > _SHORT and h > _SHORT:
            found.horizontal.extend([(y, x, x + w), (y + h, x, x + w)])
            found.vertical.extend([(x, y, y + h), (x + w, y, y + h)])
    return found


def find(words: Words, lines: Edges) -> list[Found]:
    """Return the tables that edges form, from the top of the page down."""
    found = []
    for group in _connected(lines):
        grid = _Grid(group)
        if grid.is_one and (between := grid.undrawn_rows(words)):
            grid = _Grid(group._replace(horizontal=[*group.horizontal, *between]))
        if grid.is_one and (table := grid.table(words)) is not None:
            found.append(table)
    return sorted(found, key=lambda each: each.segments[0].top)


def _connected(lines: Edges) -> Iterator[Edges]:
    """Yield the edges that touch each other, group by group."""
    import numpy as np

    if len(lines.horizontal) < 2 or len(lines.vertical) < 2:
        return
    if len(lines.horizontal) > MAX_EDGES or len(lines.vertical) > MAX_EDGES:
        return
    y, left, right = np.array(lines.horizontal).T
    x, top, bottom = np.array(lines.vertical).T
    touches = (
        (x[None] >= left[:, None] - _NEAR)
        & (x[None] <= right[:, None] + _NEAR)
        & (y[:, None] >= top[None] - _NEAR)
        & (y[:, None] <= bottom[None] + _NEAR)
    )
    rest = np.ones(len(y), np.bool_)
    while rest.any():
        mine, crossing = np.zeros(len(y), np.bool_), np.zeros(len(x), np.bool_)
        new = rest & (np.cumsum(rest) == 1)
        # Each edge is followed once, however long the chain that it is in.
        while new.any():
            mine |= new
            reached = touches[new].any(axis=0) & ~crossing
            crossing |= reached
            new = touches[:, reached].any(axis=1) & ~mine
        rest &= ~mine
        yield Edges(
            [lines.horizontal[i] for i in np.flatnonzero(mine)],
            [lines.vertical[i] for i in np.flatnonzero(crossing)],
        )


def _places(edges: Sequence[tuple[float, float, float]]) -> list[float]:
    """Return the distinct places of edges, those that nearly touch as one."""
    found: list[float] = []
    for place in sorted(each[0] for each in edges):
        if not found or place - found[-1] > _NEAR:
            found.append(place)
    return found


class _Grid:
    """Connected edges as rows and columns."""

    def __init__(self, lines: Edges) -> None:
        self._lines = lines
        self._x = _places(lines.vertical)
        self._y = _places(lines.horizontal)
        self.rows, self.columns = len(self._y) - 1, len(self._x) - 1

    @property
    def is_one(self) -> bool:
        """Whether there are at least two rows and two columns, and not too many cells."""
        return self.rows > 1 and self.columns > 1 and self.rows * self.columns <= MAX_CELLS

    def table(self, words: Words) -> Found | None:
        """Return the table, or None if it is empty, a form of boxes, or has no lines in it."""
        import numpy as np

        column, row, inside = self._place(words)
        roots = self._roots()
        held: dict[tuple[int, int], list[int]] = {}
        for word in np.flatnonzero(inside).tolist():
            held.setdefault(roots[int(row[word])][int(column[word])], []).append(word)
        if len(held) < 4 or np.count_nonzero(inside) > _MAX_WORDS * len(held):
            return None
        spans = self._spans(roots)
        if sum(down * across for down, across in spans.values()) > self.rows * self.columns:
            spans = dict.fromkeys(spans, (1, 1))  # cells that are no rectangles
        cells = [
            Cell(*place, spans[place][0], spans[place][1], runs_of(inner))
            for place, inner in sorted(held.items())
        ]
        sides = np.stack([words.left, words.top, words.right, words.bottom]).T.tolist()
        segments = [_segment(words, sides, each) for each in held.values()]
        if len({cell.column for cell in cells}) < 2:
            return None
        heads = _header_rows(cells, segments, words)
        table = Table(self.rows, self.columns, heads, tuple(cells))
        return Found(_without_empty(table), segments, 95, BlockSource.RULES)

    def _place(self, words: Words) -> Any:
        """Return column and row of each word, and whether it is in the grid."""
        import numpy as np

        middle_x, middle_y = (words.left + words.right) / 2, (words.top + words.bottom) / 2
        column = np.searchsorted(np.array(self._x), middle_x) - 1
        row = np.searchsorted(np.array(self._y), middle_y) - 1
        inside = (column >= 0) & (column < self.columns) & (row >= 0) & (row < self.rows)
        return column, row, inside

    def undrawn_rows(self, words: Words) -> list[tuple[float, float, float]]:
        """Return edges between lines of numbers that no edge divides, in most cells of a row."""
        import numpy as np

        column, row, inside = self._place(words)
        numeric = np.fromiter(map(is_number, words.texts), np.bool_, len(words.texts)) & inside
        lines: dict[int, dict[int, list[int]]] = {}
        for word in np.flatnonzero(numeric).tolist():
            cell = lines.setdefault(int(row[word]), {}).setdefault(int(column[word]), [])
            cell.append(word)
        found: list[tuple[float, float, float]] = []
        for cells in lines.values():
            tops = [sorted({round(float(words.top[w])) for w in inner}) for inner in cells.values()]
            counts = [len(each) for each in tops]
            usual = max(counts, key=counts.count)
            if len(cells) < 2 or usual < 2 or counts.count(usual) < 0.6 * len(counts):
                continue
            best = tops[counts.index(usual)]
            found += [(top - 0.5, self._x[0], self._x[-1]) for top in best[1:]]
        return found

    def _roots(self) -> list[list[tuple[int, int]]]:
        """Return for each place of the grid the first place of the cell that covers it."""
        right = self._walls(self._lines.vertical, self._x, self._y)
        below = self._walls(self._lines.horizontal, self._y, self._x)
        roots: list[list[tuple[int, int]]] = []
        for row in range(self.rows):
            line: list[tuple[int, int]] = []
            for column in range(self.columns):
                root = (row, column)
                if column and not right[column][row]:
                    root = line[column - 1]
                elif row and not below[row][column]:
                    root = roots[row - 1][column]
                line.append(root)
            roots.append(line)
        return roots

    def _walls(
        self,
        edges: Sequence[tuple[float, float, float]],
        places: Sequence[float],
        across: Sequence[float],
    ) -> list[list[bool]]:
        """Tell for each place, and each interval across it, whether an edge is drawn there."""
        walls = [[False] * (len(across) - 1) for _ in places]
        middles = [(one + other) / 2 for one, other in pairwise(across)]
        at = 0
        for place, start, stop in sorted(edges):
            while at + 1 < len(places) and abs(places[at + 1] - place) <= abs(places[at] - place):
                at += 1
            first = bisect_left(middles, start - _NEAR)
            for index in range(first, bisect_right(middles, stop + _NEAR)):
                walls[at][index] = True
        return walls

    def _spans(self, roots: Sequence[Sequence[tuple[int, int]]]) -> dict[tuple[int, int], Any]:
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for row, line in enumerate(roots):
            for column, root in enumerate(line):
                down, across = spans.get(root, (1, 1))
                spans[root] = max(down, row - root[0] + 1), max(across, column - root[1] + 1)
        return spans


def _segment(words: Words, all_sides: list[list[float]], inner: Sequence[int]) -> Segment:
    left, top, right, bottom = zip(*(all_sides[word] for word in inner), strict=True)
    sides = min(left), min(top), max(right), max(bottom)
    texts = [words.texts[word] for word in inner]
    return Segment(
        runs_of(inner), sides, " ".join(texts),
        is_number=is_value(texts), bold=all(words.bold[word] for word in inner),
    )  # fmt: skip


def _header_rows(cells: Sequence[Cell], segments: Sequence[Segment], words: Words) -> int:
    """Count the rows above the first one with a number; of a table of words, one."""
    texts = {each.runs: each for each in segments}
    numeric = [c.row for c in cells if c.column and texts[c.runs].is_number]
    first = min(cell.row for cell in cells)
    # Years are no numbers here: a row of them is a header.
    real = [
        c.row
        for c in cells
        if c.column and texts[c.runs].is_number and not _is_year(texts[c.runs].text)
    ]
    if not numeric:
        return first + 1
    return min(real, default=first + 1)


def _is_year(text: str) -> bool:
    return len(text) == 4 and text.isdigit() and text[:2] in ("19", "20")


def _without_empty(table: Table) -> Table:
    """Leave out rows and columns without text, which double lines leave."""
    rows = sorted({cell.row for cell in table.cells})
    columns = sorted({cell.column for cell in table.cells})
    cells = tuple(
        Cell(
            bisect_left(rows, cell.row), bisect_left(columns, cell.column),
            bisect_left(rows, cell.row + cell.row_span) - bisect_left(rows, cell.row),
            bisect_left(columns, cell.column + cell.column_span)
            - bisect_left(columns, cell.column),
            cell.runs,
        )
        for cell in table.cells
    )  # fmt: skip
    heads = sum(row < table.header_rows for row in rows)
    return table._replace(
        rows=len(rows), columns=len(columns), header_rows=min(heads, len(rows) - 1), cells=cells
    )
