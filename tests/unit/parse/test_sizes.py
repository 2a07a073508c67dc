"""Files at the edge of what is taken in: each is read or refused for a plain reason, quickly."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from quire.demo import samples
from quire.errors import Unreadable
from quire.model.pages import Page
from quire.parse import file_type, formats, markup
from quire.parse.parser import ReadOptions
from tests import documents

ROWS = 1_000_000
CSV, HTML = "text/csv", "text/html"
OPTIONS = ReadOptions(row_size=3000)


def long_csv(path: Path) -> Path:
    with path.open("w") as file:
        file.write("port,tonnes\n")
        file.writelines(f"harbour {n},{n}\n" for n in range(2, ROWS + 1))
    return path


def long_xlsx(path: Path) -> Path:
    """A workbook with one cell in each of the rows that a sheet may have, nearly."""
    cells = (f'<row r="{n}"><c r="A{n}"><v>{n}</v></c></row>' for n in range(1, ROWS + 1))
    body = "".join(cells)
    path.write_bytes(documents.sheet(body))
    return path


def test_a_csv_of_a_million_rows_is_counted_and_read_from_any_page(tmp_path: Path):
    path = long_csv(tmp_path / "a.csv")
    count = formats.inspect(path, CSV, OPTIONS).length
    assert count == 334
    [page] = formats.read(path, CSV, OPTIONS, count, count)
    assert isinstance(page, Page)
    assert page.text.startswith("port\ttonnes\nharbour 999001\t999001\n")
    assert page.text.endswith(f"harbour {ROWS}\t{ROWS}")


def test_a_workbook_of_a_million_rows_is_counted_and_read_from_any_page(tmp_path: Path):
    path = long_xlsx(tmp_path / "a.xlsx")
    count = formats.inspect(path, file_type.XLSX, OPTIONS).length
    assert count == 334
    [page] = formats.read(path, file_type.XLSX, OPTIONS, count, count)
    assert isinstance(page, Page)
    assert len(page.text.splitlines()) == 1002  # the name of the sheet and an empty line
    assert page.label == "Sheet1, rows 999,001 to 1,000,000"


def test_a_workbook_that_unpacks_to_many_times_its_size_is_refused(tmp_path: Path):
    path = tmp_path / "bomb.xlsx"
    path.write_bytes(documents.bomb(samples.xlsx({"S": [["x"]]}), 40 << 20))
    with pytest.raises(Unreadable, match=r"bomb.xlsx: would unpack to [\d,]+ times its size"):
        formats.inspect(path, file_type.XLSX)


def test_html_is_taken_up_to_the_limit_and_refused_above_it(tmp_path: Path):
    path = tmp_path / "a.html"
    with path.open("wb") as file:
        file.truncate(markup.MAX_BYTES)
    assert formats.inspect(path, HTML).length == 1
    with path.open("r+b") as file:
        file.truncate(markup.MAX_BYTES + 1)
    with pytest.raises(Unreadable, match=r"has 52,428,801 bytes of text \(at most 52,428,800\)"):
        formats.inspect(path, HTML)


def test_html_that_is_joined_in_slices_gives_the_same_text(monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(7)
    bits = (
        "<p>", "</p>", "<div>", "<td>", "<pre>", "</pre>", " ", "\n", "word", "a&amp;b", "&lt", "&",
        "<br>", "<script>x</script>", "<!-- a <p> -->", "  \n\n ", "<a title='<x>'>", "é", "<",
    )  # fmt: skip
    whole = ["".join(chance.choices(bits, k=chance.randint(1, 60))) for _ in range(2000)]
    at_once = [markup.html_text(each) for each in whole]
    monkeypatch.setattr(markup, "_SLICE", 7)
    monkeypatch.setattr(markup, "_MAX_PARTS", 3)
    assert [markup.html_text(each) for each in whole] == at_once


def test_html_of_many_blanks_takes_no_longer_than_of_many_words():
    """Blanks that are looked at again with each further one would take an hour."""
    found = markup.html_text("<p>first" + "<i> </i>" * 300_000 + "<p>last")
    assert found.split() == ["first", "last"]


HOSTILE = {
    "unclosed attributes": "<a href='",
    "unclosed comments": "<!--",
    "unclosed CDATA": "<![CDATA[",
    "unclosed tags": "<a",
    "end tags without a name": "</",
    "processing instructions": "<?",
    "deep nesting": "<div>",
    "open formatting": "<b class=1><p>x",
    "titles": "<title>",
    "signs": "<",
    "references": "&x",
    "equals": "<a =",
    "blanks": "<i> </i>",
}


@pytest.mark.parametrize("name", [*HOSTILE, "attributes", "digits"])
def test_hostile_html_costs_in_proportion_to_its_length(name: str):
    """Sixteen times the input may cost four times as much per character, not sixteen."""

    def page(count: int) -> str:
        if name == "attributes":
            return "<p " + " ".join(f"a{n}=1" for n in range(count)) + ">x"
        return f"&#{'9' * count};" if name == "digits" else HOSTILE[name] * count

    def cost(text: str) -> float:
        spent = []
        for _ in range(3):
            began = time.process_time()
            markup.html_text(text)
            spent.append(time.process_time() - began)
        return min(spent) / len(text)

    small, large = page(4_000), page(64_000)
    # Below a microsecond per character it is linear whatever the ratio: the clock is coarse.
    assert cost(large) < max(4 * cost(small), 1e-6)


def test_a_pdf_with_a_hole_of_100_mb_is_looked_at_or_refused_at_once(tmp_path: Path):
    path = tmp_path / "sparse.pdf"
    path.write_bytes(documents.pdf("words before the hole")[:200])
    with path.open("r+b") as file:
        file.truncate(100 << 20)
    with pytest.raises(Unreadable, match=r"sparse.pdf: is damaged or cut off"):
        formats.inspect(path, "application/pdf")
