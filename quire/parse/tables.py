"""Spreadsheets (XLSX) and CSV, read in ranges of rows numbered across all sheets.

The text of a range is the sheet's header followed by its rows, cells separated by tabs. The last
file stays open, because one process reads the ranges of a file one after the other.
"""

import codecs
import csv
import datetime
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from quire.errors import Unreadable
from quire.model.blocks import BlockKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding, text_blocks
from quire.parse.limits import CELL_CHARACTERS
from quire.parse.office import archive
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest, installed_version
from quire.parse.text_blocks import Piece

Row = list[str]

_NUMBER = re.compile(r"[-+(]?[.,\s%€$£]*+\d[\d.,\s%€$£)]*+|\d{4}-\d\d-\d\d.*")

_CSV_SAMPLE_BYTES = 1 << 16
_MAX_CELL_CHARS = 1 << 20
_DELIMITERS = ",;\t|"
#: Raise it when the text or the blocks of a CSV file change; the parser's version is that of XLSX.
_CSV_VERSION = 3

#: Cells of a sheet: calamine allocates every cell of the used range, 1 GB at this size.
MAX_CELLS = 30_000_000
#: Cell references right of column AB: up to 28 columns, a sheet of any height fits.
_WIDE_COLUMN = re.compile(rb"\sr=[\"'](A[C-Z]|[B-Z][A-Z]|[A-Z]{3})\d")
_ROW_NUMBER = re.compile(rb"\sr=[\"'][A-Z]{0,3}(\d{1,7})[\"']")
_CHUNK_BYTES = 1 << 20


class Sheet(NamedTuple):
    """A named sequence of rows."""

    name: str
    height: int
    rows: Callable[[], Iterator[Row]]  # starts at the first row on each call
    header: Row | None


class _RowRange(NamedTuple):
    sheet: Sheet
    first: int  # from 1, within the sheet
    rows: list[Row]


class _OpenTable:
    """An open file and the position up to which its rows have been read."""

    def __init__(self, path: Path, media_type: str) -> None:
        open_sheets = _csv_sheets if media_type == "text/csv" else _xlsx_sheets
        self.sheets = open_sheets(path)
        self.height = sum(sheet.height for sheet in self.sheets)
        self._position = 0
        self._rows: Iterator[Row] = iter(())
        self._rewind()

    def ranges(self, first: int, last: int) -> Iterator[_RowRange]:
        """Yield the rows first…last, one range per sheet."""
        if first <= self._position:
            self._rewind()
        skipped = first - 1 - self._position
        next(itertools.islice(self._rows, skipped, skipped), None)
        self._position = first - 1
        before = 0
        for sheet in self.sheets:
            start, stop = max(first - before, 1), min(last - before, sheet.height)
            if start <= stop:
                rows = list(itertools.islice(self._rows, stop - start + 1))
                self._position += stop - start + 1
                yield _RowRange(sheet, start, rows)
            before += sheet.height

    def _rewind(self) -> None:
        self._position = 0
        self._rows = itertools.chain.from_iterable(
            itertools.islice(sheet.rows(), sheet.height) for sheet in self.sheets
        )


