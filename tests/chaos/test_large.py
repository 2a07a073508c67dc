"""The largest files that are taken in, whole; longer than a test may be that runs every time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.parse import markup
from tests import documents
from tests.shelf import Shelf, open_shelf

PAGES = 10_000
MOST_MEMORY = 400 << 20
READ = """
import json, re, sys
from pathlib import Path
from quire.parse import formats
from quire.parse.parser import ReadOptions
[page] = formats.read(Path(sys.argv[1]), "text/html", ReadOptions(), 1, 1)
# Not of getrusage, which begins with the memory of the process that started this one.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"length": len(page.text), "peak": peak}))
"""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path, is_examined=False)


def test_a_pdf_of_ten_thousand_pages_is_taken_in_whole(shelf: Shelf):
    shelf.put("a.pdf", documents.pdf(*(f"page number {n} of the ledger" for n in range(PAGES))))
    job = shelf.ingest()
    document = shelf.document("a.pdf")
    assert (document.state, document.pages, document.page_errors) == ("success", PAGES, 0)
    assert (shelf.job(job).state, shelf.job(job).progress) == ("completed", 1.0)
    assert len(shelf.tasks("range")) == -(-PAGES // 12)
    assert shelf.is_found(f"page number {PAGES - 1} of the ledger")


def test_html_just_below_the_limit_is_read_without_a_multiple_of_its_memory(tmp_path: Path):
    line = "<p>A line of prose &amp; of figures, number %08d, which goes on for a while.</p>\n"
    count = markup.MAX_BYTES // len(line % 0)
    path = tmp_path / "a.html"
    path.write_text("".join(line % n for n in range(count)))
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )
    told = json.loads(ran.stdout)
    assert told["length"] > 40 << 20
    assert told["peak"] < MOST_MEMORY
