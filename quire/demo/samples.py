"""The sample documents of `quire demo`: one of each format, and two that cannot be read.

Every run writes the same bytes, so that a second ingestion has nothing to do.
"""

import io
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from quire.demo import prose
from quire.home import make_folder

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_SHOW = "http://schemas.openxmlformats.org/presentationml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"


class PdfPage(NamedTuple):
    """A page to write: its content stream, and optionally a JPEG image that it draws as /Im."""

    commands: bytes
    image: bytes = b""
    size: tuple[int, int] = (595, 842)
    more: bytes = b""  # further entries of the page dictionary, such as /Rotate 90


def make(folder: Path) -> list[Path]:
    """Write the sample documents into a folder and return their paths."""
    make_folder(folder)
    handbook = pdf([text_page([title, *body]) for title, body in prose.pages()])
    minutes = [" ".join(texts) for texts in list(prose.CHAPTERS.values())[:4]]
    letter = [line for texts in prose.CHAPTERS.values() for line in texts[2:3]]
    files = {
        "handbook.pdf": handbook,
        "scanned-letters.pdf": pdf([scanned_page(letter[:6]), scanned_page(letter[6:])]),
        "minutes.docx": docx(["Minutes of the harbour council", *minutes]),
        "arrivals.xlsx": xlsx({"Arrivals": _arrivals(200)}),
        "training.pptx": pptx([[title, *texts] for title, texts in prose.CHAPTERS.items()]),
        "notice.html": _html_notice(),
        "message.eml": _email(),
        "protected.pdf": protected(pdf([text_page(["The wages of the pilots", *letter])]), "tide"),
        "broken.pdf": handbook[:900],
    }
    paths = []
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
        paths.append(path)
    return paths


def text_page(paragraphs: Sequence[str], more: bytes = b"") -> PdfPage:
    """Return a page of text, each paragraph wrapped."""
    lines = [line for text in paragraphs for line in (*textwrap.wrap(text, 88), "")]
    shown = [b"(%b) Tj T*" % _pdf_string(line) for line in lines]
    return PdfPage(b"BT /F1 11 Tf 14 TL 50 780 Td\n" + b"\n".join(shown) + b"\nET", more=more)


def scanned_page(paragraphs: Sequence[str], rotation: int = 0) -> PdfPage:
    """Return a scanned page: an image of text, rotated counterclockwise by `rotation` degrees."""
    image = text_image(paragraphs, rotation)
    size = (842, 595) if rotation % 180 else (595, 842)
    return PdfPage(b"q %d 0 0 %d 0 0 cm /Im Do Q" % size, image, size)


def text_image(paragraphs: Sequence[str], rotation: int = 0, kind: str = "JPEG") -> bytes:
    """Return an image of text, like a scan at 150 dpi."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (1240, 1754), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=30)
    y = 120
    for text in paragraphs:
        for line in textwrap.wrap(text, 62):
            draw.text((110, y), line, fill=20, font=font)
            y += 48
        y += 40
    buffer = io.BytesIO()
    image.rotate(rotation, expand=True).save(buffer, kind, dpi=(150, 150))
    return buffer.getvalue()


def pdf(pages: Sequence[PdfPage]) -> bytes:
    """Return a PDF file whose pages share one font."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    kids = b" ".join(b"%d 0 R" % (4 + 3 * index) for index in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, len(pages)),
        font,
    ]
    for page in pages:
        number = len(objects) + 1
        image = b" /XObject << /Im %d 0 R >>" % (number + 2) if page.image else b""
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >>%b >> %b >>"
            % (*page.size, number + 1, image, page.more),
            b"<< /Length %d >>\nstream\n%b\nendstream" % (len(page.commands), page.commands),
            _image_object(page.image) if page.image else b"null",
        ]
    return _pdf_file(objects)


def protected(content: bytes, password: str, *, owner_only: bool = False) -> bytes:
    """Return a PDF file encrypted with a password; `owner_only` leaves it readable."""
    import pikepdf

    buffer = io.BytesIO()
    # RC4: the other ciphers add random bytes.
    encryption = pikepdf.Encryption(
        owner=password, user="" if owner_only else password, R=3, aes=False, metadata=False
    )
    with pikepdf.open(io.BytesIO(content)) as opened:
        opened.save(buffer, encryption=encryption, static_id=True)
    return buffer.getvalue()


def docx(paragraphs: Sequence[str]) -> bytes:
    """Return a Word file of plain paragraphs."""
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return zipped(
        {
            "[Content_Types].xml": _content_types(
                "word/document.xml", "wordprocessingml.document.main"
            ),
            "_rels/.rels": _relationships({"officeDocument": ["word/document.xml"]}),
            "word/document.xml": document,
        }
    )


