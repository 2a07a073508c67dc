"""OpenDocument, RTF, EPUB, Outlook messages and old workbooks: ordinary files and hostile ones."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page
from quire.parse import compound, file_type, formats, rtf
from quire.parse.parser import ReadOptions
from tests import documents
from tests.blocks import blocks_of, read, shown, spans
from tests.compound import compound as compound_file
from tests.compound import message
from tests.documents import put

ODF = "urn:oasis:names:tc:opendocument:xmlns"
SPACES = " ".join(
    f'xmlns:{name}="{ODF}:{name}:1.0"' for name in ("office", "text", "table", "style")
)


def odt(body: str, styles: str = "") -> bytes:
    content = (
        f"<office:document-content {SPACES}><office:automatic-styles>{styles}"
        f"</office:automatic-styles><office:body><office:text>{body}</office:text></office:body>"
        "</office:document-content>"
    )
    return samples.zipped({"mimetype": file_type.ODT, "content.xml": content})


LIST = '<text:list-level-style-number text:level="1" style:num-format="1"/>'
STYLES = (
    f'<text:list-style style:name="L1">{LIST.replace("text:level", "level")}</text:list-style>'
    '<style:style style:name="P9"><style:paragraph-properties xmlns:fo="urn:fo" '
    'fo:break-before="page"/></style:style>'
)
TEXT = """<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
<text:h text:outline-level="2">Tides</text:h>
<text:p>Spring<text:s text:c="2"/>tides
 rise<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>At noon.</text:p>
