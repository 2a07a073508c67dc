"""Generates report-like PDFs whose tables, headings and running lines are known.

Each report is determined by its number, and has a style of its own: font, sizes, how headings and
tables are set, whether tables have lines. A hash of the number assigns it to the half that the
reading code may be tuned on, or to the half that figures come from.
"""

import hashlib
import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.ingest.prose import Prose

_HELVETICA = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 "
    "500 500 500 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 "
    "722 667 944 667 667 611",
    {" ": 278, ",": 278, ".": 278, "(": 333, ")": 333, "$": 556, "%": 889, "-": 333, "\x97": 1000,
     ":": 278, "/": 278, "'": 191, "*": 389, "\x95": 350, "\x96": 556},
    556,
)  # fmt: skip
_TIMES = (
    _HELVETICA[0],
    "444 500 444 500 444 333 500 500 278 278 500 278 778 500 500 500 500 333 389 278 500 500 722 "
    "500 500 444 722 667 667 722 611 556 722 722 333 389 722 611 889 722 722 556 722 667 556 611 "
    "722 722 944 722 722 611",
    {" ": 250, ",": 250, ".": 250, "(": 333, ")": 333, "$": 500, "%": 833, "-": 333, "\x97": 1000,
     ":": 278, "/": 278, "'": 180, "*": 500, "\x95": 350, "\x96": 500},
    500,
)  # fmt: skip
FONTS = {"Helvetica": _HELVETICA, "Times": _TIMES}
_NAMES = {
    "Helvetica": ("Helvetica", "Helvetica-Bold"),
    "Times": ("Times-Roman", "Times-Bold"),
}
DASH = "\x97"  # an em dash in WinAnsi
_SHOWN = {"\x97": "—", "\x95": "•", "\x96": "–"}


@dataclass
class TrueTable:
    """A table as a reader sees it."""

    headers: list[list[str]]  # by line, one text for each column; a spanning one is repeated
    rows: list[list[str]]
    unit: str = ""

    @property
    def leaf(self) -> list[str]:
        """The words above each column, without those that span several."""
        lines = [line for line in self.headers if not _spans(line)]
        return [" ".join(filter(None, texts)) for texts in zip(*lines, strict=True)]

    @property
    def lines(self) -> list[list[str]]:
        """All rows; header lines that continue each other are one."""
        return [*filter(_spans, self.headers), self.leaf, *self.rows]


def _spans(line: Sequence[str]) -> bool:
    """Tell whether a header line has a text over several columns."""
    return any(one == other for one, other in pairwise(line[1:]))


@dataclass
class TruePage:
    """What is on a page."""

    tables: list[TrueTable] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    columns: int = 1
    is_prose: bool = True
    blocks: list[str] = field(default_factory=list)  # first words of what is read one by one


@dataclass
class Report:
    """A file and what is in it."""

    number: int
    content: bytes
    pages: list[TruePage]

    @property
    def is_for_tuning(self) -> bool:
        """Whether the reading code may be tuned on this report."""
        return hashlib.sha256(f"report {self.number}".encode()).digest()[0] < 128


@dataclass
class Style:
    """How a report is set."""

    font: str
    size: float
    leading: float
    heading: str  # large, bold, caps or numbered
    rules: str  # none, lines, grid or zebra
    has_signs: bool
    columns_gap: float
    number: int


