"""PDF pages: text, boxes as a reader sees them, and failures that stay with their page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quire.demo import samples
from quire.demo.samples import PdfPage
from quire.errors import Permanent, Unreadable
from quire.model.pages import Page, PageFailure
from quire.parse import file_type, formats, render, word_boxes
from quire.parse.parser import ReadOptions
from quire.parse.pdf import reader as pdf
from tests import documents
from tests.documents import put

NO_OCR = ReadOptions(ocr="never")


def pages(path: Path, options: ReadOptions = NO_OCR) -> list[Page | PageFailure]:
    count = formats.inspect(path, file_type.PDF).length
    return list(formats.read(path, file_type.PDF, options, 1, count))


def page(path: Path, options: ReadOptions = NO_OCR) -> Page:
    [found] = pages(path, options)
    assert isinstance(found, Page)
    return found


def test_every_page_is_read_in_order(tmp_path: Path):
    path = put(tmp_path, "a.pdf", documents.pdf("The first page.", "The second page."))
    assert [p.text for p in pages(path) if isinstance(p, Page)] == [
        "The first page.",
        "The second page.",
    ]
    [second] = formats.read(path, file_type.PDF, NO_OCR, 2, 2)
    assert isinstance(second, Page)
    assert (second.number, second.width, second.height, second.via) == (2, 595, 842, "text")


def test_every_word_is_found_in_the_text_by_walking(tmp_path: Path):
    [handbook, *_] = samples.make(tmp_path)
    for found in pages(handbook):
        assert isinstance(found, Page)
        at = 0
        for word in word_boxes.unpack(found.words, found.text):
            place = found.text.index(word.text, at)
            assert found.text[at:place].strip() == ""
            at = place + len(word.text)
        assert found.text[at:].strip() == ""
        assert found.text.split()


def ink(path: Path) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of what is drawn on the first page, in points."""
    drawn = pdf.render(pdf.open_document(path)[0], 2.0, 10**8).min(axis=2) < 128
    rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
    return columns[0] / 2, rows[0] / 2, columns[-1] / 2, rows[-1] / 2


@pytest.mark.parametrize("turned", [0, 90, 180, 270, 450, -90])
@pytest.mark.parametrize("crop", [b"", b"/CropBox [40 50 500 700]"])
def test_a_box_is_where_the_ink_is(turned: int, crop: bytes, tmp_path: Path):
    more = b"/Rotate %d %b" % (turned, crop)
    path = put(tmp_path, "a.pdf", documents.pdf(documents.drawn(("HHHH", 100, 600), more=more)))
    found = page(path)
    [word] = word_boxes.unpack(found.words, found.text)
    left, top, right, bottom = ink(path)
    assert word.x - 1 <= left < right <= word.x + word.width + 1
    assert word.y - 1 <= top < bottom <= word.y + word.height + 1
    assert word.width * word.height < 3 * (right - left) * (bottom - top)
    sides = (460, 650) if crop else (595, 842)
    assert (found.width, found.height) == (sides[::-1] if turned % 180 else sides)


def test_a_word_that_a_hyphen_split_is_one_word_with_two_boxes(tmp_path: Path):
    text = documents.drawn(
        ("the same exam-", 50, 700), ("ple of Jean-", 50, 686), ("Paul", 50, 672)
    )
    found = page(put(tmp_path, "a.pdf", documents.pdf(text)))
    assert found.text == "the same example of Jean-Paul"
    boxes = word_boxes.unpack(found.words, found.text)
    assert [word.text for word in boxes[2:4]] == ["exam", "ple"]
    assert boxes[3].y > boxes[2].y


def test_text_has_no_characters_that_a_database_refuses(tmp_path: Path):
    text = PdfPage(rb"BT /F1 12 Tf 50 700 Td (a\000b\001c\240d\177e) Tj ET")
    found = page(put(tmp_path, "a.pdf", documents.pdf(text)))
    assert found.text.isprintable() or set(found.text) <= set("abcde \n•\ufffd")
    assert "\0" not in found.text
    assert len(word_boxes.unpack(found.words, found.text)) == len(found.text.split())


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path):
    path = put(tmp_path, "a.pdf", documents.pdf("before"))
    assert page(path).text == "before"
    put(tmp_path, "a.pdf", documents.pdf("afterwards"))
    assert page(path).text == "afterwards"


def test_a_page_that_cannot_be_loaded_fails_alone(tmp_path: Path):
    content = documents.pdf("first", "second", "third").replace(
        b"/Kids [4 0 R 7 0 R", b"/Kids [4 0 R 3 0 R"
    )
    found = pages(put(tmp_path, "a.pdf", content))
    assert [type(each) for each in found] == [Page, PageFailure, Page]
    assert isinstance(found[1], PageFailure)
    assert found[1].number == 2
    assert found[1].error.startswith("page 2: ")


