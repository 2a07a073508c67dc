"""Workbooks (XLSX, XLS, ODS): values by calamine; of XLSX in the number formats of their cells."""

import datetime
import itertools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from quire.errors import Unreadable
from quire.parse import file_type
from quire.parse.limits import CELL_CHARACTERS
from quire.parse.office import archive, ooxml
from quire.parse.office.relations import relationships
from quire.parse.tables.number_formats import NumberFormat, NumberFormats
from quire.parse.tables.sheet import Merge, Row, Sheet

#: Cells of a sheet: calamine allocates every cell of the used range, 1 GB at this size.
MAX_CELLS = 30_000_000
#: Cell references right of column AB: up to 28 columns, a sheet of any height fits.
_WIDE_COLUMN = re.compile(rb"\sr=[\"'](A[C-Z]|[B-Z][A-Z]|[A-Z]{3})\d")
_ROW_NUMBER = re.compile(rb"\sr=[\"'][A-Z]{0,3}(\d{1,7})[\"']")
#: A cell with a style, as Excel and all others write it; one written otherwise is shown plainly.
_STYLED_CELL = re.compile(rb'<(?:x:)?c r="([A-Z]{1,3})(\d{1,7})" s="(\d{1,5})"')
_LONGEST_CELL = 40
_CHUNK_BYTES = 1 << 20
_ODS_BODY = "content.xml"
_WORKBOOK, _STYLES = "xl/workbook.xml", "xl/styles.xml"


def sheets(path: Path, media_type: str = file_type.XLSX) -> list[Sheet]:
    """Return the sheets that have rows, in workbook order."""
    import python_calamine

    if media_type == file_type.XLSX:
        archive.check(path)
        _check_extent(path)
    elif media_type == file_type.ODS:
        archive.check(path)
        _check_repeated(path)
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
        formats = _formats(path) if media_type == file_type.XLSX else Formats(path, (), {})
        return [sheet for each in book.sheets_metadata for sheet in _sheet(book, each, formats)]
    except python_calamine.PasswordError as error:
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        ) from error
    except python_calamine.CalamineError as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error
    except BaseException as error:
        # A Rust panic arrives as pyo3's PanicException, a BaseException that cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"{path.name}: is damaged in a way the parser does not handle.") from error


def _sheet(book: Any, about: Any, formats: "Formats") -> Iterator[Sheet]:
    import python_calamine

    try:
        found = book.get_sheet_by_name(about.name)
    except python_calamine.WorksheetNotFound:  # a chart sheet
        return
    if not found.height:
        return
    top, left = found.start or (0, 0)
    shown = formats.of_sheet(about.name, top, left)

    def rows() -> Iterator[Row]:
        # Rows come from the first of the sheet on, columns from the first that is used.
        used = itertools.islice(found.iter_rows(), top, top + found.height)
        return (
            [_text(value, shown.get(at, column)) for column, value in enumerate(row)]
            for at, row in enumerate(used)
        )

    merged = tuple(
        sorted(
            Merge(first[0] - top, first[1] - left, last[0] - top, last[1] - left)
            for first, last in found.merged_cell_ranges or ()
        )
    )
    is_hidden = about.visible != python_calamine.SheetVisibleEnum.Visible
    yield Sheet(about.name, found.height, found.width, rows, merged, is_hidden=is_hidden)


def _text(value: Any, shown: NumberFormat | None) -> str:
    if isinstance(value, str):
        return value[:CELL_CHARACTERS]
    if shown is not None and not isinstance(value, bool) and (text := shown.text(value)):
        return text
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if is_whole else f"{value:.15g}"  # as many digits as Excel keeps
    if isinstance(value, datetime.datetime):
        return str(value.date() if value.time() == datetime.time() else value)
    return str(value)


class CellFormats:
    """The formats of the cells of a sheet that have one."""

    def __init__(self, styles: Sequence[NumberFormat | None], top: int, left: int) -> None:
        self._styles = styles
        self._top, self._left = top, left
        self._row = -1
        self._of_row: dict[int, int] = {}
        self._rows, self._columns = array("I"), array("H")
        self._cell_styles = array("H")

    def add(self, column: bytes, row: bytes, style: bytes) -> None:
        """Take a cell of the file."""
        number = int(style)
        if number < len(self._styles) and self._styles[number] is not None:
            self._rows.append(int(row) - 1)
            self._columns.append(min(_column_number(column) - 1, 0xFFFF))
            self._cell_styles.append(number)

    def get(self, row: int, column: int) -> NumberFormat | None:
        """Return the format of a cell of the used range."""
        if not self._rows:
            return None
        row += self._top
        if row != self._row:
            first, stop = bisect_left(self._rows, row), bisect_right(self._rows, row)
            self._row = row
            self._of_row = dict(
                zip(self._columns[first:stop], self._cell_styles[first:stop], strict=True)
            )
        style = self._of_row.get(column + self._left)
        return None if style is None else self._styles[style]


