"""CSV files: encoding and delimiter are guessed, and rows are streamed."""

import codecs
import csv
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from quire.parse import encoding
from quire.parse.tables.sheet import Row, Sheet

_SAMPLE_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
_MAX_CELL_CHARACTERS = 1 << 20
_DELIMITERS = ",;\t|"


def sheets(path: Path) -> list[Sheet]:
    """Return the rows of a file as its only sheet."""
    with path.open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    charset = _encoding(path, sample)
    delimiter = _delimiter(sample.decode(charset, "replace"))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    try:
        height, width = _size(_rows(path, charset, delimiter, quoting))
    except csv.Error:
        # An unclosed quote swallows the rest of the file: read quotes as plain characters.
        quoting = csv.QUOTE_NONE
        height, width = _size(_rows(path, charset, delimiter, quoting))

    def rows() -> Iterator[Row]:
        return _rows(path, charset, delimiter, quoting)

    return [Sheet("", height, width, rows)]


def _size(rows: Iterator[Row]) -> tuple[int, int]:
    height = width = 0
    for row in rows:
        height += 1
        width = max(width, len(row))
    return height, width


def _encoding(path: Path, sample: bytes) -> str:
    charset = encoding.guess(sample, truncated=True)
    if charset != "utf-8":
        return charset
    # The first non-ASCII character may come after the sample.
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return encoding.guess(block, truncated=True)
    return charset


def _delimiter(sample: str) -> str:
    """Return the delimiter that splits most lines of the sample into the same number of cells."""
    lines = [line for line in sample.splitlines()[:100] if line]
    if len(lines) > 1 and len(sample) >= _SAMPLE_BYTES // 2:
        lines.pop()  # may be incomplete

    def fitness(delimiter: str) -> tuple[int, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            counts = []
        usual = max(set(counts), key=counts.count, default=1)
        return (counts.count(usual) if usual > 1 else 0, usual)

    return max(_DELIMITERS, key=fitness)


def _rows(path: Path, charset: str, delimiter: str, quoting: Literal[0, 3]) -> Iterator[Row]:
    with path.open(encoding=charset, errors="replace", newline="") as file:
        # Overlong lines come in parts, so that memory stays bounded.
        parts = iter(functools.partial(file.readline, _MAX_CELL_CHARACTERS // 2), "")
        lines = (line.replace("\0", " ") for line in parts)
        yield from csv.reader(lines, delimiter=delimiter, quoting=quoting)
