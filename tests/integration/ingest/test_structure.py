"""The structure of a document, from its file to what the CLI and the API show of it."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import pikepdf
import pytest
import sqlalchemy as sa

from benchmarks.ingest import reports
from benchmarks.ingest.reports import Canvas, Style
from quire.control import document_content as content
from quire.control import document_structure as structure
from quire.control import documents as verbs
from quire.control.search import search
from quire.errors import NotFound
from quire.store.db import dialect
from quire.store.db.schema.documents import pages
from quire.store.doctor import repair
from quire.text import words
from tests.shelf import PLAIN, Shelf, open_shelf

STYLE = Style("Helvetica", 10, 1.3, "bold", "none", False, 14.0, 1)


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def report(*, years: int = 9, number: int = 9, edited: int = 0) -> bytes:
    """Five pages with running lines; on page 3 there is a statement of ten columns."""
    canvases = []
    for page in range(1, 6):
        canvas = Canvas(STYLE, 842, 595)
        canvas.text(60, 40, "Harbour Holdings, Annual Report", 9)
        canvas.centre(421, 575, f"{page}", 9)
        canvas.text(60, 90, f"Chapter of page {page}", 15, bold=True)
        text = "an edited page" if page == edited else f"page {page} tells of ships and of tides"
        for line in range(8):
            canvas.text(60, 130 + 13 * line, f"{text}, in line {line} of its text", 10)
        if page == 3:
            _statement(canvas, years, number)
        canvases.append(canvas)
    return reports.file_of(STYLE, canvases)


def _statement(canvas: Canvas, years: int, number: int) -> None:
    canvas.text(60, 300, "(in millions)", 9)
    rows = [("", *(str(2021 - i) for i in range(years)))]
    rows += [
        (name, *(f"{number + i},{100 + line}" for i in range(years)))
        for line, name in enumerate(["Revenue", "Cost of sales", "Profit"])
    ]
    for line, row in enumerate(rows):
        canvas.text(60, 316 + 14 * line, row[0], 10)
        for column, value in enumerate(row[1:]):
            canvas.right(230 + 65 * column, 316 + 14 * line, value, 10)


def test_a_report_shows_its_outline_its_tables_and_its_text(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    caller, document = shelf.app.caller, shelf.document("report.pdf").id

    outline = structure.outline(caller, document)["items"]
    assert outline == [
        {"level": 1, "title": f"Chapter of page {page}", "page": page} for page in range(1, 6)
    ]
    [table] = structure.tables(caller, document)["items"]
    assert (table["page"], table["rows"], table["columns"]) == (3, 4, 10)
    assert table["unit"] == "(in millions)"
    [cell] = [each for each in table["cells"] if each["text"] == "10,101"]
    assert (cell["row"], cell["column"]) == (2, 2)
    left, top, width, height = cell["box"]
    assert 230 < left < left + width <= 296 and 330 < top < top + height < 352

    text = structure.as_markdown(caller, document)
    assert text.count("# Chapter of page") == 5
    assert "Annual Report" not in text  # a running line
    assert "| Cost of sales | 9,101 | 10,101 |" in text


def test_the_csv_of_a_statement_of_ten_columns_is_its_numbers(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    [table] = structure.tables_as_text(shelf.app.caller, shelf.document("report.pdf").id)
    rows = list(csv.reader(io.StringIO(table.csv)))
    assert rows[0] == ["", *(str(year) for year in range(2021, 2012, -1))]
    assert rows[1] == ["Revenue", *(f"{9 + i},100" for i in range(9))]
    assert len(rows) == 4


def test_the_blocks_of_a_page_are_in_reading_order_with_their_boxes(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    caller, document = shelf.app.caller, shelf.document("report.pdf").id
    page = structure.of_page(caller, document, 3)
    kinds = [each["kind"] for each in page["blocks"]]
    assert kinds == ["header", "heading", "paragraph", "table", "footer"]
    tops = [each["box"][1] for each in page["blocks"]]
    assert tops == sorted(tops)
    assert page["unreadable"] == 0
    with pytest.raises(NotFound):
        structure.of_page(caller, document, 6)
    exported = verbs.tokens(caller, document, 1)[2]
    [table] = [each for each in exported["blocks"] if each["kind"] == "table"]
    inside = [exported["tokens"][i]["text"] for a, b in table["tokens"] for i in range(a, b)]
    assert "Revenue" in inside and "ships" not in inside


def test_an_edited_page_gets_new_blocks_and_the_others_keep_theirs(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    before = {row.key: row.id for row in shelf.rows("pages")}
    shelf.put("report.pdf", report(edited=2))
    shelf.ingest(settings=PLAIN)
    assert len(shelf.rows("pages")) == 6
    assert shelf.ledger("report.pdf")["pages_reused"] == 4
    assert before.items() <= {row.key: row.id for row in shelf.rows("pages")}.items()
    assert "an edited page" in structure.as_markdown(
        shelf.app.caller, shelf.document("report.pdf").id
    )


def test_a_bookmark_makes_a_heading_and_changes_the_key_of_its_page_alone(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    with pikepdf.open(io.BytesIO(report())) as opened:
        with opened.open_outline() as outline:
            outline.root.append(pikepdf.OutlineItem("Chapter of page 2", 1))
        written = io.BytesIO()
        opened.save(written)
    shelf.put("report.pdf", written.getvalue())
    shelf.ingest(settings=PLAIN)
    assert shelf.ledger("report.pdf")["pages_reused"] == 4
    caller, document = shelf.app.caller, shelf.document("report.pdf").id
    sources = [
        each["source"]
        for each in structure.of_page(caller, document, 2)["blocks"]
        if each["kind"] == "heading"
    ]
    assert sources == ["outline"]


def test_pages_that_were_read_before_blocks_are_shown_as_their_text(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    with shelf.db.begin() as conn:
        conn.execute(sa.update(pages).values(blocks=None))
    caller, document = shelf.app.caller, shelf.document("report.pdf").id
    assert "page 4 tells of ships" in structure.as_markdown(caller, document)
    assert structure.tables(caller, document)["items"] == []
    assert shelf.is_found("page 4 tells of ships")


def test_tables_are_listed_in_pages(shelf: Shelf):
    shelf.put("many.pdf", reports.make(0).content)
    shelf.ingest(settings=PLAIN)
    caller, document = shelf.app.caller, shelf.document("many.pdf").id
    whole = structure.tables(caller, document)["items"]
    parts, cursor = [], None
    while True:
        found = structure.tables(caller, document, limit=1, cursor=cursor)
        parts += found["items"]
        if found["next"] is None:
            break
        cursor = int(found["next"])
    assert parts == whole and len(whole) >= 6


def test_another_tenant_sees_no_structure(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings=PLAIN)
    document = shelf.document("report.pdf").id
    stranger = dataclasses.replace(shelf.app.caller, tenant="other")
    for verb in (structure.outline, structure.tables, structure.as_markdown):
        with pytest.raises(NotFound):
            verb(stranger, document)
    with pytest.raises(NotFound):
        structure.of_page(stranger, document, 1)


def test_a_chunk_is_found_by_the_heading_above_it_which_is_not_in_its_text(shelf: Shelf):
    canvas = Canvas(STYLE)
    canvas.text(60, 60, "Zanzibar expedition", 15, bold=True)
    for line in range(50):
        canvas.text(60, 90 + 14 * line, f"line {line} of a long text about ships and the tides", 10)
    shelf.put("voyage.pdf", reports.file_of(STYLE, [canvas]))
    shelf.ingest(settings={**PLAIN, "chunk_tokens": "100"})
    caller, document = shelf.app.caller, shelf.document("voyage.pdf").id
    found = content.chunks(caller, document, limit=50, cursor=None)["items"]
    assert len(found) > 3
    assert {each["context"] for each in found} == {None, "Zanzibar expedition"}
    assert sum("Zanzibar" in each["text"] for each in found) == 1
    hits = search(shelf.db, "default", "Zanzibar line 49", mode="text", limit=5)["items"]
    assert "line 49" in hits[0]["text"]


def test_the_index_is_repaired_with_the_context_of_chunks(shelf: Shelf):
    shelf.put("report.pdf", report())
    shelf.ingest(settings={**PLAIN, "chunk_tokens": "60", "overlap": "0"})
    assert [row for row in shelf.rows("chunks") if row.context]
    with shelf.db.begin() as conn:
        ids = [row.id for row in shelf.rows("chunks")]
        dialect.unindex_texts(conn, "default", ids)
        analyse = words.fts5_input if shelf.db.stems_words else words.tsvector_input
        repair.index_missing_chunks(conn, analyse)
    hits = search(shelf.db, "default", "chapter", mode="text", limit=50)["items"]
    assert {hit["page"] for hit in hits} == {1, 2, 3, 4, 5}
    assert any("Chapter" not in hit["text"] for hit in hits)


def test_a_table_that_goes_on_on_the_next_page_says_so_and_its_csv_is_one(shelf: Shelf):
    canvases = []
    for page in (1, 2, 3):
        canvas = Canvas(STYLE)
        canvas.text(60, 40, "Harbour Holdings, Annual Report", 9)
        canvas.centre(297, 815, f"{page}", 9)
        if page == 3:
            canvas.text(60, 100, "A sentence about the ships in the harbour.", 10)
        for line in range(12):
            y = 130 + 14 * line
            if line == 0 and page != 2:
                canvas.right(400, y, "2021", 10)
                canvas.right(500, y, "2020", 10)
            else:
                canvas.text(60, y, f"Row {page} {chr(97 + line)}", 10)
                canvas.right(400, y, f"{page},{100 + line}", 10)
                canvas.right(500, y, f"{page},{200 + line}", 10)
        canvases.append(canvas)
    shelf.put("long.pdf", reports.file_of(STYLE, canvases))
    shelf.ingest(settings=PLAIN)
    found = structure.tables_as_text(shelf.app.caller, shelf.document("long.pdf").id)
    assert [each.details["continues"] for each in found] == [False, True, False]
    rows = list(csv.reader(io.StringIO(found[0].csv + found[1].csv)))
    assert len(rows) == 24 and {len(row) for row in rows} == {3}
    assert rows[12] == ["Row 2 a", "2,100", "2,200"]


def test_a_huge_table_is_cut_in_lists_and_whole_as_csv(shelf: Shelf):
    lines = "".join(f"row{n},{n},{n}.5\n" for n in range(9_000))
    shelf.put("many.csv", f"Name,Count,Rate\n{lines}")
    shelf.ingest(settings={**PLAIN, "row_size": "10000"})
    caller, document = shelf.app.caller, shelf.document("many.csv").id
    [table] = structure.tables(caller, document)["items"]
    assert table["is_cut"] and table["rows"] == 9_001
    assert 19_000 < len(table["cells"]) <= structure.MOST_CELLS
    assert len(table["grid"]) < 7_000
    [written] = structure.tables_as_text(caller, document)
    assert written.csv.count("\n") == 9_001