</text:note-body></text:note></text:p>
<text:list text:style-name="L1"><text:list-item><text:p>one</text:p>
<text:list><text:list-item><text:p>inner</text:p></text:list-item></text:list></text:list-item>
<text:list-item><text:p>two</text:p></text:list-item></text:list>
<table:table><table:table-column/><table:table-header-rows><table:table-row>
<table:table-cell><text:p>Port</text:p></table:table-cell>
<table:table-cell table:number-columns-spanned="2"><text:p>Goods</text:p></table:table-cell>
<table:covered-table-cell/></table:table-row></table:table-header-rows><table:table-row>
<table:table-cell><text:p>Hull</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="2"><text:p>7</text:p></table:table-cell>
</table:table-row></table:table>
<text:p text:style-name="P9">Next page</text:p>"""


def test_an_opendocument_text_has_headings_lists_tables_notes_and_pages(tmp_path: Path):
    path = put(tmp_path, "a.odt", odt(TEXT, STYLES))
    assert file_type.detect(path) == file_type.ODT
    first, second = read(path, file_type.ODT)
    assert shown(first) == [
        ("heading", 2, "Tides"), ("paragraph", "Spring tides rise"), ("list_item", 1, "1. one"),
        ("list_item", 2, "inner"), ("list_item", 1, "2. two"),
        ("table", 1, [["Port", "Goods", ""], ["Hull", "7", "7"]]), ("footnote", "At noon."),
    ]  # fmt: skip
    assert spans(first) == [(0, 1, 1, 2)]
    assert (first.label, second.label, second.text) == (
        "section 1: Tides", "section 2", "Next page"
    )  # fmt: skip


def test_pages_that_were_drawn_are_the_pages_of_an_opendocument_text(tmp_path: Path):
    body = "<text:p>One two<text:soft-page-break/> three</text:p><text:p>four</text:p>"
    first, second = read(put(tmp_path, "a.odt", odt(body)), file_type.ODT)
    assert (first.text, second.text) == ("One two", "three\n\nfour")
    assert first.label is None


def test_a_sheet_of_opendocument_is_a_table(tmp_path: Path):
    rows = [["Port", "Tonnes"], ["Hull", "7"]]
    cells = "".join(
        "<table:table-row>"
        + "".join(
            '<table:table-cell office:value-type="string">'
            f"<text:p>{each}</text:p></table:table-cell>"
            for each in row
        )
        + "</table:table-row>"
        for row in rows
    )

    def ods(more: str = "") -> bytes:
        content = (
            f"<office:document-content {SPACES}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{cells}{more}</table:table></office:spreadsheet>'
            "</office:body></office:document-content>"
        )
        manifest = f'<manifest><file-entry media-type="{file_type.ODS}"/></manifest>'
        members = {"mimetype": file_type.ODS, "META-INF/manifest.xml": manifest}
        return samples.zipped({**members, "content.xml": content})

    path = put(tmp_path, "a.ods", ods())
    assert file_type.detect(path) == file_type.ODS
    [page] = read(path, file_type.ODS)
    assert shown(page) == [("heading", 1, "S"), ("table", 1, rows)]
    far = (
        '<table:table-row table:number-rows-repeated="1000000"><table:table-cell '
        'table:number-columns-repeated="16000" office:value-type="string"><text:p>x</text:p>'
        "</table:table-cell></table:table-row>"
    )
    with pytest.raises(Unreadable, match="stray cells"):
        formats.inspect(put(tmp_path, "b.ods", ods(far)), file_type.ODS)


RTF = rb"""{\rtf1\ansi\ansicpg1252\uc1{\fonttbl{\f0 Arial;}}{\*\generator X;}
{\stylesheet{\s0 Normal;}{\s1\b heading 2;}{\s2\outlinelevel0 Titel;}{\*\cs9 heading 1;}}
{\info{\title hidden}}{\header running\par}
\pard\s1 Tides\par\pard\s2 Top\par
\pard Spring {\b ti}des rise \'e9\u8364?\u-10179?\u-8704? \{x\}{\footnote\pard A note.\par}\par
{\listtext\'b7\tab}bullet\par{\listtext 1.\tab}\ilvl1 number\par\pard
{\field{\*\fldinst HYPERLINK "x"}{\fldrslt a link}}{\pict\pngblip 00ff00}\bin3 {{{\par
\trowd\cellx1\cellx2\pard\intbl Port\cell Tonnes\cell\row
\trowd\pard\intbl Hull\par Yard\cell 7\cell\row
\pard After\page Next}"""


def test_rich_text_has_headings_lists_tables_notes_and_pages(tmp_path: Path):
    path = put(tmp_path, "a.rtf", RTF)
    assert file_type.detect(path) == file_type.RTF
    first, second = read(path, file_type.RTF)
    assert shown(first) == [
        ("heading", 2, "Tides"), ("heading", 1, "Top"),
        ("paragraph", "Spring tides rise é€\U0001f600 {x}"),
        ("list_item", 1, "bullet"), ("list_item", 2, "1. number"), ("paragraph", "a link"),
        ("table", 1, [["Port", "Tonnes"], ["Hull Yard", "7"]]), ("paragraph", "After"),
        ("footnote", "A note."),
    ]  # fmt: skip
    assert second.text == "Next"


def test_rich_text_of_other_code_pages_is_decoded_character_by_character():
    [page] = rtf.pages(rb"{\rtf1\ansicpg932 \'93\'fa" + b"\r\n" + rb"\'96\'7b\par}")
    assert page.text == "日本"
    [page] = rtf.pages("{\\rtf1\\ansicpg1251 Мир}".encode("cp1251"))
    assert page.text == "Мир"


@pytest.mark.parametrize(
    "piece",
    [
        "{", "}", "\\par ", "x\\cell ", "\\row ", "\\u8364?", "\\'e9", "{\\*\\x ", "\\s1 x\\par ",
        "{\\footnote x}", "\\page x", "{\\stylesheet{\\s1 heading 1;}", "\\bin9 ",
    ],
)  # fmt: skip
def test_hostile_rich_text_is_read_in_linear_time(piece: str):
    def cost(count: int) -> float:
        began = time.process_time()
        for page in rtf.pages(b"{\\rtf1 " + piece.encode() * count):
            blocks_of(page)
        return time.process_time() - began

    small = min(cost(2_000) for _ in range(3))
    assert min(cost(16_000) for _ in range(2)) < max(40 * small, 0.3)


def epub(*chapters: str, more: str = "", protected: bool = False) -> bytes:
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    members = {
        "mimetype": file_type.EPUB,
        "META-INF/container.xml": '<container><rootfile full-path="OPS/x.opf"/></container>',
        "OPS/x.opf": f"<package>{more}<manifest>{items}</manifest><spine>{spine}</spine></package>",
        **{f"OPS/text/c {n}.xhtml": chapter for n, chapter in enumerate(chapters)},
    }
    if protected:
        reference = '<CipherReference URI="OPS/text/c%200.xhtml"/>'
        members["META-INF/encryption.xml"] = f"<encryption>{reference}</encryption>"
    return samples.zipped(members)


DOCTYPE = "<?xml version='1.0'?><!DOCTYPE html>"


def test_a_chapter_of_a_book_is_a_page_with_its_own_key(tmp_path: Path):
    table = "<table><tr><th>A<th>B<tr><td>1<td>2</table>"
    chapters = [f"{DOCTYPE}<html><h1>Chapter {n}</h1>{table}</html>" for n in (1, 2)]
    path = put(tmp_path, "a.epub", epub(*chapters))
    assert file_type.detect(path) == file_type.EPUB
    first, second = read(path, file_type.EPUB)
    assert shown(first) == [("heading", 1, "Chapter 1"), ("table", 1, [["A", "B"], ["1", "2"]])]
    assert (second.number, second.label) == (2, "chapter 2")
    before = formats.inspect(path, file_type.EPUB).keys or ()
    chapters[1] += "edited"
    after = formats.inspect(put(tmp_path, "b.epub", epub(*chapters)), file_type.EPUB).keys or ()
    assert before[0] == after[0] and before[1] != after[1]


def test_an_outlook_message_is_read_as_others_with_its_attachment(tmp_path: Path):
    path = put(tmp_path, "a.msg", message())
    assert file_type.detect(path) == file_type.MSG
    own, older = read(path, file_type.MSG)
    assert shown(own) == [
        ("paragraph", "From: Ida Brandt <ida@example.org>"), ("paragraph", "To: Otto Lund"),
        ("paragraph", "Date: 2026-03-02 09:00 UTC"), ("heading", 1, "Tides in Zürich"),
        ("paragraph", "Hello Otto,"), ("table", 1, [["Day", "Metres"], ["Mon", "3.4"]]),
    ]  # fmt: skip
    assert older.text.endswith("Older words")
    [attached] = formats.attachments(path, file_type.MSG)
    assert attached.name == "tides.csv"
    assert attached.content == b"day,metres\n" + b"Mon,3.4\n" * 900


#: Rich text as Outlook compresses it: the example of its specification (MS-OXRTFCP, 3.1).
COMPRESSED = bytes.fromhex(
    "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
)


def test_the_compressed_rich_text_of_a_message_is_its_last_resort(tmp_path: Path):
    none = {"__substg1.0_1000001F": b"", "__substg1.0_10130102": b""}
    streams = {**none, "__substg1.0_10090102": COMPRESSED}
    [page] = read(put(tmp_path, "a.msg", message(**streams)), file_type.MSG)
    assert page.text.endswith("hello world")


@pytest.mark.parametrize("name", ["a.doc", "a.ppt"])
def test_old_formats_that_nobody_reads_say_what_to_do(name: str, tmp_path: Path):
    stream = {"a.doc": "WordDocument", "a.ppt": "PowerPoint Document"}[name]
    path = put(tmp_path, name, compound_file({stream: b"x" * 5_000}))
    found = file_type.detect(path)
    assert found == {"a.doc": file_type.DOC, "a.ppt": file_type.PPT}[name]
    with pytest.raises(Unreadable, match=r"old .* is not supported\. Save it as"):
        formats.inspect(path, found)


def changed(content: bytes, seed: int) -> bytes:
    """A file with some bytes changed, cut off or repeated."""
    chance = random.Random(seed)
    found = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(found))
        found[at] = chance.randrange(256)
    if chance.random() < 0.3:
        del found[chance.randrange(len(found)) :]
    return bytes(found)


MADE: dict[str, Callable[[], bytes]] = {
    file_type.ODT: lambda: odt(TEXT, STYLES),
    file_type.RTF: lambda: RTF,
    file_type.EPUB: lambda: epub("<html>x</html>", "<html>y</html>"),
    file_type.MSG: lambda: message(**{"__substg1.0_10090102": COMPRESSED}),
    file_type.XLS: lambda: xls([["Port", "Tonnes"], ["Hull", 7.5]]),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_damaged_file_is_read_or_says_that_it_is_damaged(kind: str, tmp_path: Path):
    whole = MADE[kind]()
    for seed in range(300):
        path = put(tmp_path, f"{seed}", changed(whole, seed))
        try:
            outline = formats.inspect(path, kind)
            for page in formats.read(path, kind, ReadOptions(), 1, outline.length):
                if isinstance(page, Page):
                    blocks_of(page)
            if kind in formats.MESSAGES:
                formats.attachments(path, kind)
        except Unreadable as error:
            assert str(error)


HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "bomb": (file_type.ODT, lambda: documents.bomb(odt("x"), 30 << 20), "would unpack"),
    "entities": (
        file_type.ODT,
        lambda: documents.changed(odt("x"), "content.xml", documents.ENTITIES + "<x>&h;</x>"),
        "declares entities",
    ),
    "deep": (file_type.ODT, lambda: odt("<text:list>" * 2_000), "nested deeper"),
    "password": (
        file_type.ODT,
        lambda: samples.zipped({"content.xml": "x", "META-INF/manifest.xml": "<encryption-data/>"}),
        "protected by a password",
    ),
    "no book": (file_type.EPUB, lambda: samples.zipped({"mimetype": file_type.EPUB}), "damaged"),
    "no chapters": (file_type.EPUB, epub, "has no chapters"),
    "DRM": (file_type.EPUB, lambda: epub("x", protected=True), "protected"),
    "entities in a book": (
        file_type.EPUB,
        lambda: documents.changed(epub("x"), "OPS/x.opf", documents.ENTITIES + "<x>&h;</x>"),
        "declares entities",
    ),
    "cut message": (file_type.MSG, lambda: message()[:700], "damaged or cut off"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_its_reason(name: str, tmp_path: Path):
    kind, make, reason = HOSTILE[name]
    path = put(tmp_path, "a", make())
    with pytest.raises(Unreadable, match=reason):
        for _ in formats.read(path, kind, ReadOptions(), 1, formats.inspect(path, kind).length):
            pass


def test_a_compound_file_whose_sectors_and_names_go_in_circles_is_read_once(tmp_path: Path):
    content = bytearray(message())
    table = int.from_bytes(content[76:80], "little")
    at = (table + 1) * 512
    content[at : at + 512] = b"".join((n % 3).to_bytes(4, "little") for n in range(128))
    try:
        found = compound.CompoundFile(put(tmp_path, "a", bytes(content)))
        assert len(found.read("__properties_version1.0")) <= len(content)
    except Unreadable as error:
        assert "damaged" in str(error)


def test_repeated_cells_of_a_hostile_table_are_bounded(tmp_path: Path):
    again = 'table:number-columns-repeated="999999999"'
    cell = f"<table:table-cell {again}><text:p>x</text:p></table:table-cell>"
    rows = f"<table:table-row>{cell * 300}</table:table-row>" * 20
    [page] = read(put(tmp_path, "a.odt", odt(f"<table:table>{rows}</table:table>")), file_type.ODT)
    assert len(page.text) < 5_000_000


def record(number: int, content: bytes) -> bytes:
    return struct.pack("<HH", number, len(content)) + content


def xls(rows: list[list[str | float]]) -> bytes:
    """A workbook of Excel 97 with one sheet."""

    def start(kind: int) -> bytes:
        return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 0, 0, 6))

    def book(place: int) -> bytes:
        named = struct.pack("<IBBBB", place, 0, 0, 3, 0) + b"P&L"
        return start(5) + record(0x85, named) + record(10, b"")

    cells = b""
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            place = struct.pack("<HHH", row, column, 0)
            if isinstance(value, str):
                text = struct.pack("<HB", len(value), 1) + value.encode("utf-16-le")
                cells += record(0x204, place + text)
            else:
                cells += record(0x203, place + struct.pack("<d", value))
    whole = book(len(book(0))) + start(0x10) + cells + record(10, b"")
    return compound_file({"Workbook": whole.ljust(5_000, b"\0")})


def test_a_workbook_of_old_excel_is_read(tmp_path: Path):
    path = put(tmp_path, "a.xls", xls([["Port", "Tonnes"], ["Hull", 7.5]]))
    assert file_type.detect(path) == file_type.XLS
    [page] = read(path, file_type.XLS)
    assert shown(page) == [
        ("heading", 1, "P&L"), ("table", 1, [["Port", "Tonnes"], ["Hull", "7.5"]])
    ]  # fmt: skip
