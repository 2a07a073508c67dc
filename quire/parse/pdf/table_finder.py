"""Finds tables without drawn lines: rows whose segments stand in columns of white space.

Numbers decide. A region is a run of rows with a number beside something else; its columns are the
unions of the numbers below each other, and columns of text between them. Header lines are those
above whose segments lie over the columns. Running text is told from text tables by how full its
columns are.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import NamedTuple

from quire.model.blocks import BlockSource, Cell, Runs, Table, join_runs
from quire.parse.pdf.lines import Row, Segment

#: Heights of a line between rows of one table, and above a header line.
_MAX_ROW_GAP = 3.2
_MAX_HEADER_GAP = 1.6
_WRAPPED_GAP = 0.3
_MAX_HEADER_LINES = 8
_MAX_LABEL_LINES = 3  # rows in a row with only a label
_MIN_NUMBERS = 3
_MAX_COLUMNS = 200  # more are no table that a person reads
_MIN_TEXT_ROWS = 3
_MIN_TEXT_COLUMNS = 3
_FULL = 0.8  # share of its column that a line of running text fills
_LONG = 25  # characters
_NUMBERED = 0.7  # share of the lines of a listing
_NEARLY_FULL = 0.9
_MIN_FILLED = 0.45  # share of the places of a table
_MIN_LENGTH = 1.6  # characters of an average cell
_FEW_MATH = 0.1
_MUCH_MATH = 0.2
_UNEVEN = 0.2
_OVERLAP = 0.35  # of a line's height
_MIN_ENTRIES = 4  # of a table of contents
_RARE = 0.1  # share of rows that may cross a gap between columns

_LIST_MARK = re.compile(r"\(?(?:\d{1,3}|[ivxIVX]{1,5}|[A-Za-z])[.)]|[•●▪■◦–—*·-]")
_YEAR = re.compile(
    r"(?:19|20)\d\d(?:[AEFP*]|\(\w\))?|\d{1,2}/\d{1,2}/(?:\d\d|\d{4})|(?:FY|CY|[1-4]?Q)[1-4]?'?\d{2,4}"
    r"|(?:19|20)\d\d[-–/](?:19|20)?\d\d"
)
_UNIT = re.compile(
    r"\(?(?:(?:amounts?|dollars?|figures|shares|all|values?|stated|expressed|u\.?s\.?|unaudited|tabular"
    r"|currency|euros?|pounds?|yen|\$|€|£|¥|,|;|and|are|is|as)\s*){0,8}in\s+(?:[\w.$€£¥’']+\s+){0,3}"
    r"(?:thousands?|millions?|billions?|percent(?:ages?)?|dollars|euros?|%|[$€£¥]\s?m(?:illion|n)?)\b"
    r"[^.]{0,120}",
    re.IGNORECASE,
)
_SHORT_UNIT = re.compile(
    r"\(?(?:[$€£¥]|US\$|USD|EUR|GBP|CHF)\s?(?:m|mn|bn|k|million|billion|thousand|000s?|’000|'000)\)?",
    re.IGNORECASE,
)
_CAPTION = re.compile(r"(?:table|exhibit|schedule|tabelle|tableau)\s+[\dIVXA-Z]", re.IGNORECASE)
_NOTE = re.compile(r"(?:\(\w{1,2}\)|\*{1,3}|[†‡§]|\w\)|[\d¹²³]{1,2})(?=\s|$)")


_MATH = re.compile(r"[=≠≈≡∈∉⊆⊂⊃∪∩∑∏∂∇√∫⇒⇔→↦∘◦≤≥∀∃∞⊗⊕∧∨¬]")
_LEADERS = re.compile(r"(?:\.\s?){4,}|…{2,}|_{4,}")
_SECTION = re.compile(r"(?:[A-Z]|[IVX]{1,5}|\d{1,3})(?:\.\d{1,3}){0,5}\.?")


class Found(NamedTuple):
    """A table and what it takes of the page."""

    table: Table
    runs: Runs  # all of the table, with caption, unit and footnotes
    left: float
    top: float
    right: float
    bottom: float
    confidence: int
    source: BlockSource = BlockSource.LAYOUT


class _Placed(NamedTuple):
    column: int
    span: int
    segments: list[Segment]


class _Column(NamedTuple):
    left: float
    right: float


def is_unit(text: str) -> bool:
    """Tell whether a line says in what its numbers are: "in millions"."""
    short = text.strip()
    return bool(_UNIT.fullmatch(short) or _SHORT_UNIT.fullmatch(short))


def is_caption(text: str) -> bool:
    """Tell whether a line names a table: "Table 3"."""
    return _CAPTION.match(text) is not None


def find(rows: Sequence[Row]) -> tuple[list[Found], list[list[Segment]]]:
    """Return the tables of a page, from the top down, and the entries of a table of contents."""
    found: list[Found] = []
    entries: list[list[Segment]] = []
    floor = 0
    for first, stop in _regions(rows):
        if first < floor:
            continue
        region = _Region(rows, first, stop, floor)
        if (one := region.table()) is not None:
            found.append(one)
            floor = region.stop
        entries += region.entries
    return found, entries


def _regions(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(rows):
        if not _is_data(rows[at]):
            at += 1
            continue
        stop = _region_end(rows, at)
        yield at, stop
        at = stop


def _is_data(row: Row) -> bool:
    segments = row.segments
    if _LIST_MARK.fullmatch(segments[0].text):
        segments = segments[1:]
    if len(segments) < 2:
        return False
    # A number before a text is that of a line or an item.
    return len(segments) > 2 or segments[1].is_number


def _region_end(rows: Sequence[Row], first: int) -> int:
    """Return the row after the last one of the table that starts with a row of data."""
    stop = first + 1
    edge = _number_edge(rows[first], float("inf"))
    labels = 0
    for at in range(first + 1, len(rows)):
        row, before = rows[at], rows[at - 1]
        if row.top - before.bottom > _MAX_ROW_GAP * min(row.height, before.height):
            break
        if _is_data(row):
            stop, labels = at + 1, 0
            edge = _number_edge(row, edge)
        elif labels < _MAX_LABEL_LINES and (
            _is_label(row, edge) or _is_wrapped(row, before, rows[stop - 1])
        ):
            labels += 1
        else:
            break
    return stop


def _number_edge(row: Row, edge: float) -> float:
    """Return the left side of the numbers; the first segment of a row is a label even if one."""
    lefts = [each.left for each in row.segments[1:] if each.is_number]
    return min([edge, *lefts])


def _is_label(row: Row, edge: float) -> bool:
    """Tell whether a row has only a label, left of the numbers."""
    segments = row.segments
    if edge == float("inf"):  # a table of text
        return len(segments) > 1
    first, last = segments[0], segments[-1]
    if first.left >= edge:
        return False
    # The name of a section may run over the numbers below it.
    is_section = len(segments) == 1 and (first.bold or first.text.endswith(":"))
    return last.right < edge + first.height or (is_section and len(first.text) <= 80)


def _is_wrapped(row: Row, before: Row, data: Row) -> bool:
    """Tell whether a row has only the next line of a text that stands right of the first column."""
    if len(row.segments) > 1 or len(data.segments) < 3:
        return False
    if row.top - before.bottom > _WRAPPED_GAP * row.height:
        return False
    line = row.segments[0]
    return any(
        abs(each.left - line.left) < 0.3 * line.height and not each.is_number
        for each in data.segments[1:]
    )


def _is_year(segment: Segment) -> bool:
    return _YEAR.fullmatch(segment.text.replace(" ", "")) is not None


def _is_heading_row(row: Row) -> bool:
    """Tell whether all numbers of a row are years or dates."""
    numbers = [each for each in row.segments if each.is_number]
    return (
        bool(numbers)
        and all(map(_is_year, numbers))
        and not (row.segments[0].is_number and len(row.segments) > len(numbers))
    )


class _Region:
    """A run of rows that may be a table."""

    def __init__(self, rows: Sequence[Row], first: int, stop: int, floor: int) -> None:
        self._rows = rows
        self._floor = floor  # rows above belong to another table
        self.stop = stop  # the row after the last one, notes included
        body = first
        while body < stop - 1 and (_is_heading_row(rows[body]) or not rows[body].numbers):
            body += 1
        if not any(row.numbers for row in rows[body:stop]):
            body = first
        self._body = body
        self._height = median(row.height for row in rows[body:stop])
        self._columns: list[_Column] = []
        self.entries: list[list[Segment]] = []  # of a table of contents, which is no table

    def table(self) -> Found | None:
        """Return the table, or None if the rows are none."""
        body = self._rows[self._body : self.stop]
        data = [row for row in body if len(row.segments) > 1]
        if len(data) < 2:
            return None
        numbers = sum(row.numbers for row in data)
        has_numbers = numbers >= _MIN_NUMBERS
        self._columns = self._find_columns(data)
        if not 2 <= len(self._columns) <= _MAX_COLUMNS or not (
            self._are_numbers(data) if has_numbers else self._is_text_table(data)
        ):
            return None
        if _is_contents(data) and (_has_leaders(data) or not self._headers()[0]):
            self.entries = [row.segments for row in data]
            return None
        if self._is_sparse(data) or self._is_listing(body) or _is_formula(body, data):
            return None
        labels = self._labels_above()
        self._body -= labels
        return self._built(self._rows[self._body : self.stop])

    def _labels_above(self) -> int:
        """Count the rows between header and numbers that have only a label: "Assets"."""
        count = 0
        while count < _MAX_LABEL_LINES and self._body - count > self._floor:
            row, below = self._rows[self._body - count - 1], self._rows[self._body - count]
            if below.top - row.bottom > _MAX_HEADER_GAP * self._height:
                return 0
            if self._is_header([s for s in row.segments if not is_unit(s.text)]):
                return count
            edge = self._columns[1].left
            if len(row.segments) > 1 or not _is_label(row, edge) or is_unit(row.segments[0].text):
                return 0
            count += 1
        return 0

    def _find_columns(self, data: Sequence[Row]) -> list[_Column]:
        numeric = _number_columns(data, self._height)
        if len(numeric) > _MAX_COLUMNS:
            return []
        texts = [
            [s for s in row.segments if not s.is_number and not _touching(numeric, s)]
            for row in data
        ]
        return sorted([*numeric, *_text_columns(texts, numeric, self._height)])

    def _are_numbers(self, data: Sequence[Row]) -> bool:
        """Tell whether rows with numbers are a table, and not text that is set in columns."""
        full = sum(map(_is_prose, data))
        if full > len(data) / 2:
            return False
        with_numbers = sum(row.numbers > 0 for row in data)
        return with_numbers >= 2 and with_numbers >= len(data) / 2

    def _is_text_table(self, data: Sequence[Row]) -> bool:
        columns = self._columns
        if len(data) < _MIN_TEXT_ROWS or len(columns) < _MIN_TEXT_COLUMNS:
            return False
        if sum(map(_is_prose, data)) > len(data) / 2:
            return False
        shares, placed = [], 0
        for row in data:
            for each in row.segments:
                column = columns[_nearest(columns, each)]
                shares.append((each.right - each.left) / max(column.right - column.left, 1.0))
            placed += len(row.segments)
        return placed >= 0.6 * len(data) * len(columns) and median(shares) < _FULL

    def _is_sparse(self, data: Sequence[Row]) -> bool:
        """Tell whether most places are empty, as between the labels of a chart."""
        placed = sum(len(row.segments) for row in data)
        places = len(data) * len(self._columns)
        return placed < _MIN_FILLED * places or (len(data) < 3 and placed < 6)

    def _is_listing(self, body: Sequence[Row]) -> bool:
        """Tell whether rows are lines of text or code, each with its number."""
        firsts = [row.segments[0].text for row in body]
        numbers = [int(text) if text.isdecimal() and len(text) < 5 else 0 for text in firsts]
        steps = sum(after - before == 1 for before, after in pairwise(numbers))
        others = sum(row.numbers > 1 for row in body)
        if steps < _NUMBERED * (len(body) - 1) or others > _RARE * len(body):
            return False
        columns = len(self._columns)
        is_full = sum(len(row.segments) == columns for row in body) > _NEARLY_FULL * len(body)
        return columns == 2 or not is_full

    def _built(self, body: Sequence[Row]) -> Found:
        headers, unit, caption = self._headers()
        header_rows = self._header_grid(headers)
        lines = [self._place(row) for row in body]
        header_rows = list(map(_apart, header_rows))
        grid = list(map(_apart, self._merge_labels(body, lines)))
        notes = self._footnotes()
        cells = [
            Cell(row, each.column, 1, each.span, _runs(each.segments))
            for row, line in enumerate([*header_rows, *grid])
            for each in line
        ]
        used = [s for line in (*header_rows, *grid) for each in line for s in each.segments]
        used += [*unit, *caption, *(s for note in notes for s in note)]
        table = Table(
            len(header_rows) + len(grid), len(self._columns),
            # The first row of a table of words says what is in its columns.
            len(header_rows) or int(not any(row.numbers for row in body)), tuple(cells),
            _runs(caption), _runs(unit), tuple(_runs(note) for note in notes),
        )  # fmt: skip
        runs = join_runs(sorted({run for each in used for run in each.runs}))
        return Found(
            table, runs, min(s.left for s in used), min(s.top for s in used),
            max(s.right for s in used), max(s.bottom for s in used), self._confidence(body),
        )  # fmt: skip

    def _confidence(self, body: Sequence[Row]) -> int:
        filled = sum(len(row.segments) for row in body) / (len(body) * len(self._columns))
        return min(95, 50 + round(50 * min(filled, 1.0)))

    def _place(self, row: Row) -> list[_Placed]:
        """Assign the segments of a row to columns."""
        found: list[_Placed] = []
        for each in row.segments:
            first, last = _overlapped(self._columns, each)
            if found and found[-1].column + found[-1].span > first:
                before = found[-1]
                if before.column + before.span <= last and not each.is_number:
                    first = before.column + before.span
                else:
                    before.segments.append(each)
                    continue
            found.append(_Placed(first, last - first + 1, [each]))
        return found

    # Header lines

    def _headers(self) -> tuple[list[list[Segment]], list[Segment], list[Segment]]:
        """Return header lines from the top down, the unit, and the caption."""
        lines: list[list[Segment]] = []
        unit: list[Segment] = []
        caption: list[Segment] = []
        at = self._body
        while at > self._floor and len(lines) < _MAX_HEADER_LINES:
            row, below = self._rows[at - 1], self._rows[at]
            gap = below.top - row.bottom
            if gap > _MAX_HEADER_GAP * self._height:
                break
            texts = [s for s in row.segments if is_unit(s.text)]
            rest = [s for s in row.segments if s not in texts]
            if rest and not self._is_header(rest):
                if is_caption(row.segments[0].text) and len(row.segments) <= 2:
                    caption = list(row.segments)
                break
            unit = [*texts, *unit]
            if rest:
                lines.insert(0, rest)
            at -= 1
        return lines, unit, caption

    def _is_header(self, segments: Sequence[Segment]) -> bool:
        """Tell whether a line above the body lies over its columns."""
        columns = self._columns
        if not segments:
            return False
        left, right = columns[1].left - self._height, columns[-1].right + 3 * self._height
        over = [s for s in segments if s.right <= right and self._is_over(s, left)]
        if not over:
            return False
        if len(over) == len(segments):
            return all(len(s.text) <= 80 for s in over)
        if not all(len(s.text) <= 60 for s in segments):
            return False
        low = columns[0].left - 2 * self._height
        return len(segments) > 1 and all(low <= s.left and s.right <= right for s in segments)

    def _is_over(self, segment: Segment, left: float) -> bool:
        """Tell whether a segment stands over the numbers, or is centred over some of them."""
        columns = self._columns
        if segment.left >= left:
            return True
        if segment.left <= columns[0].left + self._height:
            return False
        is_wide = left < segment.right <= columns[1].right + 2.0
        middle = (segment.left + segment.right) / 2
        return is_wide or (segment.left >= columns[0].right and middle >= left)

    def _header_grid(self, lines: Sequence[Sequence[Segment]]) -> list[list[_Placed]]:
        """Place header lines; lines that continue those above them become one row."""
        found: list[list[_Placed]] = []
        for line in lines:
            placed = self._spread(line)
            if found and _continues(found[-1], placed):
                found[-1] = _stacked(found[-1], placed)
            else:
                found.append(placed)
        return found

    def _spread(self, line: Sequence[Segment]) -> list[_Placed]:
        """Place a header line: a segment centred over several columns spans them."""
        columns = self._columns
        reach = [list(_overlapped(columns, each)) for each in line]
        for index, each in enumerate(line):
            if reach[index][0] == 0:
                continue
            low = reach[index - 1][1] + 1 if index else 1
            high = reach[index + 1][0] - 1 if index + 1 < len(line) else len(columns) - 1
            reach[index] = _centred(columns, each, reach[index], max(low, 1), high)
        found: list[_Placed] = []
        for each, (first, last) in zip(line, reach, strict=True):
            if found and found[-1].column + found[-1].span > first:
                found[-1].segments.append(each)
            else:
                found.append(_Placed(first, last - first + 1, [each]))
        return found

    # Rows

    def _merge_labels(self, body: Sequence[Row], lines: list[list[_Placed]]) -> list[list[_Placed]]:
        """Join a label that was wrapped with its row."""
        found: list[list[_Placed]] = []
        pending: Row | None = None  # the row of the last line, if it has only a label
        last = body[0]
        for row, line in zip(body, lines, strict=True):
            is_label = len(line) == 1 and line[0].column == 0 and not row.numbers
            is_near = row.top - last.bottom < 0.75 * self._height
            if found and is_near and line[0].column == 0:
                joins = self._wraps(pending, row) if pending is not None else False
                joins = joins or (is_label and _is_continuation(row))
                if joins and (pending is not None or is_label):
                    found[-1] = _stacked(found[-1], line)
                    pending = row if is_label and pending is not None else None
                    last = row
                    continue
            found.append(line)
            pending = row if is_label else None
            last = row
        return found

    def _wraps(self, label: Row, row: Row) -> bool:
        """Tell whether a label goes on in the row below."""
        above, below = label.segments[-1], row.segments[0]
        if above.text.endswith(":") or below.is_number or above.bold != below.bold:
            return False
        if _is_continuation(row):
            return True
        room = self._columns[1].left - self._columns[0].left
        if above.right - self._columns[0].left < room / 2:
            return False
        word = below.text.split(" ", 1)[0]
        width = (below.right - below.left) * len(word) / max(len(below.text), 1)
        return above.right + width > self._columns[0].right + 0.3 * self._height

    def _footnotes(self) -> list[list[Segment]]:
        """Return the notes below the table: lines with a mark, and their continuations."""
        notes: list[list[Segment]] = []
        while self.stop < len(self._rows):
            row, above = self._rows[self.stop], self._rows[self.stop - 1]
            gap = row.top - above.bottom
            text = " ".join(each.text for each in row.segments)
            if _is_data(row) or gap > 2.5 * self._height:
                break
            if _NOTE.match(text) and (notes or not text[0].isdigit()):
                notes.append(list(row.segments))
            elif notes and gap < 0.6 * self._height and row.segments[0].left >= notes[-1][0].left:
                notes[-1] += row.segments
            else:
                break
            self.stop += 1
        return notes


def _is_prose(row: Row) -> bool:
    """Tell whether a row has lines of running text side by side: each has many words."""
    return sum(len(each.text) > _LONG for each in row.segments) > 1


def _is_formula(body: Sequence[Row], data: Sequence[Row]) -> bool:
    """Tell whether rows are set mathematics: signs of it, in lines that overlap or differ in size.

    The labels of axes are taken for it, too: they have hardly more than one character each.
    """
    found = [each for row in data for each in row.segments]
    if fmean(len(each.text) for each in found) < _MIN_LENGTH:
        return True
    signs = sum(_MATH.search(each.text) is not None for each in found) / len(found)
    if not _FEW_MATH <= signs < _MUCH_MATH:
        return signs >= _MUCH_MATH
    heights = [each.height for each in found]
    is_uneven = pstdev(heights) > _UNEVEN * fmean(heights)
    overlaps = sum(
        above.bottom - below.top > _OVERLAP * min(above.height, below.height)
        for above, below in pairwise(body)
    )
    return is_uneven or overlaps > _UNEVEN * len(body)


def _is_contents(data: Sequence[Row]) -> bool:
    """Tell whether rows are a table of contents: texts, each with its page, which never falls."""
    if len(data) < _MIN_ENTRIES:
        return False
    pages = [row.segments[-1].text for row in data]
    if not all(page.isdecimal() and len(page) < 5 for page in pages):
        return False
    numbers = list(map(int, pages))
    if any(before > after for before, after in pairwise(numbers)):
        return False
    # Without leaders: the number of a section, its title, and nothing else.
    return _has_leaders(data) or all(
        len(row.segments) == 3
        and not row.segments[1].is_number
        and _SECTION.fullmatch(row.segments[0].text)
        for row in data
    )


def _has_leaders(data: Sequence[Row]) -> bool:
    return sum(_LEADERS.search(row.segments[-2].text) is not None for row in data) > len(data) / 2


def _number_columns(data: Sequence[Row], height: float) -> list[_Column]:
    """Return the unions of numbers that stand below each other."""
    intervals = sorted(
        (each.left, each.right, index)
        for index, row in enumerate(data)
        for each in row.segments
        if each.is_number
    )
    found: list[_Column] = []
    members: list[list[tuple[float, float, int]]] = []
    for left, right, index in intervals:
        if found and left < found[-1].right - 0.15 * height:
            found[-1] = found[-1]._replace(right=max(found[-1].right, right))
            members[-1].append((left, right, index))
        else:
            found.append(_Column(left, right))
            members.append([(left, right, index)])
    return [
        column
        for one, inside in zip(found, members, strict=True)
        for column in _divided(one, inside, height)
    ]


def _divided(
    column: _Column, members: Sequence[tuple[float, float, int]], height: float
) -> list[_Column]:
    """Divide a union that has two numbers of one row, by the right sides of the numbers."""
    rows = [row for _, _, row in members]
    if len(rows) == len(set(rows)):
        return [column]
    found: list[_Column] = []
    for left, right, _ in sorted(members, key=lambda each: each[1]):
        if found and right - found[-1].right < 0.75 * height:
            found[-1] = _Column(min(found[-1].left, left), right)
        else:
            found.append(_Column(left, right))
    return found


def _text_columns(
    rows: Sequence[Sequence[Segment]], numeric: Sequence[_Column], height: float
) -> list[_Column]:
    """Return the columns of text: what is left between gaps that hardly any row crosses."""
    events = sorted(event for row in rows for s in row for event in ((s.left, 1), (s.right, -1)))
    used = sum(map(bool, rows))
    few = int(_RARE * used) if used > 4 else 0
    found: list[_Column] = []
    depth, begun = 0, 0.0
    for x, step in events:
        if depth <= few < depth + step:
            begun = x
        elif depth > few >= depth + step:
            if found and begun - found[-1].right < 0.3 * height:
                found[-1] = found[-1]._replace(right=x)
            else:
                found.append(_Column(begun, x))
        depth += step
    # A label that runs into the numbers ends where they begin.
    return [
        _clipped(column, numeric)
        for column in found
        if not any(n.left <= column.left and column.right <= n.right for n in numeric)
    ]


def _clipped(column: _Column, numeric: Sequence[_Column]) -> _Column:
    right = min((n.left for n in numeric if column.left < n.left < column.right), default=None)
    return column if right is None else column._replace(right=right)


def _touching(columns: Sequence[_Column], segment: Segment) -> bool:
    """Tell whether a segment lies mostly in one of the columns."""
    width = segment.right - segment.left
    return any(
        min(segment.right, c.right) - max(segment.left, c.left) > 0.5 * width for c in columns
    )


def _overlapped(columns: Sequence[_Column], segment: Segment) -> tuple[int, int]:
    """Return the first and last column that a segment lies in, or the nearest one."""
    slack = 0.25 * segment.height
    left, right = segment.left, segment.right
    found = [
        index
        for index, (start, stop) in enumerate(columns)
        # A call of min or max would take longer than the rest.
        if (stop if stop < right else right) - (start if start > left else left) > slack
    ]
    if segment.is_number and found:
        # A number has one column: that whose right side is nearest.
        best = min(found, key=lambda index: abs(columns[index].right - segment.right))
        return best, best
    if found:
        return found[0], found[-1]
    best = _nearest(columns, segment)
    return best, best


def _nearest(columns: Sequence[_Column], segment: Segment) -> int:
    middle = (segment.left + segment.right) / 2
    return min(
        range(len(columns)),
        key=lambda index: max(columns[index].left - middle, middle - columns[index].right, 0.0),
    )


def _centred(
    columns: Sequence[_Column], segment: Segment, reach: list[int], low: int, high: int
) -> list[int]:
    """Extend the columns below a header as long as its middle comes nearer to theirs."""
    middle = (segment.left + segment.right) / 2

    def distance(first: int, last: int) -> float:
        return abs((columns[first].left + columns[last].right) / 2 - middle)

    first, last = reach
    while True:
        options = [(first, last)]
        options += [(first - 1, last)] if first > low else []
        options += [(first, last + 1)] if last < high else []
        best = min(options, key=lambda each: distance(*each))
        if best == (first, last) or distance(*best) > distance(first, last) - 2.0:
            return [first, last]
        first, last = best


def _continues(above: Sequence[_Placed], below: Sequence[_Placed]) -> bool:
    """Tell whether a header line goes on from the one above: each stands in one column."""
    return all(each.span == 1 for each in (*above, *below))


def _stacked(above: Sequence[_Placed], below: Sequence[_Placed]) -> list[_Placed]:
    found = {each.column: _Placed(each.column, each.span, list(each.segments)) for each in above}
    for each in below:
        if each.column in found:
            found[each.column].segments.extend(each.segments)
        else:
            found[each.column] = each
    return [found[column] for column in sorted(found)]


def _apart(line: Sequence[_Placed]) -> list[_Placed]:
    """End each cell before the next one: lines that were stacked may have overlapped."""
    ends = [each.column for each in line[1:]] + [line[-1].column + line[-1].span]
    return [
        each if each.column + each.span <= end else each._replace(span=end - each.column)
        for each, end in zip(line, ends, strict=True)
    ]


def _is_continuation(row: Row) -> bool:
    return row.segments[0].text[:1].islower()


def _runs(segments: Sequence[Segment]) -> Runs:
    if len(segments) == 1:
        return segments[0].runs
    return join_runs(run for each in segments for run in each.runs)
