"""The blocks of HTML and Markdown, of ordinary files and of hostile ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from quire.model.pages import Page
from quire.parse import markdown, markup
from tests.blocks import blocks_of, read, shown, spans
from tests.documents import put


def test_html_has_headings_lists_tables_code_and_captions(tmp_path: Path):
    content = b"""<title>Harbour</title><h1>Tides</h1><p>Spring<br>tides <b>rise</b></p>
      <ul><li>one<ul><li>deeper</li></ul></li><li><p>two</p></ul><h3>Trade</h3>
      <table><caption>Tonnes</caption><thead><tr><th rowspan=2>Port<th colspan="2">Goods</tr>
      <tr><th>wool<th>slate</tr></thead><tbody><tr><th>Hull<td>1<td>2</tr></table>
      <pre>a = 1
b</pre><figure><img><figcaption>A quay</figcaption></figure>"""
    [page] = read(put(tmp_path, "a.html", content), "text/html")
    grid = [["Port", "Goods", ""], ["", "wool", "slate"], ["Hull", "1", "2"]]
    assert shown(page) == [
        ("heading", 1, "Harbour"), ("heading", 1, "Tides"), ("paragraph", "Spring tides rise"),
        ("list_item", 1, "one"), ("list_item", 2, "deeper"), ("list_item", 1, "two"),
        ("heading", 3, "Trade"), ("table", 2, grid), ("code", "a = 1 b"), ("caption", "A quay"),
    ]  # fmt: skip
    assert spans(page) == [(0, 0, 2, 1), (0, 1, 1, 2)]


def test_navigation_banner_and_footer_are_apart_from_the_content():
    page = markup.html_page(
        "<header><h1>Port</h1>Open daily</header><nav><ul><li>Home<li>News</ul></nav>"
        "<div role='search'>Find</div><article><header>By Ida</header><p>" + "word " * 30 +
        "</p></article><footer>Imprint</footer>"
    )  # fmt: skip
    assert [each[0] for each in shown(page)] == [  # type: ignore[index]
        "heading", "header", "header", "header", "header", "paragraph", "paragraph", "footer"
    ]  # fmt: skip


def test_a_landmark_that_never_ends_does_not_hide_the_page():
    page = markup.html_page("<nav>Home<div>" + "<p>content here</p>" * 10)
    assert {each[0] for each in shown(page)} == {"paragraph"}  # type: ignore[index]


def test_a_table_for_layout_is_paragraphs_and_the_table_inside_it_a_table():
    inner = "<table><tr><td>Port<td>Tonnes<tr><td>Hull<td>7</table>"
    page = markup.html_page(f"<table><tr><td>Left<td>{inner}<tr><td>Below</table>")
    grid = [["Port", "Tonnes"], ["Hull", "7"]]
    assert shown(page) == [("paragraph", "Left"), ("table", 1, grid), ("paragraph", "Below")]


HOSTILE = {
    "tables in tables": "<table><tr><td>x",
    "endless rows": "<table>" + "<tr><td rowspan=999999999 colspan=999999999>x",
    "rows": "<tr><td rowspan=65534>x</td>",
    "cells": "<td>x",
    "lines in a cell": "x<br>",
    "lists": "<ul><li>x",
    "numbered lists": "<ol start=999999999><li>x",
    "landmarks": "<nav>x",
    "ends": "</ul></li></table></pre></nav></td>x ",
    "headings": "<h1>x",
    "captions": "<table><caption>x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_html_has_valid_blocks_of_all_words_in_linear_time(name: str):
    start = "<table><tr><td>x<td>" if name in ("rows", "cells", "lines in a cell") else ""

    def cost(count: int) -> float:
        spent = []
        for _ in range(2):
            began = time.process_time()
            page = markup.html_page(start + HOSTILE[name] * count)
            spent.append(time.process_time() - began)
        blocks = blocks_of(page)
        named = sum(stop - first for block in blocks for first, stop in block.runs)
        assert named == len(page.text.split())
        return min(spent) / count

    small = cost(3_000)
    assert cost(48_000) < max(4 * small, 2e-5)


def test_markdown_has_headings_lists_tables_and_code():
    page = markdown.page(
        "# Tides #\n\nSpring tides\nrise.\n\nNeap\n----\n- one\n  - deeper\n    goes on\n2. two\n\n"
        "|Port|Tonnes \\| t|\n|:--|--:|\n|Hull||\n| Ayr | 7 |\n\n```py\n# no heading\n```\n## C#\n"
    )
    grid = [["Port", "Tonnes \\| t"], ["Hull", ""], ["Ayr", "7"]]
    assert shown(page) == [
        ("heading", 1, "Tides"), ("paragraph", "Spring tides rise."), ("heading", 2, "Neap"),
        ("list_item", 1, "one"), ("list_item", 2, "deeper goes on"), ("list_item", 1, "2. two"),
        ("table", 1, grid), ("code", "# no heading"), ("heading", 2, "C#"),
    ]  # fmt: skip
    assert "| Port | Tonnes \\| t |\n|:--|--:|\n| Hull |  |" in page.text


@pytest.mark.parametrize(
    "line",
    [
        "|", "||||", "#", "# #", "```", "- ", "|-|\n|-|", "a|\n|-", "1. - #", ">", ">> a", "> >b",
        "---", "* * *", "- - -", "    x", "\ty\n\n", "---\na: b\n---",
    ],
)  # fmt: skip
def test_odd_markdown_loses_no_word(line: str):
    for text in (line, f"{line}\n{line}", f"a\n{line}\n\n{line}\nb", (line + "\n") * 5_000):
        page: Page = markdown.page(text)
        blocks_of(page)
        read = page.text.replace("|", "").replace(">", " ")
        assert read.split() == text.replace("|", " ").replace(">", " ").split()


def test_front_matter_rules_quotes_and_indented_code_of_markdown_are_no_headings_and_no_items():
    page = markdown.page(
        "---\ntitle: Tides\n---\nSome text\n* * *\n>said the\n> mate\n>\n> and left\n\n"
        "    x = 1\n\n        y = 2\n\n- one\n\n    goes on\n\nend\n"
    )
    assert shown(page) == [
        ("code", "title: Tides"), ("paragraph", "Some text"), ("paragraph", "said the mate"),
        ("paragraph", "and left"), ("code", "x = 1 y = 2"), ("list_item", 1, "one"),
        ("paragraph", "goes on"), ("paragraph", "end"),
    ]  # fmt: skip


def test_program_text_of_html_keeps_its_lines_and_indents():
    page = markup.html_page("<p>a   b</p><pre>\ndef f():\n\tif x:\n        return\n</pre>")
    assert page.text == "a b\n\ndef f():\n    if x:\n        return"
    assert shown(page)[1] == ("code", "def f(): if x: return")


def test_items_of_numbered_html_lists_have_their_numbers():
    page = markup.html_page(
        "<ol start=3><li>three<ul><li>bullet</ul><li><p>four</p><li></li></ol><p>after</p>"
        "<ol><li>one</ol><li>stray"
    )
    assert page.text.splitlines() == [
        "3. three", "", "bullet", "", "4. four", "", "after", "", "1. one", "", "stray"
    ]  # fmt: skip
    assert [each[-1] for each in shown(page)] == [  # type: ignore[index]
        "3. three", "bullet", "4. four", "after", "1. one", "stray",
    ]  # fmt: skip
