"""Blocks of formats that say what is a heading and a table: Word, slides, sheets."""

from __future__ import annotations

from pathlib import Path

from quire.demo import samples
from quire.model.blocks import Block, BlockKind, PageText, pack, unpack
from quire.model.pages import Page
from quire.parse import boxed_reader, file_type, formats, word_boxes
from quire.parse.parser import ReadOptions
from quire.sandbox.messages import Message
from tests import documents
from tests.documents import put

WORD = 'xmlns:w="urn:w"'


def read(path: Path, media_type: str, number: int = 1) -> tuple[PageText, list[Block]]:
    [page] = formats.read(path, media_type, ReadOptions(), number, number)
    assert isinstance(page, Page)
    spans = word_boxes.word_spans(page)
    return PageText(page.text, spans), unpack(page.blocks, len(spans))


def described(found: tuple[PageText, list[Block]]) -> list[tuple[str, int, str]]:
    text, blocks = found
    return [(block.kind.name, block.level, text.of(block.runs)) for block in blocks]


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def test_headings_lists_and_tables_of_a_word_file_are_told_by_its_styles(tmp_path: Path):
    row = "<w:tr>{}</w:tr>"
    cells = "".join(f"<w:tc>{paragraph(each)}</w:tc>" for each in ("Vessel", "Tonnes"))
    more = "".join(f"<w:tc>{paragraph(each)}</w:tc>" for each in ("Red Tern", "1,200"))
    body = (
        paragraph("Harbour rules", '<w:pStyle w:val="berschrift1"/>')
        + paragraph("Fees", '<w:pStyle w:val="berschrift2"/>')
        + paragraph("They are due at noon.")
        + paragraph("for ropes", '<w:numPr><w:ilvl w:val="0"/></w:numPr>')
        + f"<w:tbl>{row.format(cells)}{row.format(more)}</w:tbl>"
    )
    content = documents.changed(
        samples.docx(["x"]),
        "word/document.xml",
        f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
    )
    styles = "".join(
        f'<w:style w:styleId="berschrift{n}"><w:name w:val="heading {n}"/></w:style>'
        for n in (1, 2)
    )
    content = documents.changed(content, "word/styles.xml", f"<w:styles {WORD}>{styles}</w:styles>")
    text, blocks = found = read(put(tmp_path, "a.docx", content), file_type.DOCX)
    assert described(found) == [
        ("HEADING", 1, "Harbour rules"),
        ("HEADING", 2, "Fees"),
        ("PARAGRAPH", 0, "They are due at noon."),
        ("LIST_ITEM", 1, "for ropes"),
        ("TABLE", 0, "Vessel Tonnes Red Tern 1,200"),
    ]
    table = blocks[-1].table
    assert table is not None and table.header_rows == 1
    assert text.grid(table) == [["Vessel", "Tonnes"], ["Red Tern", "1,200"]]


def test_the_title_of_a_slide_is_a_heading(tmp_path: Path):
    slide = (
        '<p:sld xmlns:p="urn:p" xmlns:a="urn:a">'
        '<p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:r><a:t>Tides</a:t></a:r></a:p></p:sp>'
        "<p:sp><a:p><a:r><a:t>They turn at noon.</a:t></a:r></a:p></p:sp></p:sld>"
    )
    content = documents.changed(samples.pptx([["x"]]), "ppt/slides/slide1.xml", slide)
    found = read(put(tmp_path, "a.pptx", content), file_type.PPTX)
    assert described(found) == [("HEADING", 1, "Tides"), ("PARAGRAPH", 0, "They turn at noon.")]


def test_each_sheet_is_a_table_with_its_empty_cells(tmp_path: Path):
    sheets: dict[str, list[list[str | float]]] = {
        "Tides": [["Port", "Noon"], ["Old quay", 3], ["", 4]],
        "Fees": [["Rope", "Wool"]],
    }
    path = put(tmp_path, "a.xlsx", samples.xlsx(sheets))
    text, blocks = read(path, file_type.XLSX)
    first = blocks[-1].table
    second = read(path, file_type.XLSX, 2)[1][-1].table
    assert first is not None and second is not None
    assert text.grid(first) == [["Port", "Noon"], ["Old quay", "3"], ["", "4"]]
    assert (first.header_rows, second.header_rows) == (1, 0)


def test_a_csv_file_of_one_column_is_no_table_and_one_of_many_rows_is(tmp_path: Path):
    assert described(read(put(tmp_path, "a.csv", b"one\ntwo\n"), "text/csv"))[0][0] == "PARAGRAPH"
    lines = "".join(f"row {n},{n}\n" for n in range(2_500))
    _, blocks = read(put(tmp_path, "b.csv", f"Name,Count\n{lines}".encode()), "text/csv")
    [table] = [block.table for block in blocks]
    assert table is not None and (table.rows, table.columns, table.header_rows) == (2_501, 2, 1)


def test_hostile_levels_and_numbering_are_no_headings(tmp_path: Path):
    body = paragraph("x y", '<w:outlineLvl w:val="99999999999999999999"/>') + paragraph(
        "z", '<w:outlineLvl w:val="-1"/><w:pStyle w:val="none"/>'
    )
    content = documents.changed(
        samples.docx(["x"]),
        "word/document.xml",
        f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
    )
    found = read(put(tmp_path, "a.docx", content), file_type.DOCX)
    assert [kind for kind, _, _ in described(found)] == ["PARAGRAPH", "PARAGRAPH"]


def test_a_box_that_answers_with_false_blocks_loses_them_and_not_the_text():
    head = {"page": [1, 100, 100, "text", None, None], "sizes": [9, 0]}
    good = pack([Block(BlockKind.HEADING, ((0, 2),), level=1)])
    for body, expected in ((good, good), (good[:-3], b""), (b"\x01", b""), (b"", b"")):
        page = boxed_reader._page(Message(head, b"two words" + body))
        assert isinstance(page, Page)
        assert (page.text, page.blocks) == ("two words", expected)
    beyond = pack([Block(BlockKind.HEADING, ((0, 3),), level=1)])
    page = boxed_reader._page(Message(head, b"two words" + beyond))
    assert isinstance(page, Page) and page.blocks == b""
