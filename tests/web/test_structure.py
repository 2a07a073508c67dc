"""The structure of a document on its page: blocks, tables with spans, outline."""

from __future__ import annotations

from benchmarks.ingest import reports
from benchmarks.ingest.reports import Canvas, Style
from quire.control.document_structure import MOST_CHARS
from quire.web import structure
from tests.shelf import PLAIN
from tests.web.conftest import EVIL, Front

STYLE = Style("Helvetica", 10, 1.3, "bold", "none", False, 14.0, 1)


def statement(title: str, *rows: tuple[str, ...]) -> Canvas:
    """A page with a heading, and a table of a label and two numbers in each row."""
    canvas = Canvas(STYLE)
    canvas.text(60, 60, title, 18)
    for index, (label, *values) in enumerate(rows):
        y = 100 + 14 * index
        canvas.text(60, y, label, 10)
        for x, value in zip((400, 500), values, strict=False):
            canvas.right(x, y, value, 10)
    return canvas


def take_in(front: Front, *pages: Canvas) -> int:
    front.shelf.put("report.pdf", reports.file_of(STYLE, pages))
    front.shelf.ingest(settings=PLAIN)
    return int(front.shelf.document("report.pdf").id)


SALES = (("", "2021", "2020"), ("Sales", "1,204", "(97)"), ("Costs", "800", "750"))
ASSETS = (("", "2021", "2020"), ("Cash", "31", "29"), ("Debt", "12", "14"))


def test_a_page_shows_its_tables_as_tables_and_where_each_cell_is(each_front: Front):
    document_id = take_in(each_front, statement("Income", *SALES))
    page = each_front.visitor("viewer").get(f"/documents/{document_id}")
    assert "<th" in page.source
    assert ">1,204</td>" in page.source
    [box] = [
        value
        for tag, name, value in page.attributes
        if (tag, name) == ("td", "data-box")
        and f'data-box="{value}" class="num">1,204<' in page.source
    ]
    x, y, width, height = map(float, box.split())
    # Its right edge is where the number was drawn to, its box around the line.
    assert abs(x + width - 400) < 3
    assert y < 114 < y + height + 12
    assert 'class="table"' in page.source


def test_all_tables_are_listed_with_their_pages_and_only_those_of_the_page_have_boxes(
    front: Front,
):
    document_id = take_in(front, statement("Income", *SALES), statement("Balance", *ASSETS))
    page = front.visitor("viewer").get(f"/documents/{document_id}?view=tables&page=2")
    assert [word for word in ("1,204", "Cash") if word in page.text] == ["1,204", "Cash"]
    assert [link for link in page.links if "view=structure" in link and "page=1" in link]
    before, _, after = page.source.partition("Page 2</a>")
    assert "data-box" not in before
    assert "data-box" in after


def test_the_outline_leads_to_pages(front: Front):
    document_id = take_in(front, statement("Income", *SALES), statement("Balance", *ASSETS))
    page = front.visitor("viewer").get(f"/documents/{document_id}?view=outline")
    assert "Income 1 Balance 2" in page.text
    assert [link for link in page.links if f"/documents/{document_id}?page=2" in link]


def test_a_query_shows_the_plain_text_in_which_it_is_marked(front: Front):
    document_id = take_in(front, statement("Income", *SALES))
    page = front.visitor("viewer").get(f"/documents/{document_id}?q=sales")
    assert "<mark>Sales</mark>" in page.source
    assert "<th" not in page.source.partition('class="views"')[2].partition("</section>")[0]


def test_markup_of_a_document_is_text(front: Front):
    front.shelf.put("evil.html", f"<h1>&lt;script&gt;x</h1><table><tr><th>a<td>{'&lt;b&gt;'}"
                    "<tr><th>c<td>d</table>".encode())  # fmt: skip
    front.shelf.put("evil.md", f"# {EVIL}\n\n| a | b |\n|---|---|\n| {EVIL} | 1 |\n".encode())
    front.shelf.ingest(settings=PLAIN)
    for name in ("evil.html", "evil.md"):
        document_id = front.shelf.document(name).id
        for view in ("structure", "tables", "outline"):
            page = front.visitor("viewer").get(f"/documents/{document_id}?view={view}")
            assert "<script>alert" not in page.source
            assert "<b>" not in page.source
            assert "<img src=x" not in page.source


def test_a_long_table_is_cut_and_says_so(front: Front):
    rows = [f"row {n},{n},{2 * n}" for n in range(2_000)]
    front.shelf.put("long.csv", "\n".join(["name,one,two", *rows]).encode())
    front.shelf.ingest(settings={**PLAIN, "row_size": 5_000})
    document_id = front.shelf.document("long.csv").id
    page = front.visitor("viewer").get(f"/documents/{document_id}")
    shown = page.source.partition('class="blocks"')[2].partition("</section>")[0].count("<tr>")
    assert shown == structure.MOST_CELLS // 3
    assert "more rows" in page.text


def test_a_page_too_long_for_its_structure_shows_its_text(front: Front):
    text = b"a b c d e f g h i j k l m n o p\n"
    front.shelf.put("long.txt", text * (MOST_CHARS // len(text) + 1))
    front.shelf.ingest(settings=PLAIN)
    document_id = front.shelf.document("long.txt").id
    page = front.visitor("viewer").get(f"/documents/{document_id}")
    assert "a b c d e f g h" in page.source.partition('class="prose"')[2]
