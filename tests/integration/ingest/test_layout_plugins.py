"""A plugin for layout gets the picture and the words of pages, and its blocks are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.ingest import reports
from benchmarks.ingest.reports import Canvas, Style
from quire import layout
from quire.control import document_structure as structure
from quire.errors import BadInput
from quire.model.blocks import Block, BlockKind, Cell, Table
from quire.model.contracts import MARK
from quire.model.pages import PagePicture
from quire.parse import formats, plugin_layout
from quire.parse.parser import ReadOptions
from tests.shelf import PLAIN, Shelf, open_shelf

STYLE = Style("Helvetica", 10, 1.3, "bold", "none", False, 14.0, 1)
SEEN: list[PagePicture] = []


@layout("ink", version=3)
def by_ink(page: PagePicture) -> list[Block]:
    """Find one table: words in rows by height, and in columns where no row has ink."""
    SEEN.append(page)
    scale = page.pixels.shape[1] / page.width
    dark = (page.pixels.min(axis=2) < 128).any(axis=0)  # columns of pixels
    edges = [0.0]
    blank = 0
    for x, is_dark in enumerate(dark.tolist()):
        blank = 0 if is_dark else blank + 1
        if blank == int(12 * scale):
            edges.append(x / scale)
    rows = sorted({round(word.y / 4) for word in page.words})
    cells: dict[tuple[int, int], list[int]] = {}
    for number, word in enumerate(page.words):
        column = sum(word.x > edge for edge in edges) - 1
        cells.setdefault((rows.index(round(word.y / 4)), column), []).append(number)
    found = tuple(
        Cell(row, column, 1, 1, tuple((n, n + 1) for n in numbers))
        for (row, column), numbers in sorted(cells.items())
    )
    table = Table(len(rows), len(edges), 0, found)
    runs = tuple(run for cell in found for run in cell.runs)
    return [Block(BlockKind.TABLE, runs, confidence=50, table=table)]


@layout("liar")
def liar(page: PagePicture) -> Sequence[Block]:
    return [Block(BlockKind.PARAGRAPH, ((0, 10_000),))]


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    SEEN.clear()
    for opened in open_shelf(request, tmp_path):
        for each in (by_ink, liar):
            opened.app.registry.put(getattr(each, MARK))
        yield opened


def prose() -> Canvas:
    canvas = Canvas(STYLE)
    for line in range(5):
        canvas.text(60, 100 + 14 * line, "Ships and tides are in the harbour today.", 10)
    return canvas


def scattered() -> Canvas:
    """Numbers in two columns, too far apart in height to be taken for a table."""
    canvas = Canvas(STYLE)
    for row in range(3):
        canvas.right(250, 150 + 200 * row, f"{row + 1},100", 10)
        canvas.right(450, 250 + 200 * row, f"{row + 1},200", 10)
    return canvas


def table() -> Canvas:
    canvas = Canvas(STYLE)
    for row in range(5):
        canvas.text(60, 100 + 14 * row, f"Port {row}", 10)
        canvas.right(300, 100 + 14 * row, f"{row},100", 10)
        canvas.right(400, 100 + 14 * row, f"{row},200", 10)
    return canvas


def kinds(shelf: Shelf, page: int) -> list[tuple[str, int]]:
    found = structure.of_page(shelf.app.caller, shelf.document("a.pdf").id, page)
    return [(each["kind"], each["confidence"]) for each in found["blocks"]]


def test_a_plugin_looks_at_pages_on_which_a_table_may_have_been_missed(shelf: Shelf):
    shelf.put("a.pdf", reports.file_of(STYLE, [prose(), scattered(), table()]))
    shelf.ingest(settings={**PLAIN, "layout": "ink"})
    [seen] = SEEN
    assert [word.text for word in seen.words][:2] == ["1,100", "1,200"]
    assert seen.pixels.shape == (1755, 1240, 3)
    assert kinds(shelf, 2) == [("table", 50)]
    first, second = structure.tables(shelf.app.caller, shelf.document("a.pdf").id)["items"]
    assert (second["page"], second["columns"]) == (3, 3)
    columns = {each["text"]: each["column"] for each in first["cells"]}
    assert len({columns[f"{n},100"] for n in (1, 2, 3)}) == 1
    assert {columns[f"{n},200"] for n in (1, 2, 3)} == {columns["1,100"] + 1}


def test_a_plugin_looks_at_all_pages_if_the_corpus_says_so(shelf: Shelf):
    shelf.put("a.pdf", reports.file_of(STYLE, [prose(), table()]))
    shelf.ingest(settings={**PLAIN, "layout": "ink:all"})
    assert len(SEEN) == 2
    assert kinds(shelf, 1) == kinds(shelf, 2) == [("table", 50)]
    shelf.ingest(settings={**PLAIN, "layout": "ink:all"})
    assert len(SEEN) == 2  # the same pages, read in the same way


def test_without_the_setting_or_the_plugin_nothing_is_drawn(shelf: Shelf):
    shelf.put("a.pdf", reports.file_of(STYLE, [scattered()]))
    shelf.ingest(settings=PLAIN)
    assert SEEN == []
    shelf.ingest(settings={**PLAIN, "layout": "unknown"})
    assert "layout: 'unknown' is not known here. Known: ink, liar." in str(
        shelf.document("a.pdf").error
    )


def test_blocks_that_are_not_of_the_page_fail_the_document(shelf: Shelf):
    shelf.put("a.pdf", reports.file_of(STYLE, [scattered()]))
    shelf.ingest(settings={**PLAIN, "layout": "liar"})
    assert "layout liar gave page 1 blocks that are not of its words" in str(
        shelf.document("a.pdf").error
    )


def test_name_and_version_of_the_plugin_are_in_the_recipe_of_what_can_be_drawn():
    plugin_layout.install({"ink": getattr(by_ink, MARK)})
    try:
        options = ReadOptions(layout="ink")
        assert formats.recipe("application/pdf", options)["layout_version"] == 3
        assert "layout" not in formats.recipe("application/pdf", ReadOptions())
        assert "layout" not in formats.recipe("text/plain", options)
        with pytest.raises(BadInput, match="not known here"):
            formats.recipe("image/png", ReadOptions(layout="other"))
    finally:
        plugin_layout.install({})


@pytest.mark.parametrize("name", ["", "two words", "a:b"])
def test_a_layout_has_a_name_that_a_setting_can_hold(name: str):
    def function(page: PagePicture) -> list[Block]:
        return []

    function.__name__ = name or "<lambda>"
    with pytest.raises(ValueError, match="a name consists of"):
        layout(name)(function)