def test_a_page_with_too_many_words_fails(tmp_path: Path):
    line = b"(" + b"a " * 2000 + b") Tj T*\n"
    page_of_many = PdfPage(b"BT /F1 1 Tf 1 TL 0 800 Td\n" + line * 51 + b"ET")
    [found] = pages(put(tmp_path, "a.pdf", documents.pdf(page_of_many)))
    assert isinstance(found, PageFailure)
    assert "words on one page (at most 100,000)" in found.error


def test_a_page_with_more_text_than_most_leaves_nothing_to_the_next(tmp_path: Path):
    long = " ".join(f"word{n}" for n in range(5_000))
    path = put(tmp_path, "long.pdf", documents.pdf("The first page.", long, "The last."))
    first, middle, last = (p.text.split() for p in pages(path) if isinstance(p, Page))
    assert (" ".join(first), " ".join(last)) == ("The first page.", "The last.")
    assert middle == long.split()


def test_a_page_of_a_kilometre_is_drawn_small(tmp_path: Path):
    huge = PdfPage(b"0 0 50000 50000 re f", size=(100_000, 100_000))
    path = put(tmp_path, "a.pdf", documents.pdf(huge))
    picture = pdf.render(pdf.open_document(path)[0], 150 / 72, 25_000_000)
    assert 20_000_000 < picture.shape[0] * picture.shape[1] <= 25_100_000
    assert len(render.thumbnail(path, file_type.PDF) or b"") > 100
    strip = PdfPage(b"", size=(14_000_000, 1))
    picture = pdf.render(
        pdf.open_document(put(tmp_path, "b.pdf", documents.pdf(strip)))[0], 2, 25_000_000
    )
    assert picture.shape[1] <= 30_000


def test_a_page_that_was_drawn_is_not_parsed_again_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import pypdfium2

    parsed: list[int] = []
    get_page = pypdfium2.PdfDocument.get_page

    def counted(document: Any, index: int) -> Any:
        parsed.append(index)
        return get_page(document, index)

    monkeypatch.setattr(pypdfium2.PdfDocument, "get_page", counted)
    path = put(tmp_path, "a.pdf", documents.pdf("The first page.", "The second page."))
    assert render.thumbnail(path, file_type.PDF)
    assert [p.text for p in pages(path) if isinstance(p, Page)] == [
        "The first page.",
        "The second page.",
    ]
    assert parsed == [0, 1]
    assert render.thumbnail(path, file_type.PDF)
    assert page(put(tmp_path, "b.pdf", documents.pdf("Another file."))).text == "Another file."


REASONS = {
    "empty.pdf": (b"", "is empty"),
    "cut.pdf": (documents.pdf("text")[:200], "damaged or cut off"),
    "noise.pdf": (b"%PDF-1.4\n" + os.urandom(3000), "damaged or cut off"),
    "secret.pdf": (samples.protected(documents.pdf("text"), "x"), "is protected by a password"),
    "none.pdf": (samples.pdf([]), "no pages|damaged"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_file_that_cannot_be_read_says_why(name: str, tmp_path: Path):
    content, reason = REASONS[name]
    with pytest.raises(Unreadable, match=f"{name}: .*({reason})"):
        formats.inspect(put(tmp_path, name, content), file_type.PDF)


def test_a_damaged_file_after_a_protected_one_is_not_called_protected(tmp_path: Path):
    for name in ("secret.pdf", "none.pdf"):
        content, reason = REASONS[name]
        with pytest.raises(Unreadable, match=reason):
            formats.inspect(put(tmp_path, name, content), file_type.PDF)


def test_a_password_that_only_restricts_the_owner_does_no_harm(tmp_path: Path):
    content = samples.protected(documents.pdf("readable"), "x", owner_only=True)
    path = put(tmp_path, "a.pdf", content)
    assert page(path).text == "readable"
    assert len(formats.inspect(path, file_type.PDF).keys or ()) == 1


def test_junk_before_the_file_does_no_harm(tmp_path: Path):
    path = put(tmp_path, "a.pdf", b"HTTP/1.1 200 OK\r\n\r\n" + documents.pdf("readable"))
    assert page(path).text == "readable"


def test_a_scanned_page_is_named_as_such_where_it_is_not_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scan = samples.scanned_page(documents.TEXT)
    path = put(tmp_path, "a.pdf", documents.pdf(scan))
    assert page(path)._replace(words=b"") == Page(1, "", b"", 595, 842, "none")
    monkeypatch.setitem(__import__("sys").modules, "rapidocr", None)
    assert page(path, ReadOptions()).via == "none"
    assert formats.recipe(file_type.PDF, ReadOptions())["engine"] is None
    with pytest.raises(Permanent, match=r"RapidOCR is not installed. Run: .*\[ocr\]"):
        page(path, ReadOptions(ocr="always"))


def test_a_blank_page_has_no_text_and_needs_no_recognition(tmp_path: Path):
    path = put(
        tmp_path, "a.pdf", documents.pdf(PdfPage(b""), PdfPage(b"1 1 1 rg 0 0 595 842 re f"))
    )
    assert [p.via for p in pages(path, ReadOptions()) if isinstance(p, Page)] == ["text", "text"]
