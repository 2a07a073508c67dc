"""Reads workbooks and CSV files in pages, each of rows of one sheet.

The last file stays open, because one process reads the pages of a file one after the other.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest, installed_version
from quire.parse.tables import delimited, sheet, workbook
from quire.parse.tables.sheet import Head, Row, Sheet

#: Raise it when the text of a CSV file changes; the parser's version is that of XLSX.
_CSV_VERSION = 5


class _OpenTable:
    """An open file and the position up to which the rows of a sheet have been read."""

    def __init__(self, path: Path, media_type: str) -> None:
        is_csv = media_type == "text/csv"
        self.sheets = delimited.sheets(path) if is_csv else workbook.sheets(path, media_type)
        self._heads: dict[int, Head] = {}
        self._sheet: Sheet | None = None
        self._next = 0
        self._rows: Iterator[Row] = iter(())

    def page(self, of: sheet.SheetRange, number: int) -> Page:
        """Return a page; its rows are read on from the last page, or else from the first row."""
        if self._sheet is not of.sheet or of.first < self._next:
            self._sheet, self._next, self._rows = of.sheet, 0, of.sheet.rows()
        skipped = of.first - self._next
        rows = list(itertools.islice(self._rows, skipped, skipped + of.stop - of.first))
        self._next = of.stop
        key = id(of.sheet)
        if key not in self._heads:
            self._heads[key] = sheet.head(of.sheet)
        return sheet.page(of, self._heads[key], rows, number)


class TableParser(BuiltinParser):
    """XLSX, XLS, ODS and CSV; a page is a sheet, or a range of its rows if it is long."""

    name = "tables"
    version = 4

    def __init__(self) -> None:
        self._open: tuple[tuple[str, int, int], _OpenTable] | None = None

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Count the pages of all sheets."""
        length = len(sheet.ranges(self._table(path, media_type).sheets, options.row_size))
        if not length:
            raise Unreadable(f"{path.name}: has no rows.")
        return Outline(media_type, "page", length)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested pages."""
        table = self._table(request.path, request.media_type)
        found = sheet.ranges(table.sheets, request.options.row_size)
        for number in range(request.first, min(request.last, len(found)) + 1):
            of = found[number - 1]
            try:
                yield table.page(of, number)
            except Unreadable as error:
                self.close()
                yield PageFailure(number, f"{sheet.label(of)}: {error}")
                return

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
