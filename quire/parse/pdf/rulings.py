"""Finds tables whose cells are drawn: the lines and rectangles of a page, and the grids they form.

Only paths of a few segments count: those of charts and logos have more. Rows that are not drawn are
told by the lines of numbers in the cells.
"""

import ctypes
import functools
from collections.abc import Iterator, Sequence
from itertools import compress, pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.model.blocks import BlockSource, Cell, Table
from quire.parse.pdf.lines import IS_END, IS_NUMBER, IS_SIGN, Words
from quire.parse.pdf.table_finder import Found
from quire.parse.pdf.text import displayed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Boxes = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]
    Indexes = npt.NDArray[np.intp]

MAX_OBJECTS = 20_000  # of a page; more are a drawing
MAX_EDGES = 3_000
MAX_LINES = 1_000  # of joined edges, level or steep; a page has no more rows or columns
MAX_CELLS = 20_000
_MIN_LINES = 3  # of two rows, and of two columns
_MAX_SEGMENTS = 6
_THIN = 3.0  # points
_SHORT = 4.0
_NEAR = 2.5  # edges that nearly touch are one
_MAX_WORDS = 40  # in an average cell; more is a page laid out in boxes
_MAX_WORDS_APART = 12  # the same if few cells stand beside each other
#: Shares of cells that are no rectangles, above which edges are a drawing; and what is few text.
_MANY_ODD = 0.1
_FEW_ODD = 0.05
_FEW_HELD = 0.5
_PATH = 2  # FPDF_PAGEOBJ_PATH
_LINE = 0  # FPDF_SEGMENT_LINETO


class Edges(NamedTuple):
    """Straight lines: rows of place, start, stop."""

    horizontal: "Boxes"
    vertical: "Boxes"


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


def drawn(page: Any) -> Edges | None:
    """Return the edges of a page as it is displayed, or None if it has too few or too many."""
    corners = path_corners(page)
    return edges(displayed(page, corners), *page.get_size()) if corners.size else None


def path_corners(page: Any) -> "Boxes":
    """Return left, bottom, right, top of each simple path of a page, in its own space."""
    import numpy as np

    pdfium = _functions()
    handle = ctypes.cast(page.raw, ctypes.c_void_p).value
    count = pdfium.count(handle)
    paths: list[int] = []
    if 4 <= count <= MAX_OBJECTS:
        objects = list(map(pdfium.get, repeat(handle), range(count)))
        kinds = map(pdfium.kind, objects)
        paths = [each for each, kind in zip(objects, kinds, strict=True) if kind == _PATH]
    if len(paths) < 4:
        return np.zeros((4, 0))
    paths, lengths = _straight(paths)
    if not 4 <= len(paths) <= MAX_EDGES:
        return np.zeros((4, 0))
    sides = np.zeros((len(paths), 4), np.float32)
    at = range(sides.ctypes.data, sides.ctypes.data + 16 * len(paths), 16)
    places = (range(at.start + side, at.stop + side, 16) for side in (0, 4, 8, 12))
    has_bounds = list(map(pdfium.bounds, paths, *places))
    # A single line that is slanted is no edge.
    is_level = np.minimum(sides[:, 2] - sides[:, 0], sides[:, 3] - sides[:, 1]) <= _THIN
    keep = np.array(has_bounds, np.bool_) & (is_level | (np.array(lengths) > 2))
    corners: Boxes = sides[keep].astype(np.float64).T
    return corners