class Formats:
    """The number formats of a workbook."""

    def __init__(
        self, path: Path, styles: Sequence[NumberFormat | None], parts: dict[str, str]
    ) -> None:
        self._path, self._styles, self._parts = path, styles, parts

    def of_sheet(self, name: str, top: int, left: int) -> CellFormats:
        """Return the formats of the cells of a sheet."""
        found = CellFormats(self._styles, top, left)
        if name not in self._parts or not any(self._styles):
            return found
        with archive.open_archive(self._path) as members:
            if self._parts[name] not in members.NameToInfo:
                return found
            with members.open(self._parts[name]) as file:
                tail = b""
                while chunk := file.read(_CHUNK_BYTES):
                    text = tail + chunk
                    end = 0
                    for cell in _STYLED_CELL.finditer(text):
                        found.add(cell[1], cell[2], cell[3])
                        end = cell.end()
                    tail = text[max(end, len(text) - _LONGEST_CELL) :]
        return found


def _formats(path: Path) -> Formats:
    """Read the formats; without them values are shown plainly, so a fault here is none."""
    with archive.open_archive(path) as members:
        try:
            styles = NumberFormats()
            if _STYLES in members.NameToInfo:
                with members.open(_STYLES) as file:
                    ooxml.read(file, styles)
            targets = relationships(members, _WORKBOOK)
            with members.open(_WORKBOOK) as file:
                listed = ooxml.elements(file, "sheet")
        except (expat.ExpatError, Unreadable, KeyError):
            return Formats(path, (), {})
    parts = {}
    for each in listed:
        rel_id = next((value for key, value in each.items() if key.endswith(" id")), "")
        if rel_id in targets:
            parts[each.get("name", "")] = targets[rel_id][1]
    return Formats(path, styles.of_cells(), parts)


def _check_extent(path: Path) -> None:
    """Raise Unreadable if the used range of a sheet does not fit in memory.

    One stray cell in the last row and column would make calamine allocate half a terabyte.
    """
    with archive.open_archive(path) as members:
        for member in members.infolist():
            if not member.filename.startswith("xl/worksheets/"):
                continue
            with members.open(member) as file:
                width = max(map(_column_number, _find_distinct(_WIDE_COLUMN, file)), default=0)
            if not width:
                continue
            with members.open(member) as file:
                height = max(map(int, _find_distinct(_ROW_NUMBER, file)), default=0)
            if height * width > MAX_CELLS:
                raise Unreadable(
                    f"{path.name}: a sheet spans {height:,} rows by {width:,} columns "
                    f"(at most {MAX_CELLS:,} cells). Delete its stray cells and ingest it again."
                )


def _check_repeated(path: Path) -> None:
    """Raise Unreadable if a sheet of OpenDocument repeats cells beyond what fits in memory.

    Rows and cells without values fill a sheet to its end; calamine leaves those out.
    """
    with archive.open_archive(path) as members:
        if _ODS_BODY not in members.NameToInfo:
            raise Unreadable(f"{path.name}: is damaged: {_ODS_BODY} is missing.")
        counter = _RepeatedCells()
        with members.open(_ODS_BODY) as file:
            try:
                ooxml.read(file, counter)
            except expat.ExpatError as error:
                raise Unreadable(f"{path.name}: is damaged ({error}).") from error
    if counter.most > MAX_CELLS:
        raise Unreadable(
            f"{path.name}: a sheet spans {counter.most:,} cells (at most {MAX_CELLS:,}). "
            "Delete its stray cells and ingest it again."
        )


class _RepeatedCells:
    """Counts rows times columns up to the last value of each sheet."""

    def __init__(self) -> None:
        self.most = 0
        self._row = self._width = self._height = self._columns = 0
        self._again = 1

    def start(self, name: str, attributes: ooxml.Attributes) -> None:
        """Take the start of an element."""
        if name == "table":
            self._row = self._width = self._height = 0
        elif name == "table-row":
            repeated = ooxml.attribute(attributes, "number-rows-repeated")
            self._again, self._columns = ooxml.number(repeated, 1), 0
            self._row += self._again
        elif name in ("table-cell", "covered-table-cell"):
            repeated = ooxml.attribute(attributes, "number-columns-repeated")
            self._columns += ooxml.number(repeated, 1)
            if ooxml.attribute(attributes, "value-type"):
                self._width = max(self._width, self._columns)
                self._height = self._row
                self.most = max(self.most, self._width * self._height)

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def characters(self, text: str) -> None:
        """Only attributes count."""


def _find_distinct(pattern: re.Pattern[bytes], file: IO[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    tail = b""
    while chunk := file.read(_CHUNK_BYTES):
        found.update(pattern.findall(tail + chunk))
        tail = chunk[-20:]
    return found


def _column_number(name: bytes) -> int:
    number = 0
    for letter in name:
        number = number * 26 + letter - 64
    return number
