"""Pictures as files: frames, sizes that would not fit in memory, and thumbnails."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import PageFailure
from quire.parse import file_type, formats, render
from quire.parse.parser import ReadOptions
from tests import documents
from tests.documents import put

NO_OCR = ReadOptions(ocr="never")


def huge_png(side: int) -> bytes:
    """A picture of side × side black dots, in a few bytes."""

    def chunk(name: bytes, content: bytes) -> bytes:
        total = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", total)

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def frames(count: int) -> bytes:
    written = io.BytesIO()
    first, *others = [Image.new("L", (300, 150), 40 * index) for index in range(count)]
    first.save(written, "TIFF", save_all=True, append_images=others, dpi=(150, 150))
    return written.getvalue()


def test_each_frame_of_a_tiff_is_a_page(tmp_path: Path):
    path = put(tmp_path, "a.tiff", frames(3))
    assert formats.inspect(path, "image/tiff").length == 3
    found = list(formats.read(path, "image/tiff", NO_OCR, 2, 3))
    assert [(page.number, page.width, page.via) for page in found] == [  # type: ignore[union-attr]
        (2, 144, "none"),
        (3, 144, "none"),
    ]
    [failure] = formats.read(path, "image/tiff", NO_OCR, 4, 4)
    assert isinstance(failure, PageFailure)


@pytest.mark.parametrize("side", [20_000, 100_000])
def test_a_picture_that_would_not_fit_in_memory_is_refused(side: int, tmp_path: Path):
    path = put(tmp_path, "a.png", huge_png(side))
    with pytest.raises(Unreadable, match="pixels"):
        formats.inspect(path, "image/png")
    assert render.thumbnail(path, "image/png") is None


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff\xe0\0\x10JFIF"]
)
def test_a_damaged_picture_is_refused(content: bytes, tmp_path: Path):
    with pytest.raises(Unreadable, match="damaged"):
        formats.inspect(put(tmp_path, "a.png", content), "image/png")


def test_a_picture_cut_off_fails_when_it_is_read(tmp_path: Path):
    content = samples.text_image(documents.TEXT, kind="PNG")
    path = put(tmp_path, "a.png", content[: len(content) // 2])
    [found] = formats.read(path, "image/png", ReadOptions(), 1, 1)
    assert isinstance(found, PageFailure)
    assert "damaged or cut off" in found.error


@pytest.mark.parametrize("turned", [0, 90])
def test_a_thumbnail_is_a_small_jpeg(turned: int, tmp_path: Path):
    scan = samples.scanned_page(documents.TEXT, turned)
    for name, content, kind in (
        ("a.pdf", documents.pdf(scan), file_type.PDF),
        ("a.jpeg", scan.image, "image/jpeg"),
    ):
        small = render.thumbnail(put(tmp_path, name, content), kind)
        assert small is not None
        with Image.open(io.BytesIO(small)) as image:
            assert image.format == "JPEG"
            assert max(image.size) == pytest.approx(300, abs=1)
            assert (image.width > image.height) == bool(turned)


def test_a_picture_with_transparency_has_a_thumbnail_on_white(tmp_path: Path):
    written = io.BytesIO()
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(written, "PNG")
    small = render.thumbnail(put(tmp_path, "a.png", written.getvalue()), "image/png")
    with Image.open(io.BytesIO(small or b"")) as image:
        assert image.getpixel((20, 20)) == (255, 255, 255)


def test_other_files_have_no_thumbnail(tmp_path: Path):
    assert render.thumbnail(put(tmp_path, "a.docx", samples.docx(["x"])), file_type.DOCX) is None
    assert render.thumbnail(put(tmp_path, "a.pdf", b"%PDF-1.4"), file_type.PDF) is None
