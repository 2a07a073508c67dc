"""Pictures of text are read, however they were put on the scanner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pypdfium2
import pytest

from benchmarks.ingest import reading_score, reports
from benchmarks.ingest.reports import TruePage
from quire.demo import samples
from quire.model.blocks import BlockKind, BlockSource, PageText, unpack
from quire.model.pages import Page, Word
from quire.parse import file_type, formats, ocr, word_boxes
from quire.parse.parser import ReadOptions
from quire.parse.pdf import text
from tests import documents
from tests.documents import put

pytest.importorskip("rapidocr")


def only(path: Path, media_type: str, **more: object) -> Page:
    [found] = formats.read(path, media_type, ReadOptions(), 1, 1, **more)  # type: ignore[arg-type]
    assert isinstance(found, Page)
    return found


def test_loading_the_engine_writes_nothing_into_the_home_and_reports_to_nobody(tmp_path: Path):
    code = "from quire.parse import ocr; ocr.rapidocr()"
    given = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    given.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", code], env=given, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_scanned_page_is_read_however_it_lies(turned: int, tmp_path: Path):
    path = put(tmp_path, "a.pdf", documents.pdf(samples.scanned_page(documents.TEXT, turned)))
    found = only(path, file_type.PDF)
    assert found.via == "ocr"
    assert found.text == "\n".join(documents.TEXT)
    boxes = word_boxes.unpack(found.words, found.text)
    assert [box.text for box in boxes] == found.text.split()
    # In the picture the first word is 110, 120 pixels from the upper left, at 150 dots an inch.
    near, far_x, far_y = 75, found.width - 75, found.height - 75
    x, y = boxes[0].x + boxes[0].width / 2, boxes[0].y + boxes[0].height / 2
    assert {
        0: x < 2 * near and y < near,
        90: x < near and y > far_y - near,
        180: x > far_x - near and y > far_y,
        270: x > far_x and y < 2 * near,
    }[turned]


def test_a_picture_that_is_known_is_not_read_again(tmp_path: Path):
    path = put(tmp_path, "a.pdf", documents.pdf(samples.scanned_page(documents.TEXT)))
    asked: list[str] = []

    def known(key: str) -> bool:
        asked.append(key)
        return True

    found = only(path, file_type.PDF, known_image=known)
    assert (found.via, found.text, found.image_key) == ("ocr", "", asked[0])


def test_a_stamp_on_a_scan_does_not_hide_the_scan(tmp_path: Path):
    scan = samples.scanned_page(documents.TEXT)
    stamped = scan._replace(commands=scan.commands + b" BT /F1 9 Tf 60 20 Td (Scanned 17) Tj ET")
    found = only(put(tmp_path, "a.pdf", documents.pdf(stamped)), file_type.PDF)
    assert found.via == "ocr"
    assert documents.TEXT[0] in found.text


def test_text_is_recognised_where_it_must_always_be(tmp_path: Path):
    path = put(tmp_path, "a.pdf", documents.pdf("Written as text in the file."))
    [found] = formats.read(path, file_type.PDF, ReadOptions(ocr="always"), 1, 1)
    assert isinstance(found, Page)
    assert (found.via, found.text) == ("ocr", "Written as text in the file.")


def test_a_picture_file_is_read(tmp_path: Path):
    path = put(tmp_path, "a.png", samples.text_image(documents.TEXT, kind="PNG"))
    found = only(path, "image/png")
    assert found.text == "\n".join(documents.TEXT)
    assert (found.width, found.height) == pytest.approx((595.2, 842), abs=0.3)
    assert found.image_key == only(path, "image/png", known_image=lambda key: True).image_key


def test_a_picture_without_text_has_none(tmp_path: Path):
    path = put(tmp_path, "a.png", samples.text_image([], kind="PNG"))
    assert (only(path, "image/png").text, only(path, "image/png").words) == ("", b"")


def test_the_engine_is_part_of_the_recipe():
    assert "rapidocr" in formats.recipe("image/png", ReadOptions())["engine"]
    assert formats.recipe("image/png", ReadOptions(ocr="never"))["engine"] is None
    assert ocr.engine() is not None


def test_columns_of_prose_are_read_one_after_the_other():
    title = [(100.0, 10.0, 900.0, 30.0)]
    left = [(50.0, 50.0 + 20 * i, 480.0, 65.0 + 20 * i) for i in range(6)]
    right = [(520.0, 51.0 + 20 * i, 950.0, 66.0 + 20 * i) for i in range(6)]
    boxes = [box for pair in zip(left, right, strict=True) for box in pair] + title
    read = [boxes[index] for index in ocr.reading_order(boxes, 1000)]
    assert read == [*title, *left, *right]


def test_cells_of_a_table_are_read_row_by_row():
    rows = [[(x, 50.0 + 20 * i, x + 60, 65.0 + 20 * i) for x in (50.0, 600.0)] for i in range(6)]
    boxes = [cell for row in rows for cell in reversed(row)]
    read = [boxes[index] for index in ocr.reading_order(boxes, 1000)]
    assert read == [cell for row in rows for cell in row]


@pytest.fixture(scope="module")
def scan() -> tuple[TruePage, Page, list[Word]]:
    """A page of a generated report with a table, as a scan; and the words of the report itself."""
    report = reports.make(2)
    with pypdfium2.PdfDocument(report.content) as document:
        page = document[3]
        pixels = np.ascontiguousarray(page.render(scale=150 / 72).to_numpy()[:, :, :3])
        found = text.extract(page)
        boxes = word_boxes.unpack(word_boxes.pack(found.boxes, found.breaks), found.text)
        return report.pages[3], ocr.read_page(4, pixels, *page.get_size()), boxes


def test_the_table_of_a_scan_is_found_with_its_numbers_below_their_headers(
    scan: tuple[TruePage, Page, list[Word]],
):
    truth, page, _ = scan
    spans = word_boxes.word_spans(page)
    found = unpack(page.blocks, len(spans))
    assert {block.source for block in found} == {BlockSource.OCR}
    score = reading_score.Score()
    tables = [block.table for block in found if block.table]
    reading_score._add_tables(score, truth, PageText(page.text, spans), tables)
    assert reading_score.f1(score.cells) > 0.9
    assert reading_score.share(score.lookups) > 0.9
    headings = [
        PageText(page.text, spans).of(block.runs)
        for block in found
        if block.kind == BlockKind.HEADING
    ]
    assert headings == truth.headings


def test_words_of_a_scan_are_where_the_recogniser_saw_them(
    scan: tuple[TruePage, Page, list[Word]],
):
    _, page, truth = scan
    errors = [
        min(abs(word.x - true.x) + abs(word.x + word.width - true.x - true.width) for true in near)
        for word in word_boxes.unpack(page.words, page.text)
        if (near := [each for each in truth if each.text == word.text and abs(each.y - word.y) < 6])
    ]
    assert len(errors) > 100
    assert np.median(errors) < 3 and np.percentile(errors, 95) < 6  # points, of both sides


def test_blocks_of_a_recognised_page_follow_from_its_text_and_its_words(
    scan: tuple[TruePage, Page, list[Word]],
):
    _, page, _ = scan
    spans = word_boxes.word_spans(page)
    again = unpack(ocr.blocks_of(page.text, page.words, page.height), len(spans))
    first = unpack(page.blocks, len(spans))
    assert [(each.kind, each.runs) for each in again] == [(each.kind, each.runs) for each in first]
    assert ocr.blocks_of("", b"", 842) == b""
    assert ocr.blocks_of("one two", b"damaged", 842) == b""


@pytest.mark.parametrize(
    "signs",
    [
        (),
        [("x", 1.0, [[0, 0], [9, 0], [9, 9], [0, 9]])],
        [(sign, 1.0, [[5, 0], [5, 0], [5, 9], [5, 9]]) for sign in "onetwo"],
    ],
)
def test_a_line_whose_characters_have_no_place_is_divided_evenly(signs: Any):
    line = ocr._line(" one \0two", (10.0, 0.0, 80.0, 9.0), signs)
    assert line.text == "one two"
    assert all(left < right for left, right in line.words)
    if len(signs) < 6:
        assert line.words == ((10.0, 40.0), (50.0, 80.0))


def test_a_line_of_blanks_does_not_fail_its_page(monkeypatch: pytest.MonkeyPatch):
    class Engine:
        """As RapidOCR 3.10 is on a line of blanks."""

        def __call__(self, pixels: object, **how: object) -> Any:
            if how["return_word_box"]:
                raise IndexError("tuple index out of range")
            return SimpleNamespace(txts=("a b",), boxes=[[[0, 0], [9, 0], [9, 9], [0, 9]]],
                                   word_results=None)  # fmt: skip

    monkeypatch.setattr(ocr, "rapidocr", Engine)
    [line] = ocr._read_lines(np.zeros((9, 9, 3), np.uint8))
    assert line.text == "a b" and len(line.words) == 2
