"""Spreadsheets (XLSX) and CSV, read in ranges of rows that are numbered through all sheets.

The text of a range is the sheet's header, then its rows, cells apart by tabs. The file that was
read last keeps its place, because ranges are read one after the other by the same process.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse.markup import encoding
from quire.parse.options import Options
from quire.parse.tables import csv_rows, workbook
from quire.parse.tables.rows import Row, Sheet

VERSION = 1


class _Piece(NamedTuple):
    """Consecutive rows of one sheet."""

    sheet: Sheet
    first: int  # from 1, within the sheet
    rows: list[Row]


class _Reading:
    """A table that is open, and how far it has been read."""

    def __init__(self, path: Path, media_type: str) -> None:
        open_sheets = csv_rows.sheets if media_type == "text/csv" else workbook.sheets
        self.sheets = open_sheets(path)
        self.count = sum(sheet.height for sheet in self.sheets)
        self._place = 0  # rows read so far
        self._rows: Iterator[Row] = iter(())
        self._rewind()

    def pieces(self, first: int, last: int) -> Iterator[_Piece]:
        """Yield the rows first…last, cut where a sheet ends."""
        if first <= self._place:
            self._rewind()
        skipped = first - 1 - self._place
        next(itertools.islice(self._rows, skipped, skipped), None)
        self._place = first - 1
        before = 0
        for sheet in self.sheets:
            start, stop = max(first - before, 1), min(last - before, sheet.height)
            if start <= stop:
                rows = list(itertools.islice(self._rows, stop - start + 1))
                self._place += stop - start + 1
                yield _Piece(sheet, start, rows)
            before += sheet.height

    def _rewind(self) -> None:
        self._place = 0
        self._rows = itertools.chain.from_iterable(
            itertools.islice(sheet.rows(), sheet.height) for sheet in self.sheets
        )


_last: tuple[tuple[str, int, int], _Reading] | None = None


def look(path: Path, media_type: str) -> Outline:
    """Count the rows of all sheets."""
    count = _reading(path, media_type).count
    if not count:
        raise Unreadable(f"{path.name}: has no rows.")
    return Outline(media_type, "row", count)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield one page of the rows first…last."""
    number = (first - 1) // options.row_size + 1
    try:
        pieces = list(_reading(path, media_type).pieces(first, last))
    except Unreadable as error:
        close()
        yield PageFailure(number, f"rows {first:,} to {last:,}: {error}")
        return
    text = "\n\n".join(filter(None, map(_text, pieces)))
    yield Page(number, encoding.clean(text), label=_label(pieces))


def close() -> None:
    """Let go of the file that was read last."""
    global _last
    _last = None


def _reading(path: Path, media_type: str) -> _Reading:
    global _last
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if _last is None or _last[0] != key:
        close()  # first, so that never two tables are in memory
        _last = (key, _Reading(path, media_type))
    return _last[1]


def _text(piece: _Piece) -> str:
    lines = [_line(row) for row in piece.rows]
    header = piece.sheet.header
    if header and piece.first > 1:
        lines.insert(0, _line(header))
    return "\n".join(line for line in lines if line)


def _line(row: Row) -> str:
    return "\t".join(" ".join(cell.split()) for cell in row).rstrip("\t")


def _label(pieces: list[_Piece]) -> str:
    parts = []
    for sheet, first, rows in pieces[:3]:
        name = f"{sheet.name}, " if sheet.name else ""
        parts.append(f"{name}rows {first:,} to {first + len(rows) - 1:,}")
    if len(pieces) > 3:
        parts.append(f"and {len(pieces) - 3} sheets more")
    return "; ".join(parts)
