"""The type of a file is told by its bytes, whatever it is called."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from quire.demo import samples
from quire.parse import file_type
from tests import documents


def picture(kind: str) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (9, 9)).save(written, kind)
    return written.getvalue()


PDF = documents.pdf("text")
MAIL = b"Received: by x\r\nFrom: a@example.org\r\nSubject: hello\r\n folded\r\n\r\nbody\r\n"
CASES: list[tuple[str, bytes, str]] = [
    ("a.pdf", PDF, "application/pdf"),
    ("junk first.pdf", b"\r\n" * 500 + PDF, "application/pdf"),
    ("a.txt", PDF, "application/pdf"),
    ("a.pdf", samples.docx(["x"]), file_type.DOCX),
    ("a.zip", samples.xlsx({"S": [["x"]]}), file_type.XLSX),
    ("a", samples.pptx([["x"]]), file_type.PPTX),
    ("cut.docx", samples.docx(["x" * 999])[:-30], file_type.DOCX),
    ("a.docx", samples.zipped({"readme.txt": "x"}), "application/zip"),
    *((f"a.{kind}", picture(kind), f"image/{kind}") for kind in ("png", "jpeg", "tiff", "webp")),
    *((f"a.{kind}", picture(kind), f"image/{kind}") for kind in ("gif", "bmp")),
    ("a.eml", MAIL, "message/rfc822"),
    ("a.txt", MAIL, "message/rfc822"),
    ("a.txt", b"<!DOCTYPE html>\n<p>hi", "text/html"),
    ("a.txt", b"\xef\xbb\xbf <html><body>hi", "text/html"),
    ("a.html", b"<p>a part of a page", "text/html"),
    ("a.csv", b"a,b\n1,2\n", "text/csv"),
    ("a.md", b"# Title\n", "text/markdown"),
    ("a.png", b"Note: this is\nplain text\n", "text/plain"),
    ("a.txt", "größe".encode("cp1252"), "text/plain"),
    ("a.csv", "a;b\n1;2\n".encode("utf-16"), "text/csv"),
    ("a.txt", "a;b\n1;2\n".encode("utf-16-le"), "text/plain"),
    ("a.pdf", bytes(range(256)) * 9, "application/octet-stream"),
    ("a.pdf", b"", "application/octet-stream"),
    ("a.txt", b"\x7fELF\x02\x01\x01\0\0\0", "application/octet-stream"),
    ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "application/x-ole-storage"),
]


@pytest.mark.parametrize(("name", "content", "expected"), CASES)
def test_content_decides_the_type(name: str, content: bytes, expected: str, tmp_path: Path):
    path = documents.put(tmp_path, "stored-under-its-digest", content)
    assert file_type.detect(path, name) == expected


def test_the_name_of_the_file_itself_is_used_where_no_other_is_given(tmp_path: Path):
    assert file_type.detect(documents.put(tmp_path, "a.md", b"# Title")) == "text/markdown"


def test_an_office_file_with_a_password_is_recognised(tmp_path: Path):
    name = "EncryptedPackage".encode("utf-16-le")
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + name
    path = documents.put(tmp_path, "a.docx", content)
    assert file_type.detect(path) == "application/x-ole-encrypted"
