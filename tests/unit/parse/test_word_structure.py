"""Structure of Word files: headings, lists, tables, notes and pages; and files made to do harm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page
from quire.parse import file_type
from tests import documents
from tests.blocks import blocks_of, read, shown, spans
from tests.documents import put

HEAD = '<w:{0} xmlns:w="urn:w">{1}</w:{0}>'


def docx(body: str, **parts: str) -> bytes:
    content = documents.changed(
        samples.docx(["x"]),
        "word/document.xml",
        HEAD.format("document", f"<w:body>{body}</w:body>"),
    )
    for name, text in parts.items():
        content = documents.changed(content, f"word/{name}.xml", HEAD.format(name, text))
    # Repeated XML would be refused as a bomb: real files hold pictures.
    return documents.with_picture(content, len(body) // 50)


def word(folder: Path, body: str, **parts: str) -> list[Page]:
    return read(put(folder, "a.docx", docx(body, **parts)), file_type.DOCX)


def p(text: str, style: str = "", more: str = "", run: str = "") -> str:
    chosen = f'<w:pStyle w:val="{style}"/>' if style else ""
    run = f"<w:rPr>{run}</w:rPr>" if run else ""
    return f"<w:p><w:pPr>{chosen}{more}</w:pPr><w:r>{run}<w:t>{text}</w:t></w:r></w:p>"


def style(style_id: str, name: str, more: str = "", based_on: str = "") -> str:
    base = f'<w:basedOn w:val="{based_on}"/>' if based_on else ""
    return (
        f'<w:style w:type="paragraph" w:styleId="{style_id}"><w:name w:val="{name}"/>{base}'
        f"<w:pPr>{more}</w:pPr></w:style>"
    )


def in_list(num_id: int, level: int = 0) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{num_id}"/></w:numPr>'


def numbering(levels: Mapping[int, tuple[str, str]], extra: str = "") -> str:
    listed = "".join(
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for at, (form, text) in levels.items()
    )
    return (
        f'<w:abstractNum w:abstractNumId="7">{listed}</w:abstractNum>'
        f'<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>{extra}'
    )


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{p(text) if text else '<w:p/>'}</w:tc>"


def row(*cells: str, properties: str = "") -> str:
    return f"<w:tr><w:trPr>{properties}</w:trPr>{''.join(cells)}</w:tr>"


BREAK = "<w:p><w:r><w:lastRenderedPageBreak/><w:t>{}</w:t></w:r></w:p>"


def test_headings_come_from_styles_by_name_by_outline_level_and_by_what_they_are_based_on(
    tmp_path: Path,
):
    styles = (
        style("Titel", "Title")
        + style("berschrift1", "heading 1")
        + style("Ueber2", "Überschrift 2")
        + style("Firm", "Firm section", based_on="berschrift1")
        + style("Outlined", "Something", '<w:outlineLvl w:val="2"/>')
        + style("Toc", "TOC Heading", '<w:outlineLvl w:val="9"/>', based_on="berschrift1")
    )
    body = (
        p("Annual report", "Titel") + p("Tides", "berschrift1") + p("Neap tides", "Ueber2")
        + p("Cargo", "Firm") + p("Wool", "Outlined") + p("Contents", "Toc")
        + p("By itself", more='<w:outlineLvl w:val="3"/>') + p("Plain text.")
    )  # fmt: skip
    [page] = word(tmp_path, body, styles=styles)
    assert shown(page) == [
        ("heading", 1, "Annual report"), ("heading", 1, "Tides"), ("heading", 2, "Neap tides"),
        ("heading", 1, "Cargo"), ("heading", 3, "Wool"), ("paragraph", "Contents"),
        ("heading", 4, "By itself"), ("paragraph", "Plain text."),
    ]  # fmt: skip


def test_a_short_bold_paragraph_is_a_heading_that_is_less_sure(tmp_path: Path):
    bold = p("Harbour dues", run="<w:b/>")
    not_bold = p("Plain", run='<w:b w:val="0"/>')
    [page] = word(tmp_path, bold + p("It costs ten.", run="<w:b/>") + not_bold)
    assert shown(page)[0] == ("heading", 1, "Harbour dues")
    assert [block.confidence for block in blocks_of(page)] == [60, 100, 100]


def test_lists_have_their_levels_and_the_numbers_that_word_shows(tmp_path: Path):
    levels = {0: ("decimal", "%1."), 1: ("lowerLetter", "%1.%2)"), 2: ("bullet", "*")}
    styles = style("H", "heading 1", in_list(1))
    body = (
        p("Scope", "H") + p("first", more=in_list(1, 1)) + p("second", more=in_list(1, 1))
        + p("point", more=in_list(1, 2)) + p("Terms", "H") + p("again", more=in_list(1, 1))
        + p("out", "H", in_list(0))
    )  # fmt: skip
    [page] = word(tmp_path, body, styles=styles, numbering=numbering(levels))
    assert shown(page) == [
        ("heading", 1, "1. Scope"), ("list_item", 2, "1.a) first"), ("list_item", 2, "1.b) second"),
        ("list_item", 3, "point"), ("heading", 1, "2. Terms"), ("list_item", 2, "2.a) again"),
        ("heading", 1, "out"),
    ]  # fmt: skip


def test_a_table_keeps_its_merged_cells_header_rows_and_caption(tmp_path: Path):
    header, down = "<w:tblHeader/>", '<w:vMerge w:val="restart"/>'
    across = '<w:gridSpan w:val="2"/>'
    table = (
        "<w:tbl>" + row(cell("Port", down), cell("Tonnes", across), properties=header)
        + row(cell("", "<w:vMerge/>"), cell("wool"), cell("slate"), properties=header)
        + row(cell("Hull"), cell("7"), cell("9"))
        + row(cell(""), cell("8"), properties='<w:gridBefore w:val="1"/>')
        + "</w:tbl>"
    )  # fmt: skip
    styles = style("Cap", "caption")
    [page] = word(tmp_path, p("Table 1: Trade", "Cap") + table + p("After."), styles=styles)
    assert page.text == ("Table 1: Trade\nPort\tTonnes\n\twool\tslate\nHull\t7\t9\n\t\t8\n\nAfter.")
    grid = [["Port", "Tonnes", ""], ["", "wool", "slate"], ["Hull", "7", "9"], ["", "", "8"]]
    assert shown(page) == [("table", 2, grid), ("paragraph", "After.")]
    assert spans(page) == [(0, 0, 2, 1), (0, 1, 1, 2)]
    table_block = blocks_of(page)[0].table
    assert table_block is not None and table_block.caption == ((0, 3),)


def test_rendered_page_breaks_make_pages_with_the_notes_that_they_refer_to(tmp_path: Path):
    note = '<w:footnote w:id="{0}"><w:p><w:r><w:t>Note {0}.</w:t></w:r></w:p></w:footnote>'
    body = (
        '<w:p><w:r><w:t>One</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
        '<w:p><w:r><w:t>ends</w:t><w:br w:type="page"/></w:r></w:p>'
        + BREAK.format("Two starts here")
        + "<w:p><w:r><w:t>and goes on </w:t><w:lastRenderedPageBreak/><w:t>over the page."
        "</w:t></w:r></w:p>"
    )
    pages = word(tmp_path, body, footnotes=note.format(2) + note.format(3))
    assert [page.text for page in pages] == [
        "One\n\nends\n\nNote 2.", "Two starts here\n\nand goes on", "over the page.\n\nNote 3."
    ]  # fmt: skip
    assert [(page.number, page.label) for page in pages] == [(1, None), (2, None), (3, None)]
    assert shown(pages[0])[-1] == ("footnote", "Note 2.")


def test_a_table_over_a_page_break_repeats_its_header(tmp_path: Path):
    second = row(
        "<w:tc><w:p><w:r><w:lastRenderedPageBreak/><w:t>Ayr</w:t></w:r></w:p></w:tc>", cell("2")
    )
    table = row(cell("Port"), cell("Tonnes"), properties="<w:tblHeader/>")
    table = f"<w:tbl>{table}{row(cell('Hull'), cell('1'))}{second}</w:tbl>"
    first, last = word(tmp_path, table)
    assert first.text == "Port\tTonnes\nHull\t1"
    assert last.text == "Port\tTonnes\nAyr\t2"
    assert shown(last) == [("table", 1, [["Port", "Tonnes"], ["Ayr", "2"]])]


def test_a_long_file_without_page_breaks_is_cut_into_named_sections(tmp_path: Path):
    styles = style("H", "heading 1")
    body = "".join(p(f"Chapter {n}", "H") + p("word " * 450) for n in (1, 2))
    first, second = word(tmp_path, body + p("word " * 1700) + p("The end."), styles=styles)[:2]
    assert (first.label, second.label) == ("section 1: Chapter 1", "section 2: Chapter 2")
    assert second.text.startswith("Chapter 2")
    pages = word(tmp_path, body + p("word " * 1700) + p("The end."), styles=styles)
    assert [page.text for page in pages[2:]] == ["The end."]


def test_headers_and_footers_are_blocks_of_their_own(tmp_path: Path):
    line = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    [page] = word(
        tmp_path, p("Text."), header1=line.format("ACME"), footer1=line.format("Confidential")
    )
    assert shown(page) == [("paragraph", "Text."), ("footer", "Confidential"), ("header", "ACME")]


def test_styles_and_lists_that_refer_to_themselves_are_read(tmp_path: Path):
    loop = style("A", "a", in_list(1), based_on="B") + style("B", "b", based_on="A")
    links = (
        '<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="S"/><w:styleLink w:val="S"/>'
        '<w:lvl w:ilvl="99"><w:start w:val="9999999999999"/><w:numFmt w:val="lowerLetter"/>'
        '<w:lvlText w:val="%9%9%9"/></w:lvl></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="missing"/></w:num>'
    )
    body = p("one", "A", in_list(1, 8)) + p("two", "B") + p("three", more=in_list(2, 77))
    [page] = word(tmp_path, body, styles=loop, numbering=links)
    assert [line.split()[-1] for line in page.text.split("\n\n")] == ["one", "two", "three"]
    assert len(page.text) < 200


@pytest.mark.parametrize(
    "table",
    [
        row(*(cell("x", '<w:gridSpan w:val="999999999999"/>') for _ in range(300))),
        "".join(row(cell("x", "<w:vMerge/>"), cell("y", "<w:vMerge/>")) for _ in range(500)),
        row(*(cell("x") for _ in range(25_000))),
        "".join(row(cell("x"), properties='<w:gridBefore w:val="1000"/>') for _ in range(9_000)),
        "<w:tc/>" * 10 + "</w:tbl><w:tbl>" + row() + row(cell("")),
    ],
)
def test_tables_with_absurd_spans_lose_no_text(table: str, tmp_path: Path):
    pages = word(tmp_path, f"<w:tbl>{table}</w:tbl>" + p("end"))
    for page in pages:
        blocks_of(page)
    assert sum(page.text.count("x") for page in pages) == table.count("<w:t>x<")
    assert pages[-1].text.endswith("end")


def test_tables_inside_each_other_are_text_of_the_outer_cell(tmp_path: Path):
    deep = p("bottom")
    for level in range(150):
        deep = f"<w:tbl><w:tr><w:tc>{p(f'at {level}')}{deep}</w:tc></w:tr></w:tbl>"
    [page] = word(tmp_path, deep)
    assert len(shown(page)) == 1
    assert page.text.startswith("at 149 at 148") and page.text.endswith("at 0 bottom")
    deeper = "<w:tbl><w:tr><w:tc>" * 1_000 + "</w:tc></w:tr></w:tbl>" * 1_000
    with pytest.raises(Unreadable, match="nested deeper"):
        word(tmp_path, deeper)


def test_a_word_file_costs_in_proportion_to_its_length(tmp_path: Path):
    """Every paragraph is a bold list item, in a table now and then, on many pages."""
    levels = dict.fromkeys(range(9), ("lowerRoman", "%1.%2.%3.%4.%5.%6.%7.%8.%9"))
    piece = (
        p("item", more=in_list(1, 8), run="<w:b/>") * 20
        + f"<w:tbl>{row(cell('a', '<w:vMerge/>'), cell('b'))}</w:tbl>"
        + BREAK.format("next")
    )

    def cost(count: int) -> float:
        path = put(tmp_path, f"{count}.docx", docx(piece * count, numbering=numbering(levels)))
        spent = []
        for _ in range(2):
            began = time.process_time()
            assert len(read(path, file_type.DOCX)) == count + 1
            spent.append(time.process_time() - began)
        return min(spent) / count

    assert cost(800) < 3 * cost(100)
