"""Charts as SVG text: no library, no script, printable, and testable as a string.

Colours come from classes of the style sheet; shapes differ too, so that no state is told by
colour alone. Everything drawn is a number or is escaped.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from quire import format

WIDTH, HEIGHT = 320, 72
#: Between two documents of a strip.
GAP = 6.0
STRIP_HEIGHT = 26


class Bar(NamedTuple):
    """One column of a chart: how many of each class, and what it says on hover."""

    parts: Mapping[str, float]
    title: str


def stacked(bars: Sequence[Bar], classes: Sequence[str], label: str) -> Markup:
    """Draw columns, each a stack of the classes in their order."""
    if not bars:
        return Markup("")
    top = max(max(sum(bar.parts.values()) for bar in bars), 1.0)
    step = WIDTH / len(bars)
    width = max(step - 1.5, 0.8)
    drawn = []
    for at, bar in enumerate(bars):
        y, pieces = float(HEIGHT), Markup("")
        for name in classes:
            tall = bar.parts.get(name, 0) / top * (HEIGHT - 4)
            if tall:
                y -= max(tall, 1.5)
                pieces += Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                    name, _n(at * step), _n(y), _n(width), _n(max(tall, 1.5))
                )
        drawn.append(Markup("<g>{}<title>{}</title></g>").format(pieces, bar.title))
    return _framed(Markup("").join(drawn), label)


def sparkline(values: Sequence[float | None], label: str, *, also: Sequence[Any] = ()) -> Markup:
    """Draw a line, and a fainter one on the same scale; None is a gap."""
    known = [v for v in (*values, *also) if v is not None]
    if not known:
        return Markup("")
    top = max(known) or 1.0
    lines = Markup("")
    for name, some in (("faint", also), ("line", values)):
        for path in _runs(some, top):
            lines += Markup('<path class="{}" d="{}"/>').format(name, path)
    return _framed(lines, label)


def _runs(values: Sequence[float | None], top: float) -> list[str]:
    """Return a path for each stretch without gaps; a lone value is a short stroke."""
    step = WIDTH / max(len(values), 1)
    paths: list[list[str]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            paths.append([])
            continue
        x, y = (at + 0.5) * step, HEIGHT - 3 - value / top * (HEIGHT - 8)
        if not paths[-1]:
            paths[-1].append(f"M{_n(x - 1)} {_n(y)}")
        paths[-1].append(f"L{_n(x)} {_n(y)}")
    return ["".join(path) for path in paths if path]


class Cell(NamedTuple):
    """A range of pages and how it stands."""

    document_id: int
    from_page: int
    to_page: int
    state: str
    progress: float = 0.0
    name: str = ""


def strip(cells: Sequence[Cell], label: str) -> Markup:
    """Draw ranges of pages in their order, as wide as they have pages, a gap between documents."""
    if not cells:
        return Markup("")
    breaks = sum(a.document_id != b.document_id for a, b in pairwise(cells))
    total = sum(_pages(cell) for cell in cells)
    # Many small documents must not leave all the room to the gaps.
    gap = min(GAP, 250.0 / breaks) if breaks else 0.0
    unit = (1000 - gap * breaks) / total
    x, drawn, last = 0.0, Markup(""), cells[0].document_id
    for cell in cells:
        if cell.document_id != last:
            x, last = x + gap, cell.document_id
        wide = _pages(cell) * unit
        drawn += _cell(cell, x, max(wide - min(1.5, wide / 4), 0.4))
        x += wide
    return Markup(
        '<svg class="strip" viewBox="0 0 1000 {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(STRIP_HEIGHT, label, drawn)


def _cell(cell: Cell, x: float, wide: float) -> Markup:
    tone = format.tone(cell.state)
    span = f"page {cell.from_page}"
    if cell.to_page != cell.from_page:
        span = f"pages {cell.from_page}–{cell.to_page}"
    if not cell.document_id:
        span = format.count(_pages(cell), "task")
    title = " · ".join(part for part in (cell.name, span, cell.state) if part)
    inner = Markup('<rect class="cell {}" x="{}" y="1" width="{}" height="{}"/>').format(
        tone, _n(x), _n(wide), STRIP_HEIGHT - 2
    )
    if tone == "run":
        done = wide * min(max(cell.progress, 0.0), 1.0)
        inner += Markup('<rect class="part" x="{}" y="1" width="{}" height="{}"/>').format(
            _n(x), _n(done), STRIP_HEIGHT - 2
        )
    if tone == "bad":
        inner += Markup('<path class="cross" d="M{} 3L{} {}M{} 3L{} {}"/>').format(
            _n(x), _n(x + wide), STRIP_HEIGHT - 3, _n(x + wide), _n(x), STRIP_HEIGHT - 3
        )
    return Markup("<g>{}<title>{}</title></g>").format(inner, title)


def boxes(some: Sequence[Sequence[float]], kind: str) -> Markup:
    """Draw boxes (x, y, width, height) as one path: a page has hundreds."""
    if not some:
        return Markup("")
    path = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in some)
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _pages(cell: Cell) -> int:
    return max(cell.to_page - cell.from_page + 1, 1)


def _framed(inner: Markup, label: str) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, label, inner)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
