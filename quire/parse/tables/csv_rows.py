"""CSV as rows of text: the separator and the encoding are guessed, rows are never held."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from quire.parse.markup import encoding
from quire.parse.tables.rows import Row, Sheet, header_of

_SAMPLE = 1 << 16
_LONGEST_CELL = 1 << 20
_SEPARATORS = ",;\t|"


def sheets(path: Path) -> list[Sheet]:
    """Return the file as its one sheet."""
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    name = _encoding(path, sample)
    separator = _separator(sample.decode(name, "replace"))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    csv.field_size_limit(_LONGEST_CELL)
    try:
        count = sum(1 for _ in _rows(path, name, separator, quoting))
    except csv.Error:
        # A quote that is never closed swallows the rest of the file: quotes mean nothing here.
        quoting = csv.QUOTE_NONE
        count = sum(1 for _ in _rows(path, name, separator, quoting))

    def rows() -> Iterator[Row]:
        return _rows(path, name, separator, quoting)

    return [Sheet("", count, rows, header_of(rows()))]


def _encoding(path: Path, sample: bytes) -> str:
    name = encoding.guess(sample, cut=True)
    if name != "utf-8":
        return name
    # The first letter beyond ASCII may come after the sample.
    try:
        with path.open(encoding="utf-8", newline="") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return name


def _separator(sample: str) -> str:
    """Return the separator that cuts the most lines of the sample into the same number of cells."""
    lines = [line for line in sample.splitlines()[:100] if line]
    if len(lines) > 1 and len(sample) >= _SAMPLE // 2:
        lines.pop()  # it may be cut off

    def fitness(separator: str) -> tuple[int, int]:
        counts = [len(row) for row in _split(lines, separator)]
        usual = max(set(counts), key=counts.count, default=1)
        return (counts.count(usual) if usual > 1 else 0, usual)

    return max(_SEPARATORS, key=fitness)


def _split(lines: list[str], separator: str) -> list[Row]:
    try:
        return list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return []


def _rows(path: Path, name: str, separator: str, quoting: Literal[0, 3]) -> Iterator[Row]:
    with path.open(encoding=name, errors="replace", newline="") as file:
        yield from csv.reader(_lines(file), delimiter=separator, quoting=quoting)


def _lines(file: io.TextIOBase) -> Iterator[str]:
    """Yield lines, in parts where a line has no end, so that memory stays bounded."""
    while line := file.readline(_LONGEST_CELL // 2):
        yield line.replace("\0", " ")