class Canvas:
    """Draws one page; the origin is at the top left."""

    def __init__(self, style: Style, width: float = 595, height: float = 842) -> None:
        self.style, self.width, self.height = style, width, height
        self._commands: list[str] = []

    def length(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width of a text in points."""
        letters, widths, more, digit = FONTS[self.style.font]
        known = dict(zip(letters, map(int, widths.split()), strict=True)) | more
        wide = sum(known.get(each, digit) for each in text) * size / 1000
        return wide * (1.05 if bold else 1.0)

    def text(self, x: float, y: float, text: str, size: float, *, bold: bool = False) -> None:
        """Draw a text with its baseline at y."""
        safe = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
        font = "F2" if bold else "F1"
        self._commands.append(
            f"BT /{font} {size:g} Tf {x:.2f} {self.height - y:.2f} Td ({safe}) Tj ET"
        )

    def right(self, x: float, y: float, text: str, size: float, *, bold: bool = False) -> None:
        """Draw a text that ends at x."""
        self.text(x - self.length(text, size, bold=bold), y, text, size, bold=bold)

    def centre(self, x: float, y: float, text: str, size: float, *, bold: bool = False) -> None:
        """Draw a text whose middle is at x."""
        self.text(x - self.length(text, size, bold=bold) / 2, y, text, size, bold=bold)

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a thin line."""
        self._commands.append(
            f"0.5 w {x0:.2f} {self.height - y0:.2f} m {x1:.2f} {self.height - y1:.2f} l S"
        )

    def fill(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a light grey rectangle."""
        self._commands.append(
            f"0.9 g {x:.2f} {self.height - y - height:.2f} {width:.2f} {height:.2f} re f 0 g"
        )

    def content(self) -> bytes:
        """Return the content stream."""
        return "\n".join(self._commands).encode("latin-1")


class _Writer:
    """Writes one report."""

    def __init__(self, number: int) -> None:
        self.dice = random.Random(number)  # noqa: S311
        self.prose = Prose(number)
        dice = self.dice
        self.style = Style(
            dice.choice(["Helvetica", "Times"]),
            dice.choice([8.5, 9, 10, 10.5]),
            dice.choice([1.2, 1.3, 1.45]),
            dice.choice(["large", "bold", "caps", "numbered"]),
            dice.choice(["none", "none", "lines", "grid", "zebra"]),
            dice.random() < 0.6,
            dice.choice([14.0, 24.0, 40.0]),
            number,
        )
        self.name = self.prose.sentence().split(" ", 1)[0].strip(",.").capitalize()
        self.name += dice.choice([" Holdings", " Corporation", " Group plc", " Industries"])
        self.canvas = Canvas(self.style)
        self.page = TruePage()
        self.section = 0
        self.y = 0.0

    @property
    def step(self) -> float:
        return self.style.size * self.style.leading

    def start(self, number: int) -> None:
        """Start a page with its running lines."""
        self.canvas, self.page = Canvas(self.style), TruePage()
        size = self.style.size - 1
        head = f"{self.name} {DASH} Annual Report 2021"
        if self.style.number % 3:
            self.canvas.text(60, 40, head, size)
            self.page.running.append(shown(head))
        foot = [str(number), f"Page {number} of 12", f"{self.name}  |  {number}"][
            self.style.number % 3
        ]
        self.canvas.centre(297, 810, foot, size)
        self.page.running.append(shown(" ".join(foot.split())))
        self.y = 75.0

    def heading(self) -> None:
        """Write a heading of the report's kind."""
        words = self.prose.sentence().rstrip(".").replace(",", "").split()
        text = " ".join(words[: self.dice.randint(2, 5)]).capitalize()
        size, bold = self.style.size, True
        kind = self.style.heading
        if kind == "large":
            size, bold = self.style.size * 1.4, self.dice.random() < 0.5
        elif kind == "caps":
            text, bold = text.upper(), self.dice.random() < 0.5
        elif kind == "numbered":
            self.section += 1
            text = f"{self.section}. {text}"
        self.y += self.step * 0.8
        self.canvas.text(60, self.y, text, size, bold=bold)
        self.page.headings.append(text)
        self.page.blocks.append(text)
        self.y += self.step * 1.5

    def paragraph(self, x: float = 60, width: float = 475, mark: str = "") -> None:
        """Write a paragraph, wrapped to a width."""
        text = " ".join(self.prose.sentence() for _ in range(self.dice.randint(2, 4)))
        size, y = self.style.size, self.y
        if mark:
            self.canvas.text(x, y, mark, size)
            x, width = x + 16, width - 16
        self.page.blocks.append(" ".join(text.split()[:4]))
        line = ""
        for word in text.split():
            if line and self.canvas.length(f"{line} {word}", size) > width:
                self.canvas.text(x, y, line, size)
                y, line = y + self.step, word
            else:
                line = f"{line} {word}".strip()
        self.canvas.text(x, y, line, size)
        self.y = y + self.step * 1.7

    def prose_page(self) -> None:
        """Fill a page with headings, paragraphs and lists."""
        while self.y < 680:
            self.heading()
            for _ in range(self.dice.randint(1, 3)):
                if self.y < 700:
                    self.paragraph()
            if self.dice.random() < 0.3:
                for index in range(self.dice.randint(2, 4)):
                    if self.y < 720:
                        self.paragraph(mark=self.dice.choice(["\x95", f"({index + 1})"]))

    def two_columns(self) -> None:
        """Fill a page with two columns of prose."""
        self.page.columns = 2
        top = self.y
        for x in (60, 310):
            self.y = top
            while self.y < 640:
                self.paragraph(x, 225)

    def table(self, *, is_text: bool = False) -> None:
        """Write a table with an introduction, perhaps with notes, and prose after it."""
        self.page.is_prose = False
        self.heading()
        self.paragraph()
        if is_text:
            _text_table(self)
        else:
            _Statement(self).draw()
        self.y += self.step
        if self.y < 700:
            self.paragraph()


def _amount(writer: _Writer, scale: int, *, is_percent: bool) -> str:
    dice = writer.dice
    if dice.random() < 0.06:
        return DASH
    if is_percent:
        value = f"{dice.uniform(0, 60):.1f}%"
    else:
        value = f"{int(dice.random() ** 2 * scale) + 1:,}"
    return f"({value})" if dice.random() < 0.2 and not is_percent else value


class _Statement:
    """A table of numbers: labels, columns of numbers, one to three header lines."""

    RIGHT = 535.0

    def __init__(self, writer: _Writer) -> None:
        self.writer, self.canvas, self.style = writer, writer.canvas, writer.style
        dice = writer.dice
        self.columns = columns = dice.choice([2, 2, 3, 3, 4, 5, 6, 8])
        kind = dice.choice(["years", "spans", "words", "stacked"])
        if self.style.rules == "grid":  # its columns are drawn from the header down
            kind = "words"
        self.headers = _headers(writer, columns, kind)
        self.wide = min(70.0, (self.RIGHT - 60) * (0.5 if columns < 5 else 0.72) / columns)
        self.edges = [self.RIGHT - self.wide * (columns - 1 - index) for index in range(columns)]
        self.label_width = self.edges[0] - self.wide - 60 + self.wide * 0.2
        self.size = self.style.size if columns < 6 else min(self.style.size, 8.5)
        self.unit = dice.choice(["(in millions)", "(In thousands, except per share data)", ""])
        self.step = self.size * dice.choice([1.25, 1.4, 1.7])
        self.is_percent = [dice.random() < 0.12 for _ in range(columns)]
        self.scale = dice.choice([900, 90_000, 9_000_000 if columns < 5 else 90_000])
        self.rows: list[list[str]] = []
        self.lines: list[float] = []  # below each row
        self.y = writer.y

    def draw(self) -> None:
        """Draw the table and add it to the page's truth."""
        top = self.y + self.step * (0.3 if self.unit else -0.7)
        self._head()
        count = self.writer.dice.randint(5, 18)
        for index in range(count):
            is_section = index % 3 == 1 and index < count - 1 and self.style.rules != "grid"
            if is_section and self.writer.dice.random() < 0.3:
                self._section()
            else:
                self._row(index)
        if self.style.rules == "grid":
            self._grid(top)
        if self.writer.dice.random() < 0.3:
            note = f"(1) {self.writer.prose.sentence()}"[:90]
            self.canvas.text(60, self.y + self.step * 0.5, note, self.size - 1)
            self.y += self.step * 1.5
        self.writer.y = self.y + self.step
        heads = [[shown(text) for text in line] for line in self.headers]
        rows = [[shown(text) for text in row] for row in self.rows]
        self.writer.page.tables.append(TrueTable(heads, rows, self.unit))

    def _head(self) -> None:
        if self.unit:
            self.canvas.text(60, self.y, self.unit, self.size - 0.5)
            self.y += self.step
        for line in self.headers:
            _header_line(self.canvas, line, self.edges, self.wide, self.y, self.size)
            self.y += self.step
        if self.style.rules in ("lines", "grid"):
            height = self.y - self.step * 0.7
            self.canvas.line(60, height, self.RIGHT, height)
        self.y += self.step * 0.2

    def _label(self) -> str:
        words = self.writer.prose.sentence().rstrip(".").replace(",", "").split()
        return " ".join(words[:4]).capitalize()

    def _section(self) -> None:
        name = f"{self._label()}:"
        self.canvas.text(60, self.y, name, self.size, bold=True)
        self.rows.append([name] + [""] * self.columns)
        self.y += self.step

    def _row(self, index: int) -> None:
        label = self._label()
        parts = _fitting(self.canvas, label, self.label_width, self.size)
        if self.style.rules == "zebra" and index % 2:
            self.canvas.fill(60, self.y - self.step * 0.75, self.RIGHT - 60, self.step)
        for number, text in enumerate(parts):
            self.canvas.text(
                60 + (8 if number else 0), self.y + number * self.step, text, self.size
            )
        self.y += self.step * (len(parts) - 1)
        values = [_amount(self.writer, self.scale, is_percent=p) for p in self.is_percent]
        is_total = self.writer.dice.random() < 0.15
        for edge, value in zip(self.edges, values, strict=True):
            # A closing bracket or percent sign hangs over the edge.
            hang = self.canvas.length(value[-1], self.size) if value[-1] in ")%" else 0.0
            self.canvas.right(edge + hang, self.y, value, self.size, bold=is_total)
            if self.style.has_signs and index == 0 and value[-1] not in ("%", DASH):
                self.canvas.text(edge - self.wide * 0.82, self.y, "$", self.size)
        self.rows.append([label, *values])
        self.lines.append(self.y + self.step * 0.3)
        self.y += self.step

    def _grid(self, top: float) -> None:
        right = self.RIGHT + 12
        for each in (top, *self.lines):
            self.canvas.line(55, each, right, each)
        for x in (55, *(edge - self.wide + 12 for edge in self.edges), right):
            self.canvas.line(x, top, x, self.lines[-1])


def _fitting(canvas: Canvas, label: str, width: float, size: float) -> list[str]:
    found = [""]
    for word in label.split():
        if found[-1] and canvas.length(f"{found[-1]} {word}", size) > width:
            found.append(word)
        else:
            found[-1] = f"{found[-1]} {word}".strip()
    return found


def _headers(writer: _Writer, columns: int, kind: str) -> list[list[str]]:
    years = [str(2021 - index) for index in range(columns)]
    if kind == "spans" and columns in (4, 6, 8):
        half = columns // 2
        years = [str(2021 - index % half) for index in range(columns)]
        return [["", *["Three months ended"] * half, *["Nine months ended"] * half], ["", *years]]
    if kind == "words":
        return [["", *_words(writer, columns)]]
    if kind == "stacked" and columns < 6:
        ends = ["Percent", "Total", "Organic", "Reported", "Net"]
        return [
            ["", *(ends[index % 5] for index in range(columns))],
            [
                "",
                *(
                    ["to sales", "growth", "change", "result", "assets"][i % 5]
                    for i in range(columns)
                ),
            ],
        ]
    if kind == "years" and columns > 2 and writer.dice.random() < 0.6:
        return [["", *["Years ended December 31,"] * columns], ["", *years]]
    return [["", *years]]


def _words(writer: _Writer, count: int) -> list[str]:
    """Return different short words."""
    words = writer.prose.sentence().rstrip(".").replace(",", "").title().split()
    short = [each for each in dict.fromkeys(words) if each.isalpha() and len(each) < 9]
    return [short[i] if i < len(short) else f"Region {i}" for i in range(count)]


def _header_line(
    canvas: Canvas, line: Sequence[str], edges: Sequence[float], wide: float, y: float, size: float
) -> None:
    at = 1
    while at < len(line):
        stop = at + 1
        while stop < len(line) and line[stop] == line[at]:
            stop += 1
        left, right = edges[at - 1] - wide * 0.8, edges[stop - 2]
        if stop - at > 1:
            canvas.centre((left + right) / 2, y, line[at], size, bold=True)
        else:
            canvas.right(right, y, line[at], size, bold=True)
        at = stop


def _text_table(writer: _Writer) -> None:
    """Write a table of words: ruled, or with at least three columns."""
    dice, canvas, style = writer.dice, writer.canvas, writer.style
    columns = dice.choice([3, 4, 5])
    lefts = [60 + 475 / columns * index for index in range(columns)]
    size, y = style.size, writer.y
    step = size * 1.6
    is_ruled = style.rules in ("grid", "lines", "zebra")
    top = y - step * 0.8
    header = _words(writer, columns)
    rows = []
    for left, text in zip(lefts, header, strict=True):
        canvas.text(left + 3, y, text, size, bold=True)
    lines = [top, y + step * 0.3]
    for _ in range(dice.randint(4, 9)):
        y += step
        row = []
        for left in lefts:
            words = writer.prose.sentence().rstrip(".").replace(",", "").split()
            text = " ".join(words[: dice.randint(1, 2)])
            while canvas.length(text, size) > 475 / columns - 12:
                text = text[:-1].strip()
            canvas.text(left + 3, y, text, size)
            row.append(text)
        rows.append(row)
        lines.append(y + step * 0.3)
    if is_ruled:
        for each in lines:
            canvas.line(60, each, 535, each)
        for x in (*lefts, 535.0):
            canvas.line(x, top, x, lines[-1])
    writer.y = y + step * 1.5
    writer.page.tables.append(TrueTable([header], rows))


def shown(text: str) -> str:
    """Return a text as it is read, from its bytes in WinAnsi."""
    return "".join(_SHOWN.get(each, each) for each in text)


def make(number: int) -> Report:
    """Write a report of twelve pages."""
    writer = _Writer(number)
    kinds: list[Callable[[], None]] = [
        writer.prose_page, writer.table, writer.prose_page, writer.table, writer.two_columns,
        lambda: writer.table(is_text=True), writer.prose_page, writer.table, writer.table,
        writer.prose_page, writer.two_columns, writer.table,
    ]  # fmt: skip
    truths, pages = [], []
    for index, kind in enumerate(kinds, start=1):
        writer.start(index)
        kind()
        truths.append(writer.page)
        pages.append(writer.canvas)
    return Report(number, file_of(writer.style, pages), truths)


def file_of(style: Style, pages: Sequence[Canvas]) -> bytes:
    import pikepdf

    file = pikepdf.new()
    fonts = pikepdf.Dictionary()
    for name, base in zip(("/F1", "/F2"), _NAMES[style.font], strict=True):
        fonts[name] = file.make_indirect(
            pikepdf.Dictionary(
                Type=pikepdf.Name.Font,
                Subtype=pikepdf.Name.Type1,
                BaseFont=pikepdf.Name(f"/{base}"),
                Encoding=pikepdf.Name.WinAnsiEncoding,
            )
        )
    for canvas in pages:
        page: Any = file.add_blank_page(page_size=(canvas.width, canvas.height))
        page.obj.Resources = pikepdf.Dictionary(Font=fonts)
        page.obj.Contents = file.make_stream(canvas.content())
    written = io.BytesIO()
    file.save(written, static_id=True)
    return written.getvalue()
