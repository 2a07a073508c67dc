"""The limits of docs/limits.md at their numbers: one more is refused, and says how many may be."""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import pytest

from quire.errors import Unreadable
from quire.model.pages import PageFailure
from quire.parse import file_type, formats, image, limits, mail, markup
from quire.parse.office import archive, ooxml, pptx
from quire.parse.parser import ReadOptions
from quire.parse.pdf import reader as pdf
from quire.parse.pdf import text as pdf_text
from quire.parse.tables import workbook
from tests.docs import markdown
from tests.documents import put

READ = ReadOptions(ocr="never")


def members(count: int) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        made.writestr("word/document.xml", "<w:document/>")
        for number in range(count - 1):
            made.writestr(f"{number}", b"")
    return written.getvalue()


def slides(count: int) -> bytes:
    """A presentation of many slides, all of which are the same part."""
    listed = "".join(f'<p:sldId id="{n}" r:id="r1"/>' for n in range(count))
    space = "http://schemas.openxmlformats.org"
    main = (
        f'<p:presentation xmlns:p="{space}/presentationml/2006/main" '
        f'xmlns:r="{space}/officeDocument/2006/relationships"><p:sldIdLst>{listed}</p:sldIdLst>'
        "</p:presentation>"
    )
    related = (
        f'<Relationships xmlns="{space}/package/2006/relationships"><Relationship Id="r1" '
        f'Type="{space}/officeDocument/2006/relationships/slide" Target="slides/slide1.xml"/>'
        "</Relationships>"
    )
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:  # not compressed: no ratio
        made.writestr("ppt/presentation.xml", main)
        made.writestr("ppt/_rels/presentation.xml.rels", related)
        made.writestr("ppt/slides/slide1.xml", "<p:sld/>")
    return written.getvalue()


def pages(count: int) -> bytes:
    """A PDF of one page that its tree names many times."""
    kids = b"3 0 R " * count
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(out)
    return out + b"xref\n0 4\n0000000000 65535 f \n" + table + end


def frames(count: int) -> bytes:
    """A TIFF of frames of one pixel, which share their bytes."""
    out = [b"II*\0", struct.pack("<I", 12), b"\0" * 4]
    at, entries = (
        12,
        ((256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (278, 1), (279, 1)),
    )
    size = 2 + 12 * len(entries) + 4
    for number in range(count):
        later = at + size if number < count - 1 else 0
        fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
        out.append(struct.pack("<H", len(entries)) + fields + struct.pack("<I", later))
        at += size
    return b"".join(out)


def pixels(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and has no pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        code = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", code)

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("make", "most", "media_type", "says"),
    [
        (members, archive.MAX_MEMBERS, file_type.DOCX, "files"),
        (slides, pptx.MAX_SLIDES, file_type.PPTX, "slides"),
        (pages, pdf.MAX_PAGES, file_type.PDF, "pages"),
    ],
    ids=["members", "slides", "pages"],
)
def test_one_more_than_the_limit_is_refused(
    make: Callable[[int], bytes], most: int, media_type: str, says: str, tmp_path: Path
):
    with pytest.raises(Unreadable, match=rf"{most + 1:,} {says} \(at most {most:,}\)"):
        path = put(tmp_path, "a", make(most + 1))
        outline = formats.inspect(path, media_type, READ)
        list(formats.read(path, media_type, READ, 1, outline.length))


def test_frames_are_counted_up_to_the_limit_only(tmp_path: Path):
    """Pillow took two minutes to count a hundred thousand, and ever more for each further one."""
    most = image.MAX_FRAMES
    assert formats.inspect(put(tmp_path, "a.tiff", frames(most)), "image/tiff", READ).length == most
    path = put(tmp_path, "b.tiff", frames(100_001))
    began = time.process_time()
    with pytest.raises(Unreadable, match="more than 5,000 frames"):
        formats.inspect(path, "image/tiff", READ)
    assert time.process_time() - began < 20


def test_an_image_of_too_many_pixels_is_refused_before_they_are_read(tmp_path: Path):
    path = put(tmp_path, "a.png", pixels(17_800, 10_001))
    [failure] = formats.read(path, "image/png", READ, 1, 1)
    assert isinstance(failure, PageFailure)
    assert "17,800 by 10,001 pixels" in failure.error


def test_an_archive_that_says_to_unpack_to_too_much_is_refused(tmp_path: Path):
    content = bytearray(members(2))
    at = content.rindex(b"PK\1\2")  # the size that the last entry of the directory tells
    content[at + 24 : at + 28] = struct.pack("<I", archive.MAX_BYTES)
    with pytest.raises(Unreadable, match="would unpack to 1,024 MiB"):
        formats.inspect(put(tmp_path, "a.docx", bytes(content)), file_type.DOCX, READ)
        list(formats.read(tmp_path / "a.docx", file_type.DOCX, READ, 1, 1))


def test_attachments_past_the_limit_are_left_out(tmp_path: Path):
    message = EmailMessage()
    message["Subject"] = "many"
    message.set_content("See the files.")
    for number in range(1_001):
        message.add_attachment(b"x", maintype="text", subtype="plain", filename=f"{number}.txt")
    path = put(tmp_path, "a.eml", bytes(message))
    assert len(mail.attachments(path)) == 1_000


def test_a_message_above_its_size_is_refused(tmp_path: Path):
    path = put(tmp_path, "a.eml", b"Subject: large\n\n")
    with path.open("r+b") as file:
        file.truncate(mail.MAX_BYTES + (1 << 20))
    with pytest.raises(Unreadable, match=r"201 MiB \(at most 200 MiB\)"):
        list(formats.read(path, "message/rfc822", READ, 1, 1))


def test_the_numbers_of_the_documentation_are_those_of_the_code():
    text = markdown.read("docs/limits.md")
    for number in (
        limits.PAGE_CHARACTERS, limits.WHOLE_CHARACTERS, limits.TASK_CHARACTERS,
        limits.CELL_CHARACTERS, archive.MAX_RATIO, archive.MAX_MEMBERS, ooxml.MAX_DEPTH,
        ooxml.MAX_ATTRIBUTES, pptx.MAX_SLIDES, pdf.MAX_PAGES, image.MAX_FRAMES, pdf_text.MAX_WORDS,
        workbook.MAX_CELLS, image.MAX_PIXELS,
    ):  # fmt: skip
        assert f"| {number:,} |" in text or f"{number:,}; {number:,} |" in text, number
    assert f"| {archive.MAX_BYTES >> 30} GiB |" in text
    assert f"| {markup.MAX_BYTES >> 20} MiB; {mail.MAX_BYTES >> 20} MiB |" in text
