"""Pages in columns with a known order of reading, and pages that only look like them."""

import hashlib
import random
from dataclasses import dataclass, field

from benchmarks.ingest.prose import Prose
from benchmarks.ingest.reports import Canvas, Style, file_of

WIDTH, HEIGHT = 595.0, 842.0
LEFT, RIGHT = 55.0, 540.0


@dataclass
class ColumnPage:
    """A file of one page, and the first words of its paragraphs in the order of reading."""

    number: int
    content: bytes
    kind: str  # turns: the file goes across the columns; columns, form: it does not
    paragraphs: list[str] = field(default_factory=list)

    @property
    def is_for_tuning(self) -> bool:
        """Whether the reading code may be tuned on this page."""
        return hashlib.sha256(f"columns {self.number}".encode()).digest()[0] < 128


def make(number: int) -> ColumnPage:
    """Make the page of a number; the same one every time."""
    return _Writer(number).page()


class _Writer:
    def __init__(self, number: int) -> None:
        self.number = number
        self.dice = dice = random.Random(f"columns {number}")  # noqa: S311
        self.prose = Prose(number + 5_000)
        self.size = dice.choice([8.5, 9, 10])
        font = dice.choice(["Helvetica", "Times"])
        self.style = Style(font, self.size, 1.25, "bold", "none", False, 14.0, number)
        self.canvas = Canvas(self.style, WIDTH, HEIGHT)
        self.step = self.size * dice.choice([1.15, 1.25, 1.4])
        self.kind = dice.choice(["turns", "turns", "columns", "form"])
        self.made = ColumnPage(number, b"", self.kind)

    def page(self) -> ColumnPage:
        y = 70.0
        if self.dice.random() < 0.7:
            y = self.wide(y, "An Account of " + self.prose.sentence()[:30].strip(), 16)
        for _ in range(self.dice.choice([1, 1, 2])):
            if self.kind == "form":
                y = self.form(y)
                break
            y = self.band(y, self.dice.choice([2, 2, 3]), self.dice.randint(14, 24))
            if y < 500:
                text = self.prose.sentence() + " " + self.prose.sentence()
                for line in self.wrapped(text, RIGHT - LEFT):
                    y = self.wide(y, line, self.size)
                y += self.step
        self.made.content = file_of(self.style, [self.canvas])
        return self.made

    def wide(self, y: float, text: str, size: float, *, is_new: bool = True) -> float:
        """Write a line over all columns."""
        self.canvas.text(LEFT, y, text, size, bold=size > self.size)
        if is_new:
            self.made.paragraphs.append(text)
        return y + 1.6 * size

    def band(self, y: float, columns: int, count: int) -> float:
        """Write columns of as many lines, one after the other or in turns."""
        gutter = self.dice.choice([16.0, 20.0, 28.0])
        width = (RIGHT - LEFT - gutter * (columns - 1)) / columns
        lines: list[list[str]] = []
        for _ in range(columns):
            column: list[str] = []
            while len(column) < count:
                text = " ".join(self.prose.sentence() for _ in range(2))
                new = self.wrapped(text, width)
                self.made.paragraphs.append(new[0])
                column += new
            lines.append(column[:count])
        places = [(row, column) for row in range(count) for column in range(columns)]
        if self.kind == "columns":
            places.sort(key=lambda place: place[1])
        for row, index in places:
            x = LEFT + index * (width + gutter)
            self.canvas.text(x, y + row * self.step, lines[index][row], self.size)
        return y + count * self.step + self.step

    def form(self, y: float) -> float:
        """Write labels with values, and a signature: read line by line."""
        for _ in range(self.dice.randint(8, 20)):
            label = " ".join(self.prose.sentence().split()[: self.dice.randint(1, 2)])
            value = " ".join(self.prose.sentence().split()[: self.dice.randint(1, 6)])
            for x, text in ((LEFT, label), (230.0, value)):
                self.canvas.text(x, y, text, self.size)
                self.made.paragraphs.append(text)
            y += 2 * self.step
        return y

    def wrapped(self, text: str, width: float) -> list[str]:
        """Return the lines of a text."""
        lines, line = [], ""
        for word in text.split():
            if line and self.canvas.length(f"{line} {word}", self.size) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        return [*lines, line]
