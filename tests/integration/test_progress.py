"""Promise G11 where files fail: what has ended, well or badly, is no longer outstanding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documents
from tests.shelf import Shelf, open_shelf

JUNK = b"%PDF-1.4 junk"


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def test_a_job_whose_files_failed_shows_all_of_its_work_as_ended(shelf: Shelf):
    shelf.put("a.pdf", JUNK)
    shelf.put("b.pdf", JUNK)
    job = shelf.ingest()
    assert (shelf.job(job).state, shelf.job(job).progress) == ("failed", 1.0)


def test_progress_grows_with_each_file_that_ends_well_or_badly(shelf: Shelf):
    for number in range(4):
        shelf.put(f"{number}.txt", f"words {number}")
        shelf.put(f"{number} bad.pdf", JUNK)
    job = shelf.submit()
    shelf.step()
    seen = []
    while shelf.step():
        seen.append(shelf.job(job).progress)
    assert seen == [number / 8 for number in range(1, 9)]


def test_a_large_document_that_fails_leaves_nothing_outstanding(shelf: Shelf):
    shelf.put("a.pdf", documents.pdf(*(f"page {n}" for n in range(30))))
    job = shelf.submit()
    shelf.step(2)
    shelf.drain_with(lambda lease: "permanent" if lease.kind == "ingest.swap" else None)
    assert shelf.document("a.pdf").state == "failed"
    assert (shelf.job(job).state, shelf.job(job).progress) == ("failed", 1.0)


def test_a_retry_makes_the_failed_files_outstanding_again(shelf: Shelf):
    for number in range(3):
        shelf.put(f"{number}.txt", f"words {number}")
    shelf.put("bad.pdf", JUNK)
    job = shelf.ingest()
    shelf.put("bad.pdf", documents.pdf("mended words"))
    shelf.retry(job)
    assert shelf.job(job).progress == 0.75
    shelf.drain()
    assert (shelf.job(job).state, shelf.job(job).progress) == ("completed", 1.0)


def test_the_failure_of_a_job_s_only_task_is_no_progress(shelf: Shelf):
    job = shelf.ingest(str(shelf.folder / "missing"), settings={"parser": "nobody's"})
    assert (shelf.job(job).state, shelf.job(job).progress) == ("failed", 0.0)


def test_jobs_of_an_earlier_quire_are_counted_anew_by_the_migration(shelf: Shelf):
    shelf.put("a.txt", "words")
    shelf.put("bad.pdf", JUNK)
    job = shelf.ingest()
    with shelf.db.begin() as conn:  # as version 8 counted: what failed was outstanding for ever
        conn.exec_driver_sql("UPDATE jobs SET state = 'failed', cost_done = 1, progress = 0.5")
        conn.exec_driver_sql("UPDATE meta SET value = '8' WHERE key = 'schema_version'")
    assert shelf.db.migrate()[0] == 9
    assert (shelf.job(job).cost_done, shelf.job(job).progress) == (2.0, 1.0)
