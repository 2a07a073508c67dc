"""The structure of PDF pages: tables, headings and lists, and what only looks like them."""

from __future__ import annotations

import io
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pikepdf
import pytest

from benchmarks.ingest import column_pages, reading_score, reports
from benchmarks.ingest.reports import Canvas, Style
from quire.model.blocks import Block, BlockKind, PageText
from quire.parse.pdf import rulings
from tests import documents
from tests.documents import put

STYLE = Style("Helvetica", 10, 1.3, "bold", "none", False, 14.0, 1)


def read(folder: Path, *pages: Canvas) -> list[tuple[PageText, list[Block]]]:
    path = put(folder, "page.pdf", reports.file_of(STYLE, pages))
    return [(text, blocks) for text, blocks, _, _ in reading_score.read(path)]


def one(folder: Path, canvas: Canvas) -> tuple[PageText, list[Block]]:
    [found] = read(folder, canvas)
    return found


def tables(folder: Path, canvas: Canvas) -> list[list[list[str]]]:
    text, blocks = one(folder, canvas)
    return [text.grid(block.table) for block in blocks if block.table]


def texts(found: tuple[PageText, list[Block]], kind: BlockKind) -> list[str]:
    text, blocks = found
    return [text.of(block.runs) for block in blocks if block.kind == kind]


def statement(*rows: tuple[str, ...], columns: tuple[float, ...] = (400, 500)) -> Canvas:
    """A page with rows of a label and numbers that end at the columns."""
    canvas = Canvas(STYLE)
    for index, (label, *values) in enumerate(rows):
        y = 100 + 14 * index
        canvas.text(60, y, label, 10)
        for x, value in zip(columns, values, strict=False):
            canvas.right(x, y, value, 10)
    return canvas


def test_numbers_in_columns_are_a_table_with_years_as_header(tmp_path: Path):
    page = statement(("", "2021", "2020"), ("Sales", "1,204", "(97)"), ("Costs", "800", "\x97"))
    [grid] = tables(tmp_path, page)
    assert grid == [["", "2021", "2020"], ["Sales", "1,204", "(97)"], ["Costs", "800", "—"]]


def test_a_currency_sign_belongs_to_the_number_on_its_right(tmp_path: Path):
    page = statement(("", "2021", "2020"), ("Sales", "1,204", "9"), ("Costs", "800", "12"))
    page.text(340, 114, "$", 10)
    page.text(440, 114, "$", 10)
    [grid] = tables(tmp_path, page)
    assert grid[1] == ["Sales", "$ 1,204", "$ 9"]


def test_a_unit_leaves_the_grid(tmp_path: Path):
    page = statement(
        ("(in millions)",), ("", "2021", "2020"), ("Sales", "1", "2"), ("Costs", "3", "4")
    )
    text, blocks = one(tmp_path, page)
    [table] = [block.table for block in blocks if block.table]
    assert text.of(table.unit) == "(in millions)"
    assert text.grid(table)[0] == ["", "2021", "2020"]


def test_header_lines_that_continue_each_other_are_one_row_and_a_span_is_its_own(tmp_path: Path):
    page = statement(("Sales", "1", "2"), ("Costs", "3", "4"), ("Profit", "5", "6"))
    page.centre(430, 58, "Years ended June 30,", 10, bold=True)
    for x, lines in ((400, ("Percent", "of sales")), (500, ("Total", "growth"))):
        for index, each in enumerate(lines):
            page.right(x, 72 + 13 * index, each, 10, bold=True)
    text, blocks = one(tmp_path, page)
    [table] = [block.table for block in blocks if block.table]
    assert table.header_rows == 2
    assert text.grid(table)[:2] == [
        ["", "Years ended June 30,", ""],
        ["", "Percent of sales", "Total growth"],
    ]
    assert table.cells[0].column_span == 2


def test_a_label_that_was_wrapped_is_one_cell(tmp_path: Path):
    page = statement(
        ("", "2021", "2020"),
        ("Income from continuing operations before taxes and",),
        ("  interest", "1", "2"),
        ("Costs", "3", "4"),
    )
    assert tables(tmp_path, page)[0][1] == [
        "Income from continuing operations before taxes and interest", "1", "2",
    ]  # fmt: skip


