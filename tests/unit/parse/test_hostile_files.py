"""Files made to do harm, read in a box: each fails alone or is read, within every limit."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from quire.demo import samples
from quire.errors import QuireError, Unreadable
from quire.model.pages import Page, PageFailure
from quire.parse import file_type, formats, limits, word_boxes
from quire.parse.boxed_reader import SERVER, BoxedReader
from quire.parse.limits import TextBudget
from quire.parse.office import archive
from quire.parse.parser import ReadOptions
from quire.sandbox.box import BoxDied, Sandbox
from tests import documents
from tests.documents import put

SHARED = '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>{}</t></si></sst>'


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxedReader]:
    def fail(died: BoxDied) -> Any:
        raise died

    sandbox = Sandbox(SERVER, tmp_path_factory.mktemp("hostile") / "box")
    yield BoxedReader(sandbox, "acme", fail)
    sandbox.close()


def zipped(members: dict[str, bytes], kind: bytes = b"") -> bytes:
    written = io.BytesIO(kind)
    with zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return written.getvalue()


def huge_shared_string() -> bytes:
    rows = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 301))
    text = "".join(f"{n:07}" for n in range(60_000))
    sheet = documents.sheet(rows)
    return documents.changed(sheet, "xl/sharedStrings.xml", SHARED.format(text))


def image(mode: str, side: int) -> bytes:
    written = io.BytesIO()
    Image.new(mode, (side, side)).save(written, "PNG")
    return written.getvalue()


def many_members() -> bytes:
    return zipped({f"word/media/{n}.bin": bytes(9 << 20) for n in range(3)}, samples.docx(["x"]))


def late_doctype() -> bytes:
    body = "<?xml version='1.0'?>" + "<!--" + " " * 2000 + "-->" + documents.ENTITIES + "<x>&h;</x>"
    return documents.changed(samples.docx(["x"]), "word/document.xml", body)


def deep() -> bytes:
    body = '<w:x xmlns:w="urn:w">' + "<w:tbl>" * 50_000 + "</w:tbl>" * 50_000 + "</w:x>"
    return documents.changed(samples.docx(["x"]), "word/document.xml", body)


def polyglot() -> bytes:
    return zipped({"word/document.xml": b"<x/>", "[Content_Types].xml": b""}, samples.pdf([]))


def traversal() -> bytes:
    name = "../../../../etc/cron.d/x"
    return zipped({name: b"x", f"/{name}": b"x", "word\\..\\x": b"x"}, samples.docx(["harmless"]))


def mail() -> bytes:
    parts = "".join(
        f'--b\r\nContent-Disposition: attachment; filename="../../x{n}"\r\n\r\nx\r\n'
        for n in range(9)
    )
    head = "From: a\r\nTo: b\r\nSubject: s\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    return (head + parts + "--b--\r\n").encode()


def boxes() -> bytes:
    return documents.pdf(documents.drawn(("far", 1_000_000_000, -1_000_000_000)))


#: What each is; whether anything of it can be read.
FILES: dict[str, tuple[Callable[[], bytes], bool]] = {
    "bomb.docx": (lambda: documents.bomb(samples.docx(["x"]), 30 << 20), False),
    "members.docx": (many_members, False),
    "entities.docx": (documents.docx_with_entities, False),
    "late.docx": (late_doctype, False),
    "deep.docx": (deep, False),
    "traversal.docx": (traversal, True),
    "shared.xlsx": (huge_shared_string, False),
    "polyglot.pdf": (polyglot, False),
    "boxes.pdf": (boxes, True),
    "comments.txt": (lambda: b"<!---->" * 40 + b"x", True),
    "comments.html": (lambda: b"<html>" + b"<!--" * 20_000, True),
    "tags.html": (lambda: b"<html>" + b"<a<" * 100_000, True),
    "large.png": (lambda: image("1", 14_000), False),
    "mail.eml": (mail, True),
    "empty.pdf": (lambda: b"%PDF-1.7\n", False),
    "zeros.bin": (lambda: bytes(1 << 20), False),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_fails_alone_or_is_read(name: str, reader: BoxedReader, tmp_path: Path):
    make, is_readable = FILES[name]
    path = put(tmp_path, name, make())
    options = ReadOptions(ocr="never")
    found: list[Page | PageFailure] = []
    try:
        media_type = reader.detect(path, name)
        outline = reader.inspect(path, media_type, options)
        pages = reader.read(path, media_type, options, 1, outline.length)
        budget = TextBudget(is_whole=outline.unit == "whole")
        found = [budget.checked(page) for page in pages]
        reader.thumbnail(path, media_type)
        if media_type in formats.MESSAGES:
            for each in reader.attachments(path, media_type):
                assert "/" not in each.name
    except QuireError as error:
        assert str(error)
        assert isinstance(error, Unreadable)
    assert any(isinstance(page, Page) for page in found) == is_readable, found
    # The same box reads the next file.
    whole = put(tmp_path, "whole.txt", b"harmless")
    [page] = reader.read(whole, "text/plain", options, 1, 1)
    assert page == Page(1, "harmless")


def test_a_page_with_too_much_text_fails_alone_and_too_many_of_them_the_file(
    monkeypatch: pytest.MonkeyPatch,
):
    budget = TextBudget(is_whole=False)
    failed = budget.checked(Page(3, "x" * (limits.PAGE_CHARACTERS + 1)))
    assert isinstance(failed, PageFailure)
    assert "page 3: has 2,000,001 characters (at most 2,000,000)" in failed.error
    page = Page(4, "x" * limits.PAGE_CHARACTERS)
    assert budget.checked(page) is page
    monkeypatch.setattr(limits, "TASK_CHARACTERS", 3 * limits.PAGE_CHARACTERS)
    budget = TextBudget(is_whole=False)
    for _ in range(3):
        assert budget.checked(page) is page
    with pytest.raises(Unreadable, match="has more than 6,000,000 characters up to page 4"):
        budget.checked(page)
    whole = TextBudget(is_whole=True)
    assert isinstance(whole.checked(Page(1, "x" * (limits.PAGE_CHARACTERS + 1))), Page)


def test_a_cell_is_cut_where_excel_cuts_it(tmp_path: Path, reader: BoxedReader):
    long = "x" * 40_000
    path = put(tmp_path, "a.xlsx", samples.xlsx({"S": [[long, "y"]]}))
    [page] = reader.read(path, file_type.XLSX, ReadOptions(), 1, 1)
    assert isinstance(page, Page)
    assert page.text == "S\n\n" + "x" * limits.CELL_CHARACTERS + "\ty"


def test_many_small_members_count_as_much_as_a_large_one(tmp_path: Path):
    with pytest.raises(Unreadable, match=r"would unpack to [\d,]+ times its size"):
        archive.check(put(tmp_path, "a.docx", many_members()))


def test_boxes_that_unpack_to_more_than_they_say_are_not_unpacked():
    import numpy as np

    packed = word_boxes.pack(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert word_boxes.unpack(packed, "one")
    import zlib

    head, bomb = packed[: word_boxes._HEAD.size], zlib.compress(bytes(1 << 26))
    assert len(word_boxes.unpack(head + bomb, "one")) == 1
    for at in (2, 6):  # the numbers of boxes, and of breaks
        lying = head[:at] + b"\xff" * 4 + head[at + 4 :]
        assert word_boxes.unpack(lying + bomb, "one") == []