def _straight(paths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the paths of few segments whose first one is a line and no curve, and how many."""
    pdfium = _functions()
    counts = list(map(pdfium.segments, paths))
    is_short = [1 < count <= _MAX_SEGMENTS for count in counts]
    paths, counts = list(compress(paths, is_short)), list(compress(counts, is_short))
    kinds = map(pdfium.segment_kind, map(pdfium.segment, paths, repeat(1)))
    is_line = [kind == _LINE for kind in kinds]
    return list(compress(paths, is_line)), list(compress(counts, is_line))


def edges(boxes: "Boxes", width: float, height: float) -> Edges:
    """Return the edges of lines and rectangles (x, y, width, height of each)."""
    import numpy as np

    is_background = (boxes[:, 2] > 0.98 * width) & (boxes[:, 3] > 0.9 * height)
    x, y, w, h = boxes[~is_background].T
    level = (h <= _THIN) & (w > _SHORT)
    steep = ~level & (w <= _THIN) & (h > _SHORT)
    whole = ~level & ~steep & (w > _SHORT) & (h > _SHORT)
    both = 2 * np.count_nonzero(whole)
    if min(np.count_nonzero(level), np.count_nonzero(steep)) + both < _MIN_LINES:
        return Edges(np.zeros((0, 3)), np.zeros((0, 3)))
    right, low = x + w, y + h
    horizontal = [
        np.stack([y + h / 2, x, right])[:, level],
        np.stack([y, x, right])[:, whole], np.stack([low, x, right])[:, whole],
    ]  # fmt: skip
    vertical = [
        np.stack([x + w / 2, y, low])[:, steep],
        np.stack([x, y, low])[:, whole], np.stack([right, y, low])[:, whole],
    ]  # fmt: skip
    return Edges(*(_joined(np.concatenate(some, 1).T) for some in (horizontal, vertical)))


def _joined(edges: "Boxes") -> "Boxes":
    """Join edges on one line that touch or overlap, as those of neighbouring cells do."""
    import numpy as np

    if len(edges) < 2:
        return edges
    place, start, stop = edges[np.lexsort((edges[:, 1], edges[:, 0]))].T
    is_new_line = np.diff(place, prepend=-np.inf) > 0
    # Lines one after the other on one axis, so that the furthest stop so far is never of another.
    span = max(stop.max() - start.min(), 0) + 1
    shift = np.cumsum(is_new_line) * (2 * span)
    furthest = np.maximum.accumulate(stop + shift)
    is_new = is_new_line.copy()
    is_new[1:] |= start[1:] + shift[1:] > furthest[:-1]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(place)) - 1
    return np.stack([place[first], start[first], (furthest - shift)[last]], 1)


def find(words: Words, lines: Edges) -> list[Found]:
    """Return the tables that edges form, from the top of the page down."""
    found = []
    for group in _connected(lines):
        grid = _Grid(group, words)
        if grid.is_one and len(between := grid.undrawn_rows()):
            grid = _Grid(group._replace(horizontal=_with(group.horizontal, between)), words)
        if grid.is_one and (table := grid.table()) is not None:
            found.append(table)
    return sorted(found, key=lambda each: each.top)


def _with(edges: "Boxes", more: Sequence[tuple[float, float, float]]) -> "Boxes":
    import numpy as np

    return np.concatenate([edges, np.array(more)])


def _connected(lines: Edges) -> Iterator[Edges]:
    """Yield the edges that touch each other, group by group, as far as they may be a grid."""
    import numpy as np

    if not all(1 < len(some) <= MAX_LINES for some in lines):
        return
    y, left, right = lines.horizontal.T
    x, top, bottom = lines.vertical.T
    touches = (
        (x[None] >= left[:, None] - _NEAR)
        & (x[None] <= right[:, None] + _NEAR)
        & (y[:, None] >= top[None] - _NEAR)
        & (y[:, None] <= bottom[None] + _NEAR)
    )
    # A group of two columns has an edge that touches two others.
    rest = touches.sum(axis=1) > 1
    while rest.any():
        mine, crossing = np.zeros(len(y), np.bool_), np.zeros(len(x), np.bool_)
        new = np.zeros(len(y), np.bool_)
        new[rest.argmax()] = True
        # Each edge is followed once, however long the chain that it is in.
        while new.any():
            mine |= new
            reached = touches[new].any(axis=0) & ~crossing
            crossing |= reached
            new = touches[:, reached].any(axis=1) & ~mine
        rest &= ~mine
        yield Edges(lines.horizontal[mine], lines.vertical[crossing])


def _places(edges: "Boxes") -> list[float]:
    """Return the distinct places of edges, those that nearly touch as one."""
    found: list[float] = []
    for place in sorted(edges[:, 0].tolist()):
        if not found or place - found[-1] > _NEAR:
            found.append(place)
    return found


class _Grid:
    """Connected edges as rows and columns, and the words of the page in them."""

    def __init__(self, lines: Edges, words: Words) -> None:
        import numpy as np

        self._lines = lines
        self._words = words
        self._x = np.array(_places(lines.vertical))
        self._y = np.array(_places(lines.horizontal))
        self.rows, self.columns = len(self._y) - 1, len(self._x) - 1
        if not self.is_one:
            return
        column = np.searchsorted(self._x, (words.left + words.right) / 2) - 1
        row = np.searchsorted(self._y, (words.top + words.bottom) / 2) - 1
        inside = (column >= 0) & (column < self.columns) & (row >= 0) & (row < self.rows)
        self._inside = np.flatnonzero(inside)
        self._column, self._row = column[inside], row[inside]

    @property
    def is_one(self) -> bool:
        """Whether there are at least two rows and two columns, and not too many cells."""
        return self.rows > 1 and self.columns > 1 and self.rows * self.columns <= MAX_CELLS

    def table(self) -> Found | None:
        """Return the table, or None if it is empty, a form of boxes, or has no lines in it."""
        import numpy as np

        words, roots = self._inside, self._roots()
        place = roots[self._row, self._column]
        order = np.argsort(place, kind="stable")
        words, place = words[order], place[order]
        starts = _starts(place)
        held = place[starts]
        row, column = np.divmod(held, self.columns)
        is_lattice = self.columns > 2 and len(np.unique(roots)) == roots.size
        if not _is_table(row, column, len(words), is_lattice=is_lattice):
            return None
        down, across, is_drawing = self._spans(roots, len(held))
        if is_drawing:
            return None
        heads = self._header_rows(words, starts, row, column)
        rows, columns = np.unique(row), np.unique(column)
        below, after = (
            np.searchsorted(rows, row + down[held]), np.searchsorted(columns, column + across[held])
        )  # fmt: skip
        row, column = np.searchsorted(rows, row), np.searchsorted(columns, column)
        cells = map(Cell._make, zip(
            row.tolist(), column.tolist(), (below - row).tolist(), (after - column).tolist(),
            _runs(words, starts), strict=True,
        ))  # fmt: skip
        # Rows and columns without text, which double lines leave, are left out.
        heads = min(int(np.count_nonzero(rows < heads)), len(rows) - 1)
        table = Table(len(rows), len(columns), heads, tuple(cells))
        return Found(
            table, next(_runs(np.sort(words), np.zeros(1, np.intp))),
            float(self._words.left[words].min()), float(self._words.top[words].min()),
            float(self._words.right[words].max()), float(self._words.bottom[words].max()),
            95, BlockSource.RULES,
        )  # fmt: skip

    def _header_rows(
        self, words: "Indexes", starts: "Indexes", row: "Indexes", column: "Indexes"
    ) -> int:
        """Count the rows above the first one with a number; of a table of words, one."""
        import numpy as np

        kinds = self._words.kinds[words]
        is_value = np.logical_and.reduceat(kinds > 0, starts) & np.logical_or.reduceat(
            (kinds & (IS_NUMBER | IS_SIGN | IS_END)) == IS_NUMBER, starts
        )
        numeric = np.flatnonzero(is_value & (column > 0))
        stops = np.append(starts[1:], len(words))
        for each in numeric.tolist():
            # Years are no numbers here: a row of them is a header.
            is_single = stops[each] - starts[each] == 1
            if not is_single or not _is_year(self._words.texts[words[starts[each]]]):
                return int(row[each])
        return int(row[0]) + 1

    def undrawn_rows(self) -> list[tuple[float, float, float]]:
        """Return edges between lines of numbers that no edge divides, in most cells of a row."""
        import numpy as np

        is_number = (self._words.kinds[self._inside] & IS_NUMBER) > 0
        row, column = self._row[is_number], self._column[is_number]
        top = np.rint(self._words.top[self._inside[is_number]])
        order = np.lexsort((top, column, row))
        y, x, place = row[order], column[order], top[order]
        if not ((y[1:] == y[:-1]) & (x[1:] == x[:-1]) & (place[1:] != place[:-1])).any():
            return []  # no cell has two lines
        found: list[tuple[float, float, float]] = []
        lines: dict[int, dict[int, list[float]]] = {}
        for at, cell, line in zip(row.tolist(), column.tolist(), top.tolist(), strict=True):
            lines.setdefault(at, {}).setdefault(cell, []).append(line)
        for cells in lines.values():
            tops = [sorted(set(each)) for each in cells.values()]
            counts = [len(each) for each in tops]
            usual = max(counts, key=counts.count)
            if len(cells) < 2 or usual < 2 or counts.count(usual) < 0.6 * len(counts):
                continue
            best = tops[counts.index(usual)]
            found += [(line - 0.5, self._x[0], self._x[-1]) for line in best[1:]]
        return found

    def _roots(self) -> "Indexes":
        """Return for each place of the grid the first place of the cell that covers it."""
        import numpy as np

        places = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        left = _walls(self._lines.vertical, self._x, self._y)[:-1].T
        above = _walls(self._lines.horizontal, self._y, self._x)[:-1]
        left[:, 0] = above[0] = True
        if left.all() and above.all():
            return places
        first = np.maximum.accumulate(np.where(left, np.arange(self.columns), 0), axis=1)
        for row in range(self.rows):
            # What has a line neither to its left nor above belongs to the cell on its left.
            if row:
                places[row] = np.where(above[row], places[row], places[row - 1])
            places[row] = places[row][first[row]]
        return places

    def _spans(self, roots: "Indexes", held: int) -> "tuple[Indexes, Indexes, bool]":
        """Return rows and columns of the cell that begins at a place, by place.

        Also tell whether the edges are those of a drawing: many of its cells are no rectangles.
        """
        import numpy as np

        size = self.rows * self.columns
        down, across = np.ones(size, np.intp), np.ones(size, np.intp)
        flat = roots.ravel()
        row, column = np.divmod(np.arange(size), self.columns)
        np.maximum.at(down, flat, row - flat // self.columns + 1)
        np.maximum.at(across, flat, column - flat % self.columns + 1)
        begins = flat == np.arange(size)
        area = (down * across)[begins]
        odd = np.count_nonzero(area != np.bincount(flat, minlength=size)[begins])
        if area.sum() > size:
            down[:], across[:] = 1, 1
        few = _FEW_ODD if held < _FEW_HELD * len(area) else _MANY_ODD
        return down, across, bool(odd > few * len(area))


def _is_table(row: "Indexes", column: "Indexes", words: int, *, is_lattice: bool) -> bool:
    """Tell whether the cells that hold words stand beside each other, as those of a table do.

    In a lattice of many cells most may be empty.
    """
    import numpy as np

    count = len(row)
    if count < 4 or words > _MAX_WORDS * count or len(np.unique(column)) < 2:
        return False
    in_row = np.bincount(row)
    beside = int(in_row[in_row > 1].sum())
    if beside < 6 and np.count_nonzero(in_row > 1) < 2 and not is_lattice:
        return False  # a box, a diagram, or lines with a background
    return beside >= count / 2 or words <= _MAX_WORDS_APART * count


def _walls(edges: "Boxes", places: "Boxes", across: "Boxes") -> "Flags":
    """Tell for each place, and each interval across it, whether an edge is drawn there."""
    import numpy as np

    place, start, stop = edges.T
    at = np.searchsorted((places[1:] + places[:-1]) / 2, place, side="right")
    middles = (across[1:] + across[:-1]) / 2
    first = np.searchsorted(middles, start - _NEAR)
    last = np.maximum(np.searchsorted(middles, stop + _NEAR, side="right"), first)
    steps = np.zeros((len(places), len(across)), np.intp)
    np.add.at(steps, (at, first), 1)
    np.add.at(steps, (at, last), -1)
    return steps.cumsum(axis=1)[:, :-1] > 0


def _starts(places: "Indexes") -> "Indexes":
    """Return where a new place begins in a sorted row of places."""
    import numpy as np

    return np.flatnonzero(np.diff(places, prepend=-1))


def _runs(words: "Indexes", starts: "Indexes") -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield the runs of the words of each cell."""
    import numpy as np

    is_new = np.diff(words, prepend=-2) != 1
    is_new[starts] = True
    begins = np.flatnonzero(is_new)
    first = words[begins]
    stop = words[np.append(begins[1:], len(words)) - 1] + 1
    runs = list(zip(first.tolist(), stop.tolist(), strict=True))
    bounds = [*np.searchsorted(begins, starts).tolist(), len(runs)]
    for at, end in pairwise(bounds):
        yield tuple(runs[at:end])


def _is_year(text: str) -> bool:
    return len(text) == 4 and text.isdigit() and text[:2] in ("19", "20")