def test_the_name_of_a_section_stays_a_row_of_its_own(tmp_path: Path):
    page = statement(
        ("", "2021", "2020"), ("Assets",), ("Cash", "1", "2"), ("Goods", "3", "4"),
        ("Liabilities",), ("Loans", "5", "6"),
    )  # fmt: skip
    labels = [row[0] for row in tables(tmp_path, page)[0]]
    assert labels == ["", "Assets", "Cash", "Goods", "Liabilities", "Loans"]


def test_drawn_cells_are_a_table_even_if_they_hold_words_only(tmp_path: Path):
    canvas = Canvas(STYLE)
    rows = [["Name", "Duty"], ["Ada", "counts"], ["Ben", "writes long texts"]]
    for row, line in enumerate(rows):
        for column, words in enumerate(line):
            canvas.text(63 + 200 * column, 112 + 20 * row, words, 10)
    for row in range(4):
        canvas.line(60, 100 + 20 * row, 460, 100 + 20 * row)
    for column in range(3):
        canvas.line(60 + 200 * column, 100, 60 + 200 * column, 160)
    text, blocks = one(tmp_path, canvas)
    [block] = [block for block in blocks if block.table]
    assert block.table and text.grid(block.table) == rows
    assert (block.source.name, block.table.header_rows) == ("RULES", 1)


def test_a_cell_over_two_columns_without_a_line_between_spans_them(tmp_path: Path):
    canvas = Canvas(STYLE)
    canvas.text(100, 115, "Both columns of this table", 10)
    for row, line in enumerate([["a", "1"], ["b", "2"]], start=1):
        for column, words in enumerate(line):
            canvas.text(70 + 100 * column, 115 + 20 * row, words, 10)
    for row in range(4):
        canvas.line(60, 100 + 20 * row, 260, 100 + 20 * row)
    for x, top in ((60, 100), (160, 120), (260, 100)):
        canvas.line(x, top, x, 160)
    text, blocks = one(tmp_path, canvas)
    [table] = [block.table for block in blocks if block.table]
    assert table.cells[0].column_span == 2
    assert text.grid(table)[1:] == [["a", "1"], ["b", "2"]]


def prose(canvas: Canvas, x: float, y: float, lines: int, words: str) -> None:
    for index in range(lines):
        canvas.text(x, y + 13 * index, words, 10)


def test_two_columns_of_prose_are_no_table_and_are_read_one_after_the_other(tmp_path: Path):
    canvas = Canvas(STYLE)
    prose(canvas, 60, 100, 20, "the left column goes on and on in lines")
    prose(canvas, 320, 100, 20, "the right one has 1,204 words and 17 lines")
    found = one(tmp_path, canvas)
    assert texts(found, BlockKind.TABLE) == []
    left, right = texts(found, BlockKind.PARAGRAPH)
    assert left.count("left") == 20 and right.count("right") == 20


def test_numbered_lines_and_a_letter_with_a_date_are_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index in range(1, 15):
        canvas.text(60, 100 + 14 * index, f"{index}", 10)
        canvas.text(90, 100 + 14 * index, "the witness said that it was so", 10)
    canvas.text(60, 60, "Harbour office", 10)
    canvas.text(450, 60, "June 3, 2021", 10)
    assert tables(tmp_path, canvas) == []


def test_a_heading_is_larger_or_bold_and_a_bold_word_in_a_paragraph_is_none(tmp_path: Path):
    canvas = Canvas(STYLE)
    canvas.text(60, 80, "The harbour", 15, bold=True)
    prose(canvas, 60, 110, 3, "the left column goes on and on in lines that are quite long")
    canvas.text(60, 170, "Fees and dues", 10, bold=True)
    canvas.text(60, 190, "Note", 10, bold=True)
    canvas.text(85, 190, "that this paragraph starts with a bold word, and goes on with", 10)
    prose(canvas, 60, 203, 3, "the left column goes on and on in lines that are quite long")
    _, blocks = found = one(tmp_path, canvas)
    assert texts(found, BlockKind.HEADING) == ["The harbour", "Fees and dues"]
    levels = [block.level for block in blocks if block.kind == BlockKind.HEADING]
    assert levels[0] < levels[1]


