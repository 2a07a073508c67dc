"""What `make fuzz` found: damaged files that ended in an exception nobody had foreseen.

Such an exception counts as a passing fault, so the file was tried again and again.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from tests.documents import TEXT, pdf, put

PLAIN = ReadOptions(ocr="never")


@pytest.mark.parametrize("media_type", [file_type.DOCX, file_type.PPTX, file_type.XLSX])
def test_an_archive_whose_directory_points_before_its_start_is_damaged(
    tmp_path: Path, media_type: str
):
    made = {
        file_type.DOCX: samples.docx(TEXT),
        file_type.PPTX: samples.pptx([TEXT]),
        file_type.XLSX: samples.xlsx({"A": [["x"]]}),
    }[media_type]
    at = made.rindex(b"PK\x05\x06") + 16
    [offset] = struct.unpack_from("<I", made, at)
    moved = made[:at] + struct.pack("<I", offset + 2000) + made[at + 4 :]
    path = put(tmp_path, "moved", moved)
    with pytest.raises(Unreadable, match="damaged"):
        formats.inspect(path, media_type, PLAIN)


def test_a_header_in_an_encoding_with_an_impossible_name_is_shown_as_it_is(tmp_path: Path):
    path = put(tmp_path, "a.eml", b"Subject: =?utf\xe98?q?tide?=\r\nFrom: a@b\r\n\r\nThe body.\r\n")
    [page] = formats.read(path, "message/rfc822", PLAIN, 1, 1)
    assert "The body." in page.text  # type: ignore[union-attr]


def test_a_pdf_that_only_pdfium_can_open_is_read_without_page_keys(tmp_path: Path):
    whole = samples.protected(pdf(*TEXT), "x", owner_only=True)
    path = put(tmp_path, "a.pdf", whole.replace(b"/ID [<31415926", b"/ID [<31415926```"))
    outline = formats.inspect(path, file_type.PDF, PLAIN)
    assert (outline.length, outline.keys) == (len(TEXT), None)
