"""Tables are read in ranges of rows that are numbered through all sheets."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from tests import documents
from tests.documents import put

CSV = "text/csv"


def ranges(path: Path, kind: str, size: int) -> list[Page]:
    count = formats.inspect(path, kind).length
    options = ReadOptions(row_size=size)
    found = [
        page
        for first in range(1, count + 1, size)
        for page in formats.read(path, kind, options, first, min(first + size - 1, count))
    ]
    return [page for page in found if isinstance(page, Page)]


def test_a_range_repeats_the_header_once(tmp_path: Path):
    rows = [["Day", "Vessel"], *([day, f"Vessel {day}"] for day in range(1, 6))]
    path = put(tmp_path, "a.xlsx", samples.xlsx({"Arrivals": rows}))  # type: ignore[dict-item]
    assert formats.inspect(path, file_type.XLSX)[1:3] == ("row", 6)
    first, second = ranges(path, file_type.XLSX, 4)
    assert first.text == "Day\tVessel\n1\tVessel 1\n2\tVessel 2\n3\tVessel 3"
    assert second.text == "Day\tVessel\n4\tVessel 4\n5\tVessel 5"
    assert (second.number, second.label) == (2, "Arrivals, rows 5 to 6")


def test_sheets_share_one_numbering(tmp_path: Path):
    numbers: list[list[str | float]] = [[1.5, 2], [3, 4]]
    letters: list[list[str | float]] = [["a", "b"], ["c", "d"]]
    sheets = {"One": numbers, "Empty": [], "Two": letters}
    path = put(tmp_path, "a.xlsx", samples.xlsx(sheets))
    first, second = ranges(path, file_type.XLSX, 3)
    assert first.label == "One, rows 1 to 2; Two, rows 1 to 1"
    assert first.text == "1.5\t2\n3\t4\n\na\tb"
    assert (second.text, second.label) == ("a\tb\nc\td", "Two, rows 2 to 2")


def test_ranges_may_be_read_in_any_order(tmp_path: Path):
    path = put(tmp_path, "a.csv", b"".join(b"%d,x%d\n" % (row, row) for row in range(1, 31)))
    options = ReadOptions(row_size=10)
    for first in (21, 1, 11, 11, 21):
        [page] = formats.read(path, CSV, options, first, first + 9)
        assert isinstance(page, Page)
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
    assert formats.inspect(put(tmp_path, "a.csv", content), CSV).length == 400_002


def test_a_line_without_end_is_bounded(tmp_path: Path):
    content = b"a,b\n" + b"x" * (5 << 20)
    assert formats.inspect(put(tmp_path, "a.csv", content), CSV).length >= 2


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
    assert page.text.split("\t") == ["2026-03-02", "12", "0.25", "True", "12345678901234"]


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