def test_list_items_keep_their_lines_and_a_page_number_is_no_text(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index in range(3):
        canvas.text(60, 100 + 40 * index, "\x95", 10)
        canvas.text(75, 100 + 40 * index, f"item {index} has a long first line of words", 10)
        canvas.text(75, 113 + 40 * index, "and a second one.", 10)
    canvas.centre(297, 815, "17", 9)
    found = one(tmp_path, canvas)
    assert [each[-17:] for each in texts(found, BlockKind.LIST_ITEM)] == ["and a second one."] * 3
    assert texts(found, BlockKind.FOOTER) == ["17"]


@pytest.mark.parametrize("turned", [90, 270])
def test_a_table_on_a_turned_page_is_read(turned: int, tmp_path: Path):
    page = statement(("", "2021", "2020"), ("Sales", "1,204", "(97)"), ("Costs", "800", "9"))
    content = reports.file_of(STYLE, [page])
    with pikepdf.open(io.BytesIO(content)) as opened:
        opened.pages[0].obj.Rotate = turned
        opened.save(tmp_path / "turned.pdf")
    [(text, blocks, _, _)] = reading_score.read(tmp_path / "turned.pdf")
    [table] = [block.table for block in blocks if block.table]
    assert text.grid(table)[1:] == [["Sales", "1,204", "(97)"], ["Costs", "800", "9"]]


def test_reports_that_the_code_was_not_tuned_on_are_read(tmp_path: Path):
    made = [r for r in map(reports.make, range(100, 110)) if not r.is_for_tuning]
    found = reading_score.score(made, tmp_path)
    assert reading_score.f1(found.cells) > 0.92
    assert reading_score.share(found.lookups) > 0.9
    assert reading_score.f1(found.headings) > 0.85
    assert reading_score.share(found.order) > 0.97
    assert reading_score.f1(found.running) > 0.95
    assert found.false_tables == 0 < found.prose_pages


def test_bookmarks_that_lead_in_circles_or_nowhere_end(tmp_path: Path):
    canvas = Canvas(STYLE)
    canvas.text(60, 80, "The harbour", 10)
    prose(canvas, 60, 110, 9, "the left column goes on and on in lines that are quite long")
    content = reports.file_of(STYLE, [canvas])
    with pikepdf.open(io.BytesIO(content)) as opened:
        page = opened.pages[0].obj
        first = opened.make_indirect(
            pikepdf.Dictionary(Title=" The\nharbour", Dest=pikepdf.Array([page]))
        )
        second = opened.make_indirect(pikepdf.Dictionary(Title="Nowhere", Dest="gone"))
        first.Next, second.Next = second, first
        first.First = second.First = first
        opened.Root.Outlines = pikepdf.Dictionary(Type=pikepdf.Name.Outlines, First=first)
        opened.save(tmp_path / "loop.pdf")
    [(text, blocks, _, _)] = reading_score.read(tmp_path / "loop.pdf")
    assert [(b.source.name, text.of(b.runs)) for b in blocks if b.level] == [
        ("OUTLINE", "The harbour")
    ]


@pytest.mark.parametrize("rows", [1, 2, 3_000])
def test_a_table_of_many_rows_is_one_and_a_row_alone_is_none(rows: int, tmp_path: Path):
    canvas = Canvas(STYLE, 595, 14_000)
    for index in range(rows):
        canvas.text(60, 20 + 4 * index, f"row{index}", 3)
        canvas.right(200, 20 + 4 * index, f"{index},000", 3)
        canvas.right(260, 20 + 4 * index, f"{index}.5", 3)
    found = [len(grid) for grid in tables(tmp_path, canvas)]
    assert found == ([] if rows == 1 else [rows])


def test_a_form_with_fields_and_a_filled_line_is_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index, (name, value) in enumerate(
        [("Name", "Ada Byron"), ("Street", "Quay Road"), ("Town", "Harwich"), ("Boat", "Tern")]
    ):
        canvas.text(60, 100 + 30 * index, name, 10)
        canvas.text(200, 100 + 30 * index, value, 10)
        canvas.line(200, 103 + 30 * index, 400, 103 + 30 * index)
    assert tables(tmp_path, canvas) == []


def test_a_column_without_a_single_value_does_not_shift_the_others(tmp_path: Path):
    page = statement(
        ("", "2021", "", "2019"), ("Sales", "1", "", "3"), ("Costs", "4", "", "6"),
        columns=(300, 400, 500),
    )  # fmt: skip
    [grid] = tables(tmp_path, page)
    assert grid == [["", "2021", "2019"], ["Sales", "1", "3"], ["Costs", "4", "6"]]


@pytest.mark.parametrize("kind", ["rows", "words", "columns", "wide", "turns"])
def test_time_grows_with_the_words_of_a_page_and_not_with_their_square(kind: str, tmp_path: Path):
    def page(count: int) -> Path:
        canvas = Canvas(STYLE, 14_000, 14_000)
        for index in range(count):
            y = 10 + 1.7 * index
            if kind == "rows":
                canvas.text(60, y, "label", 1.4)
                canvas.right(100, y, f"{index}", 1.4)
            elif kind in ("words", "turns"):  # in turns, the file goes across two columns
                across = ("words", "turns").index(kind) + 1
                x, y = 60 + 240 * (index % across), 10 + 1.7 * (index // across)
                canvas.text(x, y, "some words of a paragraph that goes on", 1.4)
            elif kind == "wide":  # two rows of as many columns as there are numbers
                canvas.text(10 + 3.4 * (index // 2), 20 + 2 * (index % 2), "1", 1.4)
            else:
                canvas.text(60 + 35 * (index % 13), 10 + 1.7 * (index // 13), f"{index}", 1.4)
        return put(tmp_path, f"{count}.pdf", reports.file_of(STYLE, [canvas]))

    def seconds(path: Path) -> float:
        started = time.process_time()
        list(reading_score.read(path))
        return time.process_time() - started

    small, large = page(1_000), page(8_000)
    seconds(small)
    # Eight times the words: 8 is linear, 64 quadratic. In turns, as other processes come and go.
    assert min(seconds(large) / seconds(small) for _ in range(4)) < 24


def test_a_page_without_words_has_no_blocks(tmp_path: Path):
    assert one(tmp_path, Canvas(STYLE))[1] == []


def test_words_beyond_the_edge_and_on_top_of_each_other_do_no_harm(tmp_path: Path):
    path = put(
        tmp_path,
        "odd.pdf",
        documents.pdf(documents.drawn(*[("1,000", x, 600) for x in (-900, 100, 100, 100, 9000)])),
    )
    [(text, blocks, _, _)] = reading_score.read(path)
    assert "1,000" in text.text
    assert blocks


def test_edges_that_form_one_long_chain_take_time_for_each_edge_alone():
    steps = np.arange(1_000) * 10.0
    stairs = rulings.Edges(
        np.stack([steps, steps, steps + 10], 1), np.stack([steps + 10, steps, steps + 10], 1)
    )
    started = time.process_time()
    [group] = rulings._connected(stairs)
    assert (len(group.horizontal), len(group.vertical)) == (1_000, 1_000)
    assert time.process_time() - started < 5


def test_drawn_cells_that_are_no_rectangles_do_not_overlap(tmp_path: Path):
    canvas = Canvas(STYLE)
    for row in range(3):
        for column in range(3):
            canvas.text(70 + 100 * column, 115 + 20 * row, f"{row}{column}", 10)
    for y in (100, 160):
        canvas.line(60, y, 360, y)
    for x in (60, 360):
        canvas.line(x, 100, x, 160)
    # The cell at the top left is an L; the others have their lines.
    canvas.line(160, 120, 360, 120)
    canvas.line(60, 140, 260, 140)
    canvas.line(160, 120, 160, 140)
    canvas.line(260, 120, 260, 160)
    [(_, blocks, _, _)] = reading_score.read(
        put(tmp_path, "l.pdf", reports.file_of(STYLE, [canvas]))
    )
    [table] = [block.table for block in blocks if block.table]
    area = sum(cell.row_span * cell.column_span for cell in table.cells)
    assert area <= table.rows * table.columns


def test_slanted_lines_and_circles_of_a_drawing_are_no_grid(tmp_path: Path):
    canvas = Canvas(STYLE)
    for row in range(4):
        for column in range(4):
            x, y = 100 + 60 * column, 200 + 60 * row
            canvas.text(x + 20, y + 30, "PQRS"[column], 10)
            canvas.line(x, y, x + 60, y + 60)
            canvas.line(x + 60, y, x, y + 60)
    assert tables(tmp_path, canvas) == []


def test_the_labels_of_a_chart_are_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index, name in enumerate(["Never", "Sometimes", "Often", "Always", "Unknown"]):
        canvas.text(60, 100 + 20 * index, name, 10)
        canvas.text(170 + 45 * (index * 3 % 5), 100 + 20 * index, f"{index * 7 + 3}%", 10)
    for mark in range(8):
        canvas.text(150 + 40 * mark, 205, f"{10 * mark}%", 8)
    assert tables(tmp_path, canvas) == []


def test_a_formula_over_several_lines_is_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index in range(3):
        y = 100 + 16 * index
        canvas.text(100, y, f"f{index} =", 10)
        canvas.text(150, y - 5, f"{index + 1}", 7)
        canvas.text(150, y + 5, "2", 7)
        canvas.text(180, y, "x +", 10)
        canvas.text(230, y - 5, "3", 7)
        canvas.text(230, y + 5, "4", 7)
    assert tables(tmp_path, canvas) == []


@pytest.mark.parametrize("leaders", [True, False])
def test_a_table_of_contents_is_a_list_of_its_entries(leaders: bool, tmp_path: Path):
    canvas = Canvas(STYLE)
    names = ["Scope", "Method", "Results", "Outlook", "Sources"]
    for index, name in enumerate(names):
        y = 100 + 16 * index
        if not leaders:
            canvas.text(60, y, f"{index + 1}", 10)
        canvas.text(90, y, name + " ." * (60 - len(name)) * leaders, 10)
        canvas.right(500, y, str(3 + 4 * index), 10)
    found = one(tmp_path, canvas)
    assert not any(block.table for block in found[1])
    items = texts(found, BlockKind.LIST_ITEM)
    assert len(items) == len(names)
    assert items[1].endswith(" 7")
    assert "Method" in items[1]


def test_a_ranking_under_a_header_is_a_table_and_no_table_of_contents(tmp_path: Path):
    canvas = Canvas(STYLE)
    rows = [("Rank", "Boat", "Hours"), ("1", "Tern", "20"), ("2", "Gull", "22"), ("3", "Auk", "29")]
    for index, row in enumerate([*rows, ("4", "Kite", "31")]):
        for x, text in zip((60, 120, 300), row, strict=True):
            canvas.text(x, 100 + 14 * index, text, 10)
    [grid] = tables(tmp_path, canvas)
    assert grid[0] == ["Rank", "Boat", "Hours"]
    assert grid[4] == ["4", "Kite", "31"]


def test_lines_on_backgrounds_of_different_width_are_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index, left in enumerate([60, 90, 60, 120, 75, 60]):
        canvas.fill(left, 100 + 14 * index, 460 - 5 * index - left, 14)
        canvas.text(left + 2, 110 + 14 * index, "a line of a quotation on grey ground", 10)
    assert tables(tmp_path, canvas) == []


def test_a_plot_with_lines_of_a_grid_is_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for step in range(6):
        canvas.line(100, 100 + 40 * step, 300 - 10 * step, 100 + 40 * step)
        canvas.line(100 + 40 * step, 100 + 12 * step, 100 + 40 * step, 300)
        canvas.text(90, 296 - 40 * step, str(step), 8)
        canvas.text(104 + 40 * step, 296, str(step), 8)
    canvas.text(150, 150, "A", 10)
    canvas.text(230, 210, "B", 10)
    assert tables(tmp_path, canvas) == []


def test_edges_that_are_drawn_in_short_pieces_are_one_grid(tmp_path: Path):
    canvas = Canvas(STYLE)
    for row in range(5):
        canvas.line(60, 100 + 20 * row, 360, 100 + 20 * row)
    for column in range(4):
        for piece in range(10):  # none of which reaches from one line to the next
            x, y = 60 + 100 * column, 100 + 8 * piece
            canvas.line(x, y, x, y + 8.3)
    for row in range(4):
        for column in range(3):
            canvas.text(70 + 100 * column, 114 + 20 * row, f"cell {row}{column}", 10)
    [grid] = tables(tmp_path, canvas)
    assert grid == [[f"cell {row}{column}" for column in range(3)] for row in range(4)]


def test_a_text_that_is_wrapped_beside_others_stays_in_its_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index in range(4):
        y = 100 + 24 * index
        for x, text in (
            (60, f"D-{index}"),
            (160, f"12/0{index}/2019"),
            (260, "transport of staff"),
        ):
            canvas.text(x, y, text, 10)
        canvas.right(500, y, f"{index}4.00", 10)
        canvas.text(260, y + 12, "to the harbour and back", 10)
    [grid] = tables(tmp_path, canvas)
    assert len(grid) >= 7
    assert [row[3] for row in grid if row[0]] == ["04.00", "14.00", "24.00", "34.00"]


def test_three_columns_of_prose_under_a_page_number_are_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    canvas.text(60, 60, "47704", 10)
    canvas.text(150, 60, "Register of Proposed Rules, Thursday, August 6", 10)
    for index in range(4):
        for column in range(3):
            text = "the lines of one of three columns"[: 33 - 6 * ((index + column) % 3 != 0)]
            canvas.text(60 + 170 * column, 80 + 13 * index, text, 10)
    assert tables(tmp_path, canvas) == []


def test_code_with_numbered_lines_is_no_table(tmp_path: Path):
    canvas = Canvas(STYLE)
    code = ["for each", "if it   is", "take   it", "else   keep", "end", "print   all"]
    for index, line in enumerate(code):
        canvas.text(60, 100 + 13 * index, f"{index + 1}", 10)
        for part, text in enumerate(line.split("   ")):
            canvas.text(90 + 10 * (index % 3) + 70 * part, 100 + 13 * index, text, 10)
    assert tables(tmp_path, canvas) == []


@pytest.mark.parametrize("kind", ["turns", "columns", "form"])
def test_columns_are_read_one_after_the_other_and_forms_line_by_line(kind: str, tmp_path: Path):
    counts = Counter[str]()
    made = [page for page in map(column_pages.make, range(40)) if page.kind == kind]
    for page in made:
        path = put(tmp_path, f"{page.number}.pdf", page.content)
        [(text, blocks, _, _)] = reading_score.read(path)
        reading_score.add_neighbours(counts, page.paragraphs, text, blocks)
    assert counts["true"] > 60
    assert reading_score.share(counts) >= 0.97


def test_a_table_between_columns_that_are_read_stays_in_its_place(tmp_path: Path):
    canvas = Canvas(STYLE)
    for index in range(24):
        side = "first" if index < 12 else "second"
        for x in (60, 320):
            canvas.text(x, 100 + 13 * index, f"the {side} lines of a column at {x}", 10)
    for row in range(3):
        for column, x in enumerate((60, 180, 300)):
            canvas.text(x, 430 + 14 * row, f"{row}{column}1.5" if column else "Sales", 10)
    canvas.text(60, 490, "a line of text below the table, over both columns of the page", 10)
    text, blocks = one(tmp_path, canvas)
    read = [text.of(block.runs) for block in blocks]
    kinds = [block.kind for block in blocks]
    at = kinds.index(BlockKind.TABLE)
    whole = " ".join(read)
    assert whole.rindex("at 60") < whole.index("at 320")
    assert "at 320" in read[at - 1]
    assert "below the table" in read[at + 1]
