"""Files that tests read: whole ones, odd ones, and ones made to do harm."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

from quire.demo import samples
from quire.demo.samples import PdfPage

TEXT = ("The tide turns at noon.", "Barrels of cider stand on the quay.")
#: Ten times ten times ten …: a few lines of XML that stand for millions of letters.
_NESTED = "".join(
    f'<!ENTITY {chr(code)} "{f"&{chr(code - 1)};" * 10}">' for code in range(ord("b"), ord("i"))
)
ENTITIES = f'<!DOCTYPE x [<!ENTITY a "haha">{_NESTED}]>'


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def drawn(*words: tuple[str, int, int], more: bytes = b"") -> PdfPage:
    """A page with words at the given places, in points from the lower left."""
    commands = [b"BT /F1 12 Tf %d %d Td (%b) Tj ET" % (x, y, w.encode()) for w, x, y in words]
    return PdfPage(b"\n".join(commands), more=more)


def pdf(*pages: str | PdfPage) -> bytes:
    return samples.pdf([samples.text_page([p]) if isinstance(p, str) else p for p in pages])


def docx_with_entities() -> bytes:
    with zipfile.ZipFile(io.BytesIO(samples.docx(["&h;"]))) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    document = members["word/document.xml"].replace("&amp;h;", "&h;")
    return samples.zipped({**members, "word/document.xml": ENTITIES + document})


def bomb(kind: bytes, size: int) -> bytes:
    """An Office file with one more member, of zeros."""
    written = io.BytesIO(kind)
    with (
        zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/media/image1.bin", "w", force_zip64=True) as member,
    ):
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return written.getvalue()


def sheet(cells: str) -> bytes:
    """A workbook whose one sheet has the given XML as rows."""
    with zipfile.ZipFile(io.BytesIO(samples.xlsx({"Sheet1": [["x"]]}))) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    head, _, _ = members[name].partition("<sheetData>")
    return samples.zipped({**members, name: f"{head}<sheetData>{cells}</sheetData></worksheet>"})


def changed(content: bytes, member: str, text: str) -> bytes:
    """An archive with one member replaced."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return samples.zipped({**members, member: text.encode()})


def with_picture(content: bytes, size: int) -> bytes:
    """An archive with one more member, which cannot be compressed."""
    written = io.BytesIO(content)
    with zipfile.ZipFile(written, "a") as archive:
        archive.writestr("media/picture.bin", random.Random(1).randbytes(size))
    return written.getvalue()
