"""Blocks as Markdown, HTML and CSV: right where they are pasted, and safe there."""

from __future__ import annotations

import csv
import io
import tracemalloc

import pytest

from quire.model.blocks import Block, BlockKind, Cell, PageText, Table
from quire.text import markdown


def page(*cells: str) -> PageText:
    """A text in which each cell is one word of `runs`."""
    text, spans = "", []
    for each in cells:
        spans.append((len(text), len(text) + len(each)))
        text += each + "\n"
    return PageText(text, spans)


def grid(rows: list[list[str]], header_rows: int = 1) -> tuple[Table, PageText]:
    words = [each for row in rows for each in row]
    cells = tuple(
        Cell(at // len(rows[0]), at % len(rows[0]), 1, 1, ((at, at + 1),))
        for at, word in enumerate(words)
        if word
    )
    return Table(len(rows), len(rows[0]), header_rows, cells), page(*words)


def test_a_table_is_a_row_of_headers_and_rows_below_it():
    table, text = grid([["", "2021"], ["Net | gross", "(97)"]])
    assert markdown.of_table(table, text).splitlines() == [
        "|  | 2021 |", "| --- | --- |", r"| Net \| gross | (97) |",
    ]  # fmt: skip


def test_header_lines_are_joined_down_each_column():
    text = page("Six months", "2022", "2021", "Sales", "1", "2")
    cells = (
        Cell(0, 1, 1, 2, ((0, 1),)), Cell(1, 1, 1, 1, ((1, 2),)), Cell(1, 2, 1, 1, ((2, 3),)),
        Cell(2, 0, 1, 1, ((3, 4),)), Cell(2, 1, 1, 1, ((4, 5),)), Cell(2, 2, 1, 1, ((5, 6),)),
    )  # fmt: skip
    table = Table(3, 3, 2, cells)
    assert markdown.rows(table, text)[0] == ["", "Six months 2022", "Six months 2021"]
    assert '<th colspan="2">Six months</th>' in markdown.table_html(table, text)


def test_a_table_whose_rows_span_is_html():
    table = Table(2, 2, 0, (Cell(0, 0, 2, 1, ((0, 1),)), Cell(0, 1, 1, 1, ((1, 2),))))
    written = markdown.of_table(table, page("<b>", "x"))
    assert '<td rowspan="2">&lt;b&gt;</td><td>x</td>' in written
    assert written.count("<td") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# no heading", r"\# no heading"),
        ("1. no item", r"1\. no item"),
        ("<script>", r"\<script>"),
        ("[a](javascript:b) *c*", r"\[a\](javascript:b) \*c\*"),
        ("AT&T", "AT&T"),
        ("&lt;b>", "&amp;lt;b>"),
    ],
)
def test_the_words_of_a_paragraph_mean_nothing_in_markdown(text: str, expected: str):
    block = Block(BlockKind.PARAGRAPH, ((0, 1),))
    assert markdown.of_block(block, page(text)) == expected


def test_code_keeps_its_lines_and_their_indents():
    text = PageText("before\n  def f():\n      return", [(0, 6), (9, 12), (13, 17), (24, 30)])
    block = Block(BlockKind.CODE, ((1, 4),))
    assert markdown.of_block(block, text) == "    def f():\n        return"


def test_headings_and_items_have_their_marks_and_running_lines_are_left_out():
    text = page("Fees", "• rope", "(a) wool", "7")
    written = [
        markdown.of_block(Block(kind, ((at, at + 1),), level=level), text)
        for at, (kind, level) in enumerate(
            [(BlockKind.HEADING, 2), (BlockKind.LIST_ITEM, 1), (BlockKind.LIST_ITEM, 1),
             (BlockKind.FOOTER, 0)]
        )
    ]  # fmt: skip
    assert written == ["## Fees", "- rope", "- (a) wool", ""]


def test_csv_keeps_numbers_and_disarms_formulas():
    rows = [["=1+1", "-97", "+3.5", "@x", '-1"a', "(97)", "-cmd"]]
    [found] = csv.reader(io.StringIO(markdown.table_csv(rows)))
    assert found == ["'=1+1", "-97", "+3.5", "'@x", '-1"a', "(97)", "'-cmd"]


def test_a_cell_that_spans_millions_of_places_takes_little_memory():
    size = 1990
    cells = (Cell(0, 0, 1, 1, ((0, 1),)), Cell(1, 1, size, size, ((1, 2),)))
    table, text = Table(size + 1, size + 1, 1, cells), page("a", "b")
    tracemalloc.start()
    try:
        written = markdown.table_html(table, text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.count("<td") == size + 1
    assert peak < 32 << 20
