"""XLSX as rows of text, by calamine, which holds the cells of a sheet in memory.

It makes room for every cell between the first and the last one, so one stray cell in the farthest
corner would ask for half a terabyte and end the process: the extent is measured beforehand.
"""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from quire.errors import Unreadable
from quire.parse import pyo3_panics
from quire.parse.office import archive
from quire.parse.tables.rows import Row, Sheet, header_of

MOST_CELLS = 30_000_000  # at most 1 GB in memory
#: References to columns beyond the 28th, of which the highest sheet has a million cells each.
_WIDE = re.compile(rb"\sr=[\"'](A[C-Z]|[B-Z][A-Z]|[A-Z]{3})\d")
_ROW = re.compile(rb"\sr=[\"'][A-Z]{0,3}(\d{1,7})[\"']")
_CHUNK = 1 << 20


def sheets(path: Path) -> list[Sheet]:
    """Return the sheets that have rows, in the order of the workbook."""
    import python_calamine

    archive.check(path)
    _measure(path)
    try:
        with pyo3_panics.as_unreadable(path.name):
            book = python_calamine.CalamineWorkbook.from_path(path)
            return [sheet for name in book.sheet_names for sheet in _sheet(book, name)]
    except python_calamine.PasswordError as error:
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        ) from error
    except python_calamine.CalamineError as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error


def _sheet(book: Any, name: str) -> Iterator[Sheet]:
    import python_calamine

    try:
        found = book.get_sheet_by_name(name)
    except python_calamine.WorksheetNotFound:  # a sheet that is a chart
        return
    if found.height:

        def rows() -> Iterator[Row]:
            return ([_cell(value) for value in row] for row in found.iter_rows())

        yield Sheet(name, found.height, rows, header_of(rows()))


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return str(value.date() if value.time() == datetime.time() else value)
    return str(value)


def _measure(path: Path) -> None:
    """Raise Unreadable when a sheet spans more cells than fit in memory."""
    with archive.opened(path) as members:
        for member in members.infolist():
            if not member.filename.startswith("xl/worksheets/"):
                continue
            with members.open(member) as file:
                width = max(map(_column, _distinct(_WIDE, file)), default=0)
            if not width:  # a sheet so narrow fits at any height
                continue
            with members.open(member) as file:
                height = max(map(int, _distinct(_ROW, file)), default=0)
            if height * width > MOST_CELLS:
                raise Unreadable(
                    f"{path.name}: a sheet spans {height:,} rows by {width:,} columns "
                    f"(at most {MOST_CELLS:,} cells). Delete its stray cells and ingest it again."
                )


def _distinct(pattern: re.Pattern[bytes], file: IO[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    rest = b""
    while chunk := file.read(_CHUNK):
        found.update(pattern.findall(rest + chunk))
        rest = chunk[-20:]
    return found


def _column(name: bytes) -> int:
    number = 0
    for letter in name:
        number = number * 26 + letter - 64
    return number
