"""Tables are read in ranges of rows that are numbered through all sheets."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from tests import documents
from tests.blocks import blocks_of, read, shown, spans
from tests.documents import put

CSV = "text/csv"


def ranges(path: Path, kind: str, size: int) -> list[Page]:
    return read(path, kind, ReadOptions(row_size=size))


def test_a_long_sheet_is_cut_between_rows_and_repeats_its_header(tmp_path: Path):
    rows = [["Day", "Vessel"], *([day, f"Vessel {day}"] for day in range(1, 6))]
    path = put(tmp_path, "a.xlsx", samples.xlsx({"Arrivals": rows}))  # type: ignore[dict-item]
    assert formats.inspect(path, file_type.XLSX, ReadOptions(row_size=4))[1:3] == ("page", 2)
    first, second = ranges(path, file_type.XLSX, 4)
    assert first.text == "Arrivals\n\nDay\tVessel\n1\tVessel 1\n2\tVessel 2\n3\tVessel 3"
    assert second.text == "Arrivals\n\nDay\tVessel\n4\tVessel 4\n5\tVessel 5"
    assert (second.number, second.label) == (2, "Arrivals, rows 5 to 6")
    grid = [["Day", "Vessel"], ["4", "Vessel 4"], ["5", "Vessel 5"]]
    assert shown(second) == [("heading", 1, "Arrivals"), ("table", 1, grid)]


def test_each_sheet_is_a_page_even_a_hidden_one(tmp_path: Path):
    numbers: list[list[str | float]] = [[1.5, 2], [3, 4]]
    letters: list[list[str | float]] = [["a", "b"], ["c", "d"]]
    content = samples.xlsx({"One": numbers, "Empty": [], "Two": letters})
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        book = members.read("xl/workbook.xml").decode()
    book = book.replace('<sheet name="Two"', '<sheet state="hidden" name="Two"')
    path = put(tmp_path, "a.xlsx", documents.changed(content, "xl/workbook.xml", book))
    first, second = ranges(path, file_type.XLSX, 3000)
    assert (first.label, first.text) == ("One", "One\n\n1.5\t2\n3\t4")
    assert (second.label, second.text) == ("Two (hidden)", "Two\n\na\tb\nc\td")


def test_a_title_above_a_sheet_is_its_caption_and_headers_may_have_two_rows(tmp_path: Path):
    rows: list[list[str | float]] = [
        ["Trade of the harbour"], ["In tonnes"], [], ["Port", "Wool", "", "Slate"],
        ["", "2024", "2025", "2025"], ["Hull", 1, 2, 3], [], ["Ayr", 4, 5, 6],
    ]  # fmt: skip
    content = with_sheet(
        samples.xlsx({"S": rows}), "<mergeCells><mergeCell ref='B4:C4'/></mergeCells>"
    )
    [page] = ranges(put(tmp_path, "a.xlsx", content), file_type.XLSX, 3000)
    grid = [
        ["Port", "Wool", "", "Slate"], ["", "2024", "2025", "2025"], ["Hull", "1", "2", "3"],
        ["Ayr", "4", "5", "6"],
    ]  # fmt: skip
    assert shown(page)[1] == ("table", 2, grid)
    assert spans(page) == [(0, 1, 1, 2)]
    assert page.text.startswith("S\n\nTrade of the harbour\nIn tonnes\nPort\tWool\t\tSlate\n")


def test_a_year_heads_its_column_if_other_numbers_are_below_it(tmp_path: Path):
    rows = "Item,2025,Growth\n,H1,\nRevenue,1200.5,8%\n"
    [page] = ranges(put(tmp_path, "a.csv", rows.encode()), CSV, 3000)
    assert shown(page)[0][1] == 2  # type: ignore[index]
    [page] = ranges(put(tmp_path, "b.csv", b"Ann,1998,x\nBo,2001,y\nCy,2003,z\n"), CSV, 3000)
    assert shown(page)[0][1] == 0  # type: ignore[index]
    [page] = ranges(put(tmp_path, "c.csv", b"Ann,1998,7\nBo,2001,8\n"), CSV, 3000)
    assert shown(page)[0][1] == 0  # type: ignore[index]


def test_tables_below_each_other_in_a_sheet_are_two(tmp_path: Path):
    content = (
        b"A,B,\n1,2,\n,,\nTotal,2\n\nC,D,E\nx,y,z\nu,v,w\n\nPort,2024,2025\nHull,7,8\n\nNote,,\n"
    )
    [page] = ranges(put(tmp_path, "a.csv", content), CSV, 3000)
    assert shown(page) == [
        ("table", 1, [["A", "B"], ["1", "2"], ["Total", "2"]]),
        ("table", 1, [["C", "D", "E"], ["x", "y", "z"], ["u", "v", "w"]]),
        ("table", 1, [["Port", "2024", "2025"], ["Hull", "7", "8"], ["Note", "", ""]]),
    ]
    assert page.text.split() == content.decode().replace(",", " ").split()


def test_an_empty_row_inside_a_table_cuts_nothing(tmp_path: Path):
    content = b"Name,Role\nAnn,mate\n\nBo,cook\nCy,boy\n\n,\nTotal,3\n"
    [page] = ranges(put(tmp_path, "a.csv", content), CSV, 3000)
    assert [each[0] for each in shown(page)] == ["table"]  # type: ignore[index]


def with_sheet(content: bytes, more: str, rows: str | None = None) -> bytes:
    """A workbook with more XML after the rows of its first sheet, or with other rows."""
    name = "xl/worksheets/sheet1.xml"
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        xml = members.read(name).decode()
    if rows is not None:
        head, tail = xml.partition("<sheetData>")[0], xml.partition("</sheetData>")[2]
        xml = f"{head}<sheetData>{rows}</sheetData>{tail}"
    return documents.changed(content, name, xml.replace("</sheetData>", f"</sheetData>{more}"))


def test_merged_cells_over_a_cut_and_over_each_other_lose_no_text(tmp_path: Path):
    rows: list[list[str | float]] = [[f"a{n}", f"b{n}", f"c{n}"] for n in range(12)]
    everywhere = "".join(
        f"<mergeCell ref='A{first}:{last}{stop}'/>"
        for first in range(1, 12) for last, stop in (("C", 12), ("XFD", 1048576), ("B", first))
    )  # fmt: skip
    content = with_sheet(samples.xlsx({"S": rows}), f"<mergeCells>{everywhere}</mergeCells>")
    pages = ranges(put(tmp_path, "a.xlsx", content), file_type.XLSX, 5)
    text = "\n".join(page.text for page in pages)
    assert len(pages) == 3
    assert all(cell in text.split() for row in rows for cell in row)
    for page in pages:
        blocks_of(page)


def test_a_sheet_that_starts_below_the_first_row_keeps_its_last_rows(tmp_path: Path):
    cells = "".join(f'<row r="{n}"><c r="C{n}"><v>{n}</v></c></row>' for n in range(4, 9))
    [page] = ranges(put(tmp_path, "a.xlsx", documents.sheet(cells)), file_type.XLSX, 10)
    assert page.text.split() == ["Sheet1", "4", "5", "6", "7", "8"]


def styled(codes: list[str], values: list[str]) -> bytes:
    """A workbook with one row, whose cells have the given formats."""
    own = "".join(
        f'<numFmt numFmtId="{200 + n}" formatCode="{escape(code, {chr(34): "&quot;"})}"/>'
        for n, code in enumerate(codes)
    )
    cells = "".join(f'<xf numFmtId="{200 + n}"/>' for n in range(len(codes)))
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    styles = (
        f'<styleSheet xmlns="{space}"><numFmts>{own}</numFmts>'
        f'<cellStyleXfs><xf numFmtId="9"/></cellStyleXfs><cellXfs>{cells}</cellXfs></styleSheet>'
    )
    row = "".join(
        f'<c r="{chr(65 + n)}1" s="{n}"><v>{value}</v></c>' for n, value in enumerate(values)
    )
    content = samples.xlsx({"S": [["x"]]})
    content = documents.changed(content, "xl/styles.xml", styles)
    return with_sheet(content, "", f'<row r="1">{row}</row>')


FORMATS = [
    ("0%", "0.125", "13%"), ("0.0%", "-0.125", "-12.5%"), ("#,##0", "1234567.6", "1,234,568"),
    ('#,##0.00\\ "€"', "1234.5", "1,234.50 €"), ("[$£-809]#,##0.00", "-5", "-£5.00"),
    ("#,##0_);(#,##0)", "-1234", "(1,234)"),
    ('0;-0;"nil"', "0", "nil"), ("#,##0,", "1234567", "1,235"),
    ("0.0##", "2.5", "2.5"), ("000", "7", "007"), ("[Red]0.0;[Blue]-0.0", "-2.25", "-2.3"),
    ("General", "0.1", "0.1"), ("# ?/?", "0.5", "0.5"), ("[>100]0;0.0", "0.25", "0.25"),
    ("dd/mm/yyyy", "46083", "2026-03-02"), ("mmm\\-yy", "46083", "Mar-26"),
    ("yyyy", "46083", "2026"),
    (";;;", "12", "12"), ("0" * 400, "1e300", "1e+300"),
]  # fmt: skip


def test_values_are_shown_in_the_format_of_their_cell(tmp_path: Path):
    codes, values, expected = (list(each) for each in zip(*FORMATS, strict=True))
    [page] = ranges(put(tmp_path, "a.xlsx", styled(codes, values)), file_type.XLSX, 10)
    assert page.text.split("\n")[-1].split("\t") == expected


def test_a_cell_whose_style_does_not_exist_shows_its_plain_value(tmp_path: Path):
    cells = '<row r="1"><c r="A1" s="7"><v>0.5</v></c><c r="B1" s="99999"><v>1</v></c></row>'
    content = with_sheet(styled(["0%"], ["0.5"]), "", cells)
    [page] = ranges(put(tmp_path, "a.xlsx", content), file_type.XLSX, 10)
    assert page.text == "S\n\n0.5\t1"


def test_ranges_may_be_read_in_any_order(tmp_path: Path):
    path = put(tmp_path, "a.csv", b"".join(b"%d,x%d\n" % (row, row) for row in range(1, 31)))
    options = ReadOptions(row_size=10)
    for number in (3, 1, 2, 2, 3):
        [page] = formats.read(path, CSV, options, number, number)
        assert isinstance(page, Page)
        first = 10 * number - 9
        assert page.text.split("\n")[0] == f"{first}\tx{first}"
        assert page.label == f"rows {first} to {first + 9}"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_and_encoding_are_guessed(encoding: str, separator: str, tmp_path: Path):
    lines = [("Größe", "Café"), ("1", f'"two{separator} ""2"""'), ("3", "four")]
    text = "\r\n".join(separator.join(line) for line in lines)
    [page] = ranges(put(tmp_path, "a.csv", text.encode(encoding)), CSV, 3000)
    rows = [" ".join(row.split("\t")) for row in page.text.split("\n")]
    expected = f'two{separator} "2"'.replace("\t", " ")
    assert rows == ["Größe Café", f"1 {' '.join(expected.split())}", "3 four"]


