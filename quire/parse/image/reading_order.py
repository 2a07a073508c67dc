"""The order in which people read the lines of a page: down, and column after column."""

from collections.abc import Sequence

Box = tuple[float, float, float, float]  # left, top, right, bottom
_FEWEST = 4  # lines in a column


def in_reading_order(boxes: Sequence[Box], width: float) -> list[int]:
    """Return the places of the boxes in reading order."""
    order = _by_rows(boxes, range(len(boxes)))
    gutter = _gutter(boxes, width)
    if gutter is None:
        return order
    # What crosses the gutter, such as a title, ends the columns above it.
    read: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for index in order:
        if boxes[index][2] <= gutter:
            left.append(index)
        elif boxes[index][0] >= gutter:
            right.append(index)
        else:
            read += [*left, *right, index]
            left, right = [], []
    return [*read, *left, *right]


def _by_rows(boxes: Sequence[Box], indexes: Sequence[int]) -> list[int]:
    rows: list[list[int]] = []
    for index in sorted(indexes, key=lambda i: boxes[i][1] + boxes[i][3]):
        middle = (boxes[index][1] + boxes[index][3]) / 2
        if rows and boxes[rows[-1][0]][1] <= middle <= boxes[rows[-1][0]][3]:
            rows[-1].append(index)
        else:
            rows.append([index])
    return [index for row in rows for index in sorted(row, key=lambda i: boxes[i][0])]


def _gutter(boxes: Sequence[Box], width: float) -> float | None:
    """Return where two columns of prose part: lines on both sides, long ones, few across."""
    for share in (0.5, 0.48, 0.52, 0.45, 0.55):
        x = width * share
        sides = [b for b in boxes if b[2] <= x], [b for b in boxes if b[0] >= x]
        across = len(boxes) - len(sides[0]) - len(sides[1])
        if min(map(len, sides)) < _FEWEST or across > min(map(len, sides)) / 2:
            continue
        # Short lines are the cells of a table, which is read row by row.
        if all(sum(b[2] - b[0] for b in s) / len(s) > width / 4 for s in sides):
            return x
    return None