def xlsx(sheets: Mapping[str, Sequence[Sequence[str | float]]]) -> bytes:
    """Return a workbook with the given sheets."""
    members = {
        "[Content_Types].xml": _content_types("xl/workbook.xml", "spreadsheetml.sheet.main"),
        "_rels/.rels": _relationships({"officeDocument": ["xl/workbook.xml"]}),
        "xl/_rels/workbook.xml.rels": _relationships(
            {"worksheet": [f"worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)]}
        ),
    }
    listed = ""
    for number, (name, rows) in enumerate(sheets.items(), start=1):
        listed += f'<sheet name="{escape(name)}" sheetId="{number}" r:id="rId{number}"/>'
        cells = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        members[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{_SHEET}"><sheetData>{cells}</sheetData></worksheet>'
        )
    members["xl/workbook.xml"] = (
        f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
    )
    return zipped(members)


def pptx(slides: Sequence[Sequence[str]]) -> bytes:
    """Return a presentation; each slide has one shape with the given lines."""
    names = [f"slides/slide{number}.xml" for number in range(1, len(slides) + 1)]
    listed = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    members = {
        "[Content_Types].xml": _content_types(
            "ppt/presentation.xml", "presentationml.presentation.main"
        ),
        "_rels/.rels": _relationships({"officeDocument": ["ppt/presentation.xml"]}),
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{_SHOW}" xmlns:r="{_OFFICE}">'
        f"<p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": _relationships({"slide": names}),
    }
    for name, lines in zip(names, slides, strict=True):
        text = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
        members[f"ppt/{name}"] = (
            f'<p:sld xmlns:p="{_SHOW}" xmlns:a="{_DRAWING}"><p:cSld><p:spTree><p:sp><p:txBody>'
            f"{text}</p:txBody></p:sp></p:spTree></p:cSld></p:sld>"
        )
    return zipped(members)


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """Return a ZIP archive whose bytes depend only on its members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _arrivals(count: int) -> list[list[str | float]]:
    names, goods = ("Marigold", "Cormorant", "Good Intent"), ("barley", "slate", "wool", "cider")
    rows: list[list[str | float]] = [["Day", "Vessel", "Cargo", "Tonnes"]]
    for day in range(1, count + 1):
        rows.append([day, names[day % 3], goods[day * 7 % 4], day * 37 % 460 + 12.5])
    return rows


def _html_notice() -> bytes:
    items = "".join(f"<li>{escape(text)}</li>" for text in prose.CHAPTERS["The ferry"])
    return (
        "<!doctype html><html><head><title>Notice to passengers</title><style>li {color: navy}"
        f"</style></head><body><h1>Notice to passengers</h1><ul>{items}</ul></body></html>\n"
    ).encode()


def _email() -> bytes:
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"] = "Ida Brandt <ida@harbour.example>"
    message["To"] = "council@harbour.example"
    message["Date"] = "Mon, 02 Mar 2026 09:30:00 +0000"
    message["Subject"] = "Duty on the copper wire from Dunmere"
    message.set_content("\n".join(prose.CHAPTERS["Customs"]))
    rows = "".join(f"{','.join(map(str, row))}\n" for row in _arrivals(30))
    message.add_attachment(rows, subtype="csv", filename="manifest.csv")
    message.set_boundary("sample")
    return message.as_bytes()


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f"<c><v>{value}</v></c>"


def _content_types(part: str, kind: str) -> str:
    office = "application/vnd.openxmlformats"
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="{office}-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/{part}" ContentType="{office}-officedocument.{kind}+xml"/></Types>'
    )


def _relationships(targets: Mapping[str, Sequence[str]]) -> str:
    tags = [
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for kind, names in targets.items()
        for number, target in enumerate(names, start=1)
    ]
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{"".join(tags)}</Relationships>'


def _pdf_string(line: str) -> bytes:
    plain = line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return plain.encode("cp1252", "replace")


def _image_object(jpeg: bytes) -> bytes:
    from PIL import Image

    with Image.open(io.BytesIO(jpeg)) as image:
        width, height = image.size
    return (
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /BitsPerComponent 8 "
        b"/ColorSpace /DeviceGray /Filter /DCTDecode /Length %d >>\nstream\n%b\nendstream"
        % (width, height, len(jpeg), jpeg)
    )


def _pdf_file(objects: Sequence[bytes]) -> bytes:
    file, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    file += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    return bytes(file + b"startxref\n%d\n%%%%EOF\n" % start)