def test_a_letter_beyond_ascii_late_in_the_file_is_read(tmp_path: Path):
    content = b"a,b\n" + b"1,2\n" * 30_000 + "ä,b\n".encode("cp1252")
    page = ranges(put(tmp_path, "a.csv", content), CSV, 40_000)[0]
    assert page.text.endswith("ä\tb")


def test_a_quote_that_is_never_closed_does_not_swallow_the_file(tmp_path: Path):
    content = b'a,b\n"1,2\n' + b"3,4\n" * 400_000
    options = ReadOptions(row_size=1000)
    assert formats.inspect(put(tmp_path, "a.csv", content), CSV, options).length == 401


def test_a_line_without_end_is_bounded(tmp_path: Path):
    content = b"a,b\n" + b"x" * (5 << 20)
    assert formats.inspect(put(tmp_path, "a.csv", content), CSV).length >= 1


def test_a_hundred_thousand_rows_are_counted_and_read(tmp_path: Path):
    content = b"id,name\n" + b"".join(b"%d,name %d\n" % (row, row) for row in range(100_000))
    found = ranges(put(tmp_path, "a.csv", content), CSV, 3000)
    assert len(found) == 34
    assert found[-1].text.startswith("id\tname\n98999\tname 98999\n")
    assert found[1].label == "rows 3,001 to 6,000"


