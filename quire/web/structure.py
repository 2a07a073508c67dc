"""The structure of a document as its page shows it: blocks, tables with spans, and boxes."""

import re
from typing import Any, NamedTuple

from quire.control import document_structure as structure
from quire.control.caller import Caller
from quire.model.blocks import Cell, Table
from quire.text import markdown

#: Cells and characters that one page shows; the rest is in the plain text and in the CSV.
MOST_CELLS, MOST_CHARS = 1_200, 80_000
_TABLES = 20  # that are listed at a time
_HEADINGS = 2_000
_NUMBER = re.compile(r"[($€£¥+−–-]*\d[\d.,:/ ]*[)%]*|[—–−-]")


class ShownCell(NamedTuple):
    """A cell, or a place that has none."""

    text: str
    box: str
    row_span: int
    column_span: int
    is_header: bool

    @property
    def is_number(self) -> bool:
        """Tell whether the cell stands flush right."""
        return _NUMBER.fullmatch(self.text) is not None


class ShownTable(NamedTuple):
    """A table by rows, as far as it is shown."""

    rows: list[list[ShownCell]]
    hidden_rows: int
    caption: str
    unit: str
    footnotes: list[str]


def of_page(caller: Caller, document_id: int, number: int) -> dict[str, Any]:
    """Return the blocks of a page, and the boxes of its tables and headings."""
    told = structure.of_page(caller, document_id, number)["blocks"]
    shown, chars, cells = list[dict[str, Any]](), 0, MOST_CELLS
    for block in told:
        if chars > MOST_CHARS or cells <= 0:
            break
        chars += len(block["text"])
        table = _table(block["table"], cells) if block["table"] else None
        cells -= sum(map(len, table.rows)) if table else 0
        shown.append(
            {
                "kind": block["kind"],
                "level": min(max(block["level"], 1), 4),
                "text": block["text"],
                "box": _box(block["box"]),
                "table": table,
            }
        )
    tinted = {
        kind: [block["box"] for block in told if block["kind"] == kind and block["box"]]
        for kind in ("table", "heading")
    }
    return {"blocks": shown, "is_cut": len(shown) < len(told), "tinted": tinted}


def tables(caller: Caller, document_id: int, cursor: int | None) -> dict[str, Any]:
    """List tables of a document, each with its page."""
    found = structure.tables(caller, document_id, limit=_TABLES, cursor=cursor)
    items, cells = list[dict[str, Any]](), MOST_CELLS
    for told in found["items"]:
        # The first rows of each are shown, however many tables there are.
        table = _table(told, max(cells, told["columns"] * 3))
        cells -= sum(map(len, table.rows))
        items.append({"page": told["page"], "continues": told["continues"], "table": table})
    return {"items": items, "next": found["next"]}


def outline(caller: Caller, document_id: int) -> dict[str, Any]:
    """List the headings of a document."""
    items = structure.outline(caller, document_id)["items"]
    return {"items": items[:_HEADINGS], "hidden": max(len(items) - _HEADINGS, 0)}


def _table(told: dict[str, Any], most: int) -> ShownTable:
    by_place = {(each["row"], each["column"]): each for each in told["cells"]}
    height = min(told["rows"], max(most // told["columns"], 1))
    cells = tuple(
        Cell(row, each["column"], min(each["row_span"], height - row), each["column_span"], ())
        for (row, _), each in by_place.items()
        if row < height
    )
    rows: list[list[ShownCell]] = [[] for _ in range(height)]
    header_rows = told["header_rows"]
    for row, column, cell in markdown.places(Table(height, told["columns"], 0, cells)):
        is_header = row < header_rows
        if cell is None:
            rows[row].append(ShownCell("", "", 1, 1, is_header))
            continue
        known = by_place[row, column]
        rows[row].append(
            ShownCell(known["text"], _box(known["box"]), cell.row_span, cell.column_span, is_header)
        )
    return ShownTable(rows, told["rows"] - height, told["caption"], told["unit"], told["footnotes"])


def _box(box: list[float] | None) -> str:
    return " ".join(map(str, box)) if box else ""
