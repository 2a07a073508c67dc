"""Files that fail: what they cost the job, and when they are tried again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import format
from quire.control import jobs, queries, uploads
from quire.control.explain.job import explain_job
from quire.demo import samples
from quire.errors import Conflict
from quire.fetch.blobs.backend import open_blobs
from tests import documents as files
from tests.shelf import Shelf, open_shelf


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def shown(shelf: Shelf, job_id: int) -> dict[str, Any]:
    return queries.job(shelf.app.caller, job_id)


def states(shelf: Shelf) -> dict[str, str]:
    return {row.name: row.state for row in shelf.rows("documents")}


def test_a_job_whose_files_partly_failed_is_completed_and_counts_them(shelf: Shelf):
    for name in ("a.txt", "b.txt"):
        shelf.put(name, f"words of {name}")
    shelf.put("bad.pdf", b"%PDF-1.4 cut off")
    job = shown(shelf, shelf.ingest())
    assert (job["state"], job["failed_files"], job["files"]["success"]) == ("completed", 1, 2)
    assert job["error"].startswith("1 of 3 files failed; the last: bad.pdf: ")
    assert job["progress"] == 1.0
    assert job["allowed"] == ["retry", "delete"]


def test_a_job_of_which_no_file_could_be_indexed_has_failed(shelf: Shelf):
    shelf.put("bad.pdf", b"%PDF-1.4 cut off")
    shelf.put("empty.txt", b"")
    job = shown(shelf, shelf.ingest())
    assert (job["state"], job["failed_files"]) == ("failed", 2)


def test_a_large_file_that_fails_alone_fails_its_job(shelf: Shelf):
    """Its first task is done when the pages were queued: that is no file that made it."""
    shelf.put("a.pdf", files.pdf(*[f"page {n}" for n in range(1, 31)]))
    job = shelf.submit()
    shelf.step(2)
    shelf.drain_with(lambda lease: "permanent" if lease.kind == "ingest.range" else None)
    assert shown(shelf, job)["state"] == "failed"


def test_a_job_whose_listing_failed_has_failed_whatever_was_indexed(shelf: Shelf):
    shelf.put("a.txt", "words")
    job = shelf.ingest(str(shelf.folder), str(shelf.folder / "missing"))
    assert shelf.document("a.txt").state == "success"
    assert shown(shelf, job)["state"] == "failed"


def test_the_failed_files_of_a_completed_job_can_be_retried(shelf: Shelf):
    shelf.put("a.txt", "words")
    path = shelf.put("b.txt", b"")
    job = shelf.ingest()
    path.write_text("now with words")
    shelf.retry(job)
    shelf.drain()
    after = shown(shelf, job)
    assert (after["state"], after["failed_files"], after["error"]) == ("completed", 0, None)
    assert after["allowed"] == ["delete"]
    with pytest.raises(Conflict):
        jobs.one(shelf.app.caller, "retry", job)


def test_a_bulk_retry_includes_completed_jobs_with_failed_files(shelf: Shelf):
    shelf.put("a.txt", "words")
    whole = shelf.ingest()
    shelf.put("c.txt", "more words")
    path = shelf.put("b.txt", b"")
    partly = shelf.ingest()
    path.write_text("now with words")
    caller = shelf.app.caller
    assert queries.count_jobs(caller, {"allowing": "retry"}) == 1
    assert jobs.in_bulk(caller, "retry", states=["failed"]) == 0
    assert jobs.in_bulk(caller, "retry", states=["completed"]) == 1
    shelf.drain()
    assert [shown(shelf, job)["failed_files"] for job in (whole, partly)] == [0, 0]
    assert states(shelf)["b.txt"] == "success"
    assert jobs.in_bulk(caller, "retry") == 0


def test_an_explanation_says_that_files_failed_and_how_to_retry_them(shelf: Shelf):
    shelf.put("a.txt", "words")
    shelf.put("b.txt", b"")
    job = shelf.ingest()
    found = explain_job(shelf.app.caller, job)
    assert format.job_state(found) == "completed with errors"
    assert found["text"] == "1 of 2 files failed."
    [failed] = [task for task in found["tasks"] if task["state"] == "failed"]
    assert f"quire job retry {job}" in failed["next"]
    with pytest.raises(Conflict, match="it is completed with errors; cannot stop it"):
        jobs.one(shelf.app.caller, "stop", job)


def test_a_failed_file_that_has_not_changed_is_tried_again_only_if_asked(shelf: Shelf):
    shelf.put("good.txt", "words")
    bad = shelf.put("bad.pdf", b"%PDF-1.4 cut off")
    shelf.ingest()
    second = shelf.ingest()
    assert shelf.listed(second) == {"failed_before": 1, "unchanged": 1}
    assert (shown(shelf, second)["state"], shelf.document("bad.pdf").generation) == ("completed", 1)
    assert shelf.listed(shelf.ingest(retry_failed=True)) == {"retried": 1, "unchanged": 1}
    assert shelf.document("bad.pdf").generation == 2
    bad.write_bytes(files.pdf("now whole"))
    assert shelf.listed(shelf.ingest())["retried"] == 1
    assert states(shelf) == {"good.txt": "success", "bad.pdf": "success"}


def test_a_failed_file_is_tried_again_when_the_settings_change(shelf: Shelf):
    shelf.put("scan.pdf", samples.pdf([samples.scanned_page(["hidden"])]))
    shelf.ingest()
    assert "1 of 1 pages are images and OCR is off" in shelf.document("scan.pdf").error
    changed = {"thumbnails": "false", "ocr": "never", "embedder": "none", "chunk_tokens": "80"}
    assert shelf.listed(shelf.ingest(settings=changed)) == {"retried": 1}


def test_one_empty_file_among_uploaded_ones_costs_one_file(shelf: Shelf):
    blobs = open_blobs(shelf.app.settings.for_children)
    received = []
    for number in range(13):
        part = blobs.part_path(f"upload {number}")
        content = b"" if number == 5 else f"words {number}".encode()
        part.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        received.append(uploads.UploadedFile(f"{number}.txt", digest, len(content), part))
    made = uploads.upload(shelf.app.caller, blobs, received, settings={"embedder": "none"})
    shelf.drain()
    job = shown(shelf, made["id"])
    assert (job["state"], job["failed_files"], job["files"]["success"]) == ("completed", 1, 12)
    assert "is empty (0 bytes)" in shelf.document("5.txt").error


@pytest.mark.parametrize(
    ("name", "content"),
    [("blank.pdf", samples.pdf([samples.PdfPage(b"")])), ("blank.txt", b" \n")],
)
def test_a_blank_page_is_a_success_without_text(shelf: Shelf, name: str, content: bytes):
    shelf.put(name, content)
    job = shown(shelf, shelf.ingest())
    row = shelf.document(name)
    assert (row.state, row.pages, row.chunks, row.error) == ("success", 1, 0, None)
    assert job["state"] == "completed"