def test_a_stray_cell_in_the_farthest_corner_is_refused(tmp_path: Path):
    cells = '<row r="1"><c r="A1"><v>1</v></c></row><row><c\nr="XFD1048576"><v>2</v></c></row>'
    path = put(tmp_path, "a.xlsx", documents.sheet(cells))
    with pytest.raises(Unreadable, match="1,048,576 rows by 16,384 columns"):
        formats.inspect(path, file_type.XLSX)


def test_dates_and_numbers_are_written_as_people_write_them(tmp_path: Path):
    cells = (
        '<row><c t="d"><v>2026-03-02T00:00:00</v></c><c><v>12</v></c><c><v>0.25</v></c>'
        '<c t="b"><v>1</v></c><c><v>12345678901234</v></c></row>'
    )
    [page] = ranges(put(tmp_path, "a.xlsx", documents.sheet(cells)), file_type.XLSX, 10)
    assert page.text.split("\n")[-1].split("\t") == [
        "2026-03-02",
        "12",
        "0.25",
        "True",
        "12345678901234",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (samples.xlsx({"Empty": []}), "has no rows"),
        (samples.xlsx({"A": [["x"]]})[:-60], "damaged or cut off"),
        (documents.sheet("<row><c><v>1</row>"), "damaged or cut off"),
        (
            documents.sheet(f'{documents.ENTITIES}<row><c t="str"><v>&h;</v></c></row>'),
            "entities|damaged",
        ),
    ],
)
def test_a_workbook_that_cannot_be_read_says_why(content: bytes, reason: str, tmp_path: Path):
    with pytest.raises(Unreadable, match=f"a.xlsx: .*({reason})"):
        formats.inspect(put(tmp_path, "a.xlsx", content), file_type.XLSX)
