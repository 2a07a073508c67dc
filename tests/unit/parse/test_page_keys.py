"""The key of a PDF page changes when the page does, and only then."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pikepdf
import pytest
from PIL import Image

from quire.demo import samples
from quire.demo.samples import PdfPage
from quire.parse.pdf.page_keys import compute
from tests import documents
from tests.documents import put

SCAN = samples.scanned_page(documents.TEXT)


def keys(folder: Path, content: bytes) -> tuple[str, ...]:
    with pikepdf.open(io.BytesIO(content)) as opened:
        count = len(opened.pages)
    found = compute(put(folder, "a.pdf", content), count)
    assert found is not None
    return found.keys


def changed(content: bytes, change: Callable[[pikepdf.Pdf], None]) -> bytes:
    written = io.BytesIO()
    with pikepdf.open(io.BytesIO(content)) as opened:
        change(opened)
        opened.save(written, compress_streams=False)
    return written.getvalue()


def test_pages_keep_their_keys_where_others_come_and_go(tmp_path: Path):
    before = keys(tmp_path, documents.pdf("one", "two", "three"))
    after = keys(tmp_path, documents.pdf("zero", "one", "three", SCAN))
    assert len(set(before)) == 3
    assert (after[1], after[2]) == (before[0], before[2])


def test_a_page_has_the_same_key_in_a_file_that_is_too_large_to_be_mapped(tmp_path: Path):
    small = documents.pdf("one", "two", SCAN)
    padding = b"\n" + (b"% " + b"-" * 997 + b"\n") * 9_000
    assert keys(tmp_path, small.replace(b"\n", padding, 1)) == keys(tmp_path, small)


def test_a_file_saved_anew_keeps_its_keys(tmp_path: Path):
    content = documents.pdf("one", "two", SCAN)
    assert keys(tmp_path, changed(content, lambda opened: None)) == keys(tmp_path, content)


def turn(opened: pikepdf.Pdf) -> None:
    opened.pages[0].Rotate = 90


def turn_all(opened: pikepdf.Pdf) -> None:
    opened.Root.Pages.Rotate = 90


def crop(opened: pikepdf.Pdf) -> None:
    opened.pages[0].CropBox = pikepdf.Array([0, 0, 100, 100])


def scale(opened: pikepdf.Pdf) -> None:
    opened.pages[0].UserUnit = 2


def another_font(opened: pikepdf.Pdf) -> None:
    opened.pages[0].Resources.Font.F1.BaseFont = pikepdf.Name.Courier


def another_picture(opened: pikepdf.Pdf) -> None:
    image = opened.pages[0].Resources.XObject.Im
    image.write(image.read_raw_bytes()[:-2] + b"\0\0", filter=pikepdf.Name.DCTDecode)


def another_encoding(opened: pikepdf.Pdf) -> None:
    font = opened.pages[0].Resources.Font.F1
    font.Encoding = opened.make_indirect(pikepdf.Dictionary(Differences=[65, pikepdf.Name.B]))


def more_commands(opened: pikepdf.Pdf) -> None:
    opened.pages[0].contents_add(b"0 0 5 5 re f")


CHANGES = [turn, turn_all, crop, scale, another_font, another_picture, another_encoding]


@pytest.mark.parametrize("change", [*CHANGES, more_commands], ids=lambda c: c.__name__)
def test_what_a_page_shows_is_in_its_key(change: Callable[[pikepdf.Pdf], None], tmp_path: Path):
    content = documents.pdf(SCAN)
    assert keys(tmp_path, changed(content, change)) != keys(tmp_path, content)


def link(opened: pikepdf.Pdf) -> None:
    note = pikepdf.Dictionary(
        Type=pikepdf.Name.Annot, Subtype=pikepdf.Name.Link, P=opened.pages[1].obj
    )
    opened.pages[0].Annots = opened.make_indirect(pikepdf.Array([note]))


def test_a_link_to_another_page_is_not(tmp_path: Path):
    content = documents.pdf("one", "two")
    assert keys(tmp_path, changed(content, link)) == keys(tmp_path, content)


def form(opened: pikepdf.Pdf, commands: bytes) -> pikepdf.Stream:
    found = pikepdf.Stream(opened, commands)
    found.Type, found.Subtype = pikepdf.Name.XObject, pikepdf.Name.Form
    found.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary())
    return opened.make_indirect(found)


def circle(commands: bytes) -> Callable[[pikepdf.Pdf], None]:
    """Two forms that draw each other; page 1 enters the circle at one, page 2 at the other."""

    def change(opened: pikepdf.Pdf) -> None:
        first, second = form(opened, b"/B Do"), form(opened, commands)
        first.Resources.XObject.B, second.Resources.XObject.A = second, first
        opened.pages[0].Resources.XObject = pikepdf.Dictionary(A=first)
        opened.pages[1].Resources.XObject = pikepdf.Dictionary(B=second)

    return change


def test_a_circle_of_forms_is_covered_from_both_sides(tmp_path: Path):
    content = documents.pdf("one", "two")
    before = keys(tmp_path, changed(content, circle(b"/A Do")))
    after = keys(tmp_path, changed(content, circle(b"/A Do /A Do")))
    assert before == keys(tmp_path, changed(content, circle(b"/A Do")))
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_file_that_gives_no_keys_gives_none(tmp_path: Path):
    assert compute(put(tmp_path, "a.pdf", b"%PDF-1.4 nothing"), 1) is None
    assert compute(put(tmp_path, "a.pdf", documents.pdf("one")), 2) is None


def share(opened: pikepdf.Pdf) -> None:
    opened.pages[0].Resources = opened.pages[1].Resources


def inherit(opened: pikepdf.Pdf) -> None:
    for page in opened.pages:
        if "/XObject" in page.Resources:
            opened.Root.Pages.Resources = page.Resources
            del page.obj["/Resources"]


def picture(width: int, height: int) -> PdfPage:
    image = io.BytesIO()
    Image.new("L", (width, height), 200).save(image, "JPEG")
    return PdfPage(b"q 90 0 0 90 20 20 cm /Im Do Q", image.getvalue())


@pytest.mark.parametrize(
    ("content", "scans"),
    [
        (documents.pdf("one", "two"), 0),
        (documents.pdf("one", SCAN, SCAN), 2),
        (changed(documents.pdf("one", SCAN), share), 2),
        (changed(documents.pdf(SCAN, SCAN), inherit), 2),
        (documents.pdf("one", picture(400, 400), picture(600, 700)), 1),
    ],
)
def test_pages_with_images_as_large_as_a_page_are_counted(
    tmp_path: Path, content: bytes, scans: int
):
    with pikepdf.open(io.BytesIO(content)) as opened:
        count = len(opened.pages)
    found = compute(put(tmp_path, "a.pdf", content), count)
    assert found is not None
    assert found.scans == scans