class TableParser(BuiltinParser):
    """XLSX and CSV; a page is a range of rows."""

    name = "tables"
    version = 2  # pages have blocks

    def __init__(self) -> None:
        self._open: tuple[tuple[str, int, int], _OpenTable] | None = None

    def inspect(self, path: Path, media_type: str) -> Outline:
        """Count the rows of all sheets."""
        height = self._table(path, media_type).height
        if not height:
            raise Unreadable(f"{path.name}: has no rows.")
        return Outline(media_type, "row", height)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested rows as one page."""
        first, last = request.first, request.last
        number = (first - 1) // request.options.row_size + 1
        try:
            ranges = list(self._table(request.path, request.media_type).ranges(first, last))
        except Unreadable as error:
            self.close()
            yield PageFailure(number, f"rows {first:,} to {last:,}: {error}")
            return
        texts = list(filter(None, map(_text, ranges)))
        text = encoding.clean("\n\n".join(texts))
        pieces = [Piece(each, BlockKind.TABLE) for each in texts]
        yield Page(number, text, label=_label(ranges), blocks=text_blocks.packed(pieces, text))

    def recipe(self, media_type: str, options: ReadOptions) -> dict[str, Any]:
        """Return everything besides the file that decides the text of its pages."""
        library = "python-calamine" if media_type != "text/csv" else None
        found = super().recipe(media_type, options)
        return found | {
            "version": self.version if library else _CSV_VERSION,
            "library": installed_version(library) if library else None,
            "row_size": options.row_size,
        }

    def close(self) -> None:
        """Release the open file."""
        self._open = None

    def _table(self, path: Path, media_type: str) -> _OpenTable:
        stat = path.stat()
        key = (str(path), stat.st_size, stat.st_mtime_ns)
        if self._open is None or self._open[0] != key:
            self.close()  # first, so that two tables are never in memory
            self._open = (key, _OpenTable(path, media_type))
        return self._open[1]


def _text(rows: _RowRange) -> str:
    lines = [_line(row) for row in rows.rows]
    header = rows.sheet.header
    if header and rows.first > 1:
        lines.insert(0, _line(header))
    return "\n".join(line for line in lines if line)


def _line(row: Row) -> str:
    return "\t".join(" ".join(cell.split()) for cell in row).rstrip("\t")


def _label(ranges: list[_RowRange]) -> str:
    parts = []
    for sheet, first, rows in ranges[:3]:
        name = f"{sheet.name}, " if sheet.name else ""
        parts.append(f"{name}rows {first:,} to {first + len(rows) - 1:,}")
    if len(ranges) > 3:
        parts.append(f"and {len(ranges) - 3} more sheets")
    return "; ".join(parts)


def _header(rows: Iterator[Row]) -> Row | None:
    """Return the first row if it looks like column names: distinct, non-empty, no numbers."""
    first, second = next(rows, None), next(rows, None)
    if not first or not second:
        return None
    while first and not first[-1].strip():
        first = first[:-1]
    if len(first) < 2 or len(set(first)) < len(first):
        return None
    named = all(cell.strip() and len(cell) < 200 and not _NUMBER.fullmatch(cell) for cell in first)
    return first if named else None


# CSV: encoding and delimiter are guessed; rows are streamed.


def _csv_sheets(path: Path) -> list[Sheet]:
    with path.open("rb") as file:
        sample = file.read(_CSV_SAMPLE_BYTES)
    charset = _csv_encoding(path, sample)
    delimiter = _csv_delimiter(sample.decode(charset, "replace"))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    csv.field_size_limit(_MAX_CELL_CHARS)
    try:
        height = sum(1 for _ in _csv_rows(path, charset, delimiter, quoting))
    except csv.Error:
        # An unclosed quote swallows the rest of the file: read quotes as plain characters.
        quoting = csv.QUOTE_NONE
        height = sum(1 for _ in _csv_rows(path, charset, delimiter, quoting))

    def rows() -> Iterator[Row]:
        return _csv_rows(path, charset, delimiter, quoting)

    return [Sheet("", height, rows, _header(rows()))]


def _csv_encoding(path: Path, sample: bytes) -> str:
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


def _csv_delimiter(sample: str) -> str:
    """Return the delimiter that splits most lines of the sample into the same number of cells."""
    lines = [line for line in sample.splitlines()[:100] if line]
    if len(lines) > 1 and len(sample) >= _CSV_SAMPLE_BYTES // 2:
        lines.pop()  # may be incomplete

    def fitness(delimiter: str) -> tuple[int, int]:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            counts = []
        usual = max(set(counts), key=counts.count, default=1)
        return (counts.count(usual) if usual > 1 else 0, usual)

    return max(_DELIMITERS, key=fitness)


def _csv_rows(path: Path, charset: str, delimiter: str, quoting: Literal[0, 3]) -> Iterator[Row]:
    with path.open(encoding=charset, errors="replace", newline="") as file:
        # Overlong lines come in parts, so that memory stays bounded.
        parts = iter(functools.partial(file.readline, _MAX_CELL_CHARS // 2), "")
        lines = (line.replace("\0", " ") for line in parts)
        yield from csv.reader(lines, delimiter=delimiter, quoting=quoting)


# XLSX, by calamine.


def _xlsx_sheets(path: Path) -> list[Sheet]:
    """Return the sheets that have rows, in workbook order."""
    import python_calamine

    archive.check(path)
    _check_extent(path)
    try:
        book = python_calamine.CalamineWorkbook.from_path(path)
        return [sheet for name in book.sheet_names for sheet in _xlsx_sheet(book, name)]
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


def _xlsx_sheet(book: Any, name: str) -> Iterator[Sheet]:
    import python_calamine

    try:
        found = book.get_sheet_by_name(name)
    except python_calamine.WorksheetNotFound:  # a chart sheet
        return
    if found.height:

        def rows() -> Iterator[Row]:
            return ([_xlsx_cell(value) for value in row] for row in found.iter_rows())

        yield Sheet(name, found.height, rows, _header(rows()))


def _xlsx_cell(value: Any) -> str:
    if isinstance(value, str):
        return value[:CELL_CHARACTERS]
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime.datetime):
        return str(value.date() if value.time() == datetime.time() else value)
    return str(value)


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
