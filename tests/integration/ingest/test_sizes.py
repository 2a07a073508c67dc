"""Large files through the pipeline: split where they can be, refused in plain words where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.demo import samples
from quire.parse import markup
from tests import documents
from tests.shelf import Shelf, open_shelf

ROWS = 1_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def sparse(content: bytes, size: int, path: Path) -> None:
    """Write the beginning of a file whose rest is a hole."""
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(size)


def test_a_table_of_a_million_rows_is_split_into_ranges_that_are_read_one_by_one(shelf: Shelf):
    with (shelf.folder / "a.csv").open("w") as file:
        file.write("port,tonnes\n")
        file.writelines(f"harbour,{n}\n" for n in range(2, ROWS + 1))
    job = shelf.submit()
    shelf.step(3)  # the listing, the file, and its first range
    ranges = shelf.tasks("range")
    assert len(ranges) == -(-ROWS // 3000)
    assert [row.state for row in ranges].count("done") == 1
    assert sum(row.cost for row in ranges) == pytest.approx(shelf.job(job).cost_total, rel=0.01)
    [page] = shelf.rows("pages")
    assert page.text.startswith("port\ttonnes\nharbour\t2\n")
    assert len(page.text.splitlines()) == 3000
    shelf.cancel(job)
    shelf.drain()


def test_files_that_are_too_large_fail_in_plain_words_and_the_rest_goes_on(shelf: Shelf):
    shelf.put("long.html", b"<!doctype html><p>x".ljust(markup.MAX_BYTES + 1))
    sparse(documents.pdf("words")[:200], 100 << 20, shelf.folder / "sparse.pdf")
    shelf.put("bomb.xlsx", documents.bomb(samples.xlsx({"S": [["x"]]}), 40 << 20))
    shelf.put("good.txt", "good words")
    job = shelf.ingest()
    errors = {row.name: row.error for row in shelf.rows("documents")}
    assert errors.pop("good.txt") is None
    assert "long.html: has 52,428,801 bytes of text (at most 52,428,800)" in errors["long.html"]
    assert errors["sparse.pdf"].startswith("sparse.pdf: is damaged or cut off")
    assert "bomb.xlsx: " in errors["bomb.xlsx"] and "times its size" in errors["bomb.xlsx"]
    assert (shelf.job(job).state, shelf.job(job).progress) == ("completed", 1.0)
