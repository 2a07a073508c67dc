"""The files of a job and documents one by one: counts, errors, another try, another generation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from quire import testing
from quire.control import documents, jobs, queries, uploads
from quire.control.caller import Caller
from quire.control.explain import document as explain_document
from quire.errors import Conflict, Gone, LeaseLost, NotFound
from quire.fetch.blobs.backend import open_blobs
from quire.model.outcomes import Lease
from quire.store.db import dialect
from quire.store.documents import reindex
from quire.store.queue import fenced
from quire.store.reports import documents as document_reports
from quire.store.reports import files, status
from quire.store.reports import jobs as job_reports
from tests import documents as made
from tests.shelf import PLAIN, Shelf, open_shelf

DOCUMENT = {
    "id", "name", "source", "media_type", "corpora", "state", "locked", "generation",
    "live_generation", "pages", "chunks", "page_errors", "error", "reused",
    "processing_started_at", "processing_finished_at", "uri", "size", "digest", "thumbnail",
    "metadata",
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def job(shelf: Shelf, job_id: int) -> dict[str, Any]:
    with shelf.db.read() as conn:
        found = job_reports.job(conn, "default", job_id, now=0.0)
    assert found is not None
    return found


def names(shelf: Shelf, job_id: int, **which: Any) -> list[str]:
    with shelf.db.read() as conn:
        return [f["name"] for f in files.page_of_files(conn, "default", job_id, **which)["items"]]


def explained(shelf: Shelf, name: str) -> dict[str, Any]:
    return explain_document.explain_document(shelf.app.caller, shelf.document(name).id)


def claimed(shelf: Shelf) -> Lease:
    [lease] = testing._claim(shelf.app, "default")
    return lease


# ---------------------------------------------------------------------- files of a job


def test_a_job_counts_its_files_and_says_how_many_failed(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.put("b.txt", "")
    shelf.put("c.txt", "three")
    job_id = shelf.submit()
    assert job(shelf, job_id)["files"] == {}
    shelf.step()
    listed = job(shelf, job_id)
    assert listed["files"] == {"pending": 3}
    assert not listed["is_listing"]
    shelf.drain()
    over = job(shelf, job_id)
    assert (over["state"], over["failed_files"]) == ("completed", 1)
    assert over["files"] == {"success": 2, "failed": 1}
    assert over["error"] == "1 of 3 files failed; the last: b.txt: is empty (0 bytes)."
    assert names(shelf, job_id, states=("failed",)) == ["b.txt"]
    assert names(shelf, job_id, worst_first=True) == ["b.txt", "a.txt", "c.txt"]


def test_a_file_with_page_errors_is_counted_apart(shelf: Shelf):
    shelf.put("book.pdf", made.pdf(*[f"page {n}" for n in range(1, 31)]))
    job_id = shelf.submit()
    pages = {7}
    shelf.drain_with(
        lambda lease: (
            "crashed"
            if lease.from_page and pages & set(range(lease.from_page, (lease.to_page or 0) + 1))
            else None
        )
    )
    found = job(shelf, job_id)
    assert found["files"] == {"success": 1}
    assert found["files_with_errors"] == 1
    assert names(shelf, job_id, with_errors=True) == ["book.pdf"]
    one = queries.document(shelf.app.caller, shelf.document("book.pdf").id)
    [error] = one["page_errors"]
    assert error["page"] == 7
    assert error["kind"] == "crashed"
    assert error["command"] == f"quire document read {one['id']} --page 7"
    assert {"peak_rss", "seconds", "error"} <= set(error)
    assert "1 page" in explained(shelf, "book.pdf")["text"]


def test_files_are_listed_in_pages(shelf: Shelf):
    for number in range(5):
        shelf.put(f"{number}.txt", f"text {number}")
    job_id = shelf.ingest()
    with shelf.db.read() as conn:
        first = files.page_of_files(conn, "default", job_id, limit=3)
        rest = files.page_of_files(conn, "default", job_id, limit=3, cursor=int(first["next"]))
    assert [f["name"] for f in first["items"]] == ["0.txt", "1.txt", "2.txt"]
    assert [f["name"] for f in rest["items"]] == ["3.txt", "4.txt"]
    assert rest["next"] is None


def test_a_retry_runs_only_what_failed(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.put("b.txt", "")
    job_id = shelf.ingest()
    shelf.put("b.txt", "now it has text")
    shelf.retry(job_id)
    assert job(shelf, job_id)["files"] == {"pending": 1, "success": 1}
    shelf.drain()
    assert job(shelf, job_id)["state"] == "completed"
    assert job(shelf, job_id)["files"] == {"success": 2}
    assert shelf.document("a.txt").generation == 1
    assert shelf.document("b.txt").generation == 2
    assert shelf.generation("b.txt").why == "retried"


def test_one_failed_file_is_tried_again_and_the_others_are_left(shelf: Shelf):
    for name in ("a.txt", "b.txt"):
        shelf.put(name, "")
    job_id = shelf.ingest()
    shelf.put("a.txt", "now it has text")
    one = shelf.document("a.txt").id
    jobs.retry(shelf.app.caller, [job_id], document_id=one)
    shelf.drain()
    found = job(shelf, job_id)
    assert found["state"] == "completed"
    assert found["files"] == {"success": 1, "failed": 1}
    assert found["error"].startswith("1 of 2 files failed; the last: ")
    assert shelf.document("b.txt").generation == 1
    with pytest.raises(Conflict, match="it did not fail in job"):
        jobs.retry(shelf.app.caller, [job_id], document_id=one)


def test_a_failed_file_is_tried_again_while_its_job_is_at_work(shelf: Shelf):
    shelf.put("a.txt", "")
    shelf.put("b.txt", "two")
    job_id = shelf.submit()
    shelf.step(2)
    one = shelf.document("a.txt")
    assert one.state == "failed"
    shelf.put("a.txt", "now it has text")
    jobs.retry(shelf.app.caller, [job_id], document_id=one.id)
    shelf.drain()
    assert job(shelf, job_id)["state"] == "completed"
    assert job(shelf, job_id)["files"] == {"success": 2}


def test_a_cancelled_job_has_cancelled_files(shelf: Shelf):
    shelf.put("a.txt", "one")
    job_id = shelf.submit()
    shelf.step()
    shelf.cancel(job_id)
    assert job(shelf, job_id)["files"] == {"cancelled": 1}
    assert explained(shelf, "a.txt")["code"] == "not_indexed"


def test_what_is_at_work_is_shown_with_its_pages(shelf: Shelf):
    shelf.put("book.pdf", made.pdf(*[f"page {n}" for n in range(1, 31)]))
    job_id = shelf.submit()
    shelf.step(3)  # the listing, the split, and one range
    lease = claimed(shelf)
    with shelf.db.read() as conn:
        [each] = files.at_work(conn, job_id)
    assert (each["name"], each["pages"], each["of"]) == ("book.pdf", 12, 30)
    assert job(shelf, job_id)["files"] == {"indexing": 1}
    testing._run(shelf.app, lease)
    shelf.drain()


# ---------------------------------------------------------------------- documents


def test_a_document_has_the_shape_that_is_promised(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest(corpus="tales")
    with shelf.db.read() as conn:
        [listed] = document_reports.page_of_documents(conn, "default")["items"]
    shown = queries.document(shelf.app.caller, listed["id"])
    assert set(listed) >= DOCUMENT
    assert set(shown) >= DOCUMENT
    assert listed["page_errors"] == 0
    assert shown["page_errors"] == []
    assert (shown["state"], shown["locked"], shown["corpora"]) == ("success", False, ["tales"])
    assert (shown["size"], shown["pages"], shown["chunks"]) == (3, 1, 1)
    assert shown["reused"]["made"] == {"pages": 1}


def test_documents_are_filtered_and_listed_in_pages(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.put("b.txt", "")
    shelf.ingest(corpus="tales")

    def listed(**filters: Any) -> list[str]:
        with shelf.db.read() as conn:
            page = document_reports.page_of_documents(conn, "default", **filters)
        return [each["name"] for each in page["items"]]

    assert listed() == ["b.txt", "a.txt"]
    assert listed(states=["failed"]) == ["b.txt"]
    assert listed(corpus="tales", limit=1) == ["b.txt"]
    assert listed(corpus="other") == []
    assert listed(source=str(shelf.folder)) == ["b.txt", "a.txt"]
    with shelf.db.read() as conn:
        counts = status.documents(dialect.runner(conn), "default")
        assert document_reports.page_of_documents(conn, "other")["items"] == []
    assert counts["success"] == counts["failed"] == 1


def test_a_document_of_another_tenant_is_not_there(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    stranger = Caller(shelf.db, tenant="other", known=shelf.app.caller.known)
    for act in (
        lambda: queries.document(stranger, 1),
        lambda: documents.delete(stranger, 1),
        lambda: documents.reindex(stranger, 1, {}),
        lambda: documents.pages(stranger, 1),
        lambda: explain_document.explain_document(stranger, 1),
        lambda: queries.document(shelf.app.caller, 2**70),
    ):
        with pytest.raises(NotFound, match="no such document"):
            act()


def test_a_document_is_indexed_again_from_its_stored_bytes(shelf: Shelf):
    path = shelf.put("a.txt", "one two three")
    shelf.ingest()
    path.unlink()
    job_id = documents.reindex(shelf.app.caller, 1, {"chunk_tokens": "64"})
    assert shelf.document("a.txt").state == "queued"
    assert shelf.is_found("one two")
    shelf.drain()
    assert job(shelf, job_id)["state"] == "completed"
    assert job(shelf, job_id)["kind"] == "ingest"
    assert job(shelf, job_id)["files"] == {"success": 1}
    assert shelf.document("a.txt").live_generation == 2
    assert shelf.generation("a.txt").why == "forced"
    assert "chunk_tokens changed from 352 to 64" in explained(shelf, "a.txt")["reuse"]


def test_settings_of_its_own_stay_with_a_document(shelf: Shelf):
    shelf.put("a.txt", "one two three")
    shelf.ingest()
    documents.reindex(shelf.app.caller, 1, {"chunk_tokens": "64"})
    shelf.drain()
    again_id = shelf.ingest()
    assert shelf.listed(again_id) == {"unchanged": 1}
    changed = shelf.ingest(settings={**PLAIN, "overlap": "8"})
    assert shelf.listed(changed) == {"settings": 1}
    assert '"chunk_tokens":64' in shelf.generation("a.txt").settings
    assert '"overlap":8' in shelf.generation("a.txt").settings


def test_a_failed_document_is_fetched_again(shelf: Shelf):
    shelf.put("a.txt", "")
    shelf.ingest()
    shelf.put("a.txt", "now it has text")
    documents.reindex(shelf.app.caller, 1, {})
    shelf.drain()
    assert shelf.document("a.txt").state == "success"


def sent(shelf: Shelf, name: str, content: bytes) -> int:
    """Send a file as the API does; returns its job."""
    part = shelf.put(f"{name}.part", content)
    digest = hashlib.sha256(content).hexdigest()
    one = uploads.UploadedFile(name, digest, len(content), part)
    blobs = open_blobs({"home": shelf.app.settings.home})
    made = uploads.upload(shelf.app.caller, blobs, [one], settings=PLAIN)
    shelf.drain()
    return int(made["id"])


def letter(attached: bytes) -> bytes:
    mail = EmailMessage()
    mail["Subject"] = "see the file"
    mail.set_content("It is attached.")
    mail.add_attachment(attached, maintype="application", subtype="pdf", filename="broken.pdf")
    return bytes(mail)


@pytest.mark.parametrize("is_mail", [False, True])
def test_a_file_sent_here_is_read_again_after_its_tasks_were_pruned(shelf: Shelf, is_mail: bool):
    broken = made.pdf("one", "two")[:300]
    content = letter(broken) if is_mail else broken
    job_id = sent(shelf, "letter.eml" if is_mail else "broken.pdf", content)
    [row] = [each for each in shelf.rows("documents") if each.name.endswith("broken.pdf")]
    assert row.state == "failed"
    jobs.delete(shelf.app.caller, [job_id])
    assert shelf.rows("tasks") == []
    second = documents.reindex(shelf.app.caller, row.id, {})
    shelf.drain()
    [task] = shelf.tasks("document", job_id=second)
    told = json.loads(task.payload)
    assert (told["digest"], told["size"]) == (hashlib.sha256(broken).hexdigest(), len(broken))
    assert shelf.generation(row.name).error == row.error
    shelf.assert_healthy()


def test_a_file_sent_here_whose_bytes_were_lost_says_so(shelf: Shelf):
    job_id = sent(shelf, "broken.pdf", made.pdf("one")[:300])
    jobs.delete(shelf.app.caller, [job_id])
    for path in (Path(shelf.app.settings.home) / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    documents.reindex(shelf.app.caller, 1, {})
    shelf.drain()
    assert ": missing from" in str(shelf.document("broken.pdf").error)


def test_a_document_at_work_is_only_begun_anew_by_force(shelf: Shelf):
    shelf.put("a.txt", "one")
    job_id = shelf.submit()
    shelf.step()
    with pytest.raises(Conflict, match=f"queued by job {job_id}"):
        documents.reindex(shelf.app.caller, 1, {})
    assert len(shelf.rows("jobs")) == 1
    with pytest.raises(Conflict, match=f"quire job cancel {job_id}"):
        documents.delete(shelf.app.caller, 1)
    shelf.drain()


def test_a_newer_generation_ends_the_tasks_of_the_one_at_work(shelf: Shelf):
    """Promise G4: what runs for an older generation can write nothing more."""
    shelf.put("book.pdf", made.pdf(*[f"page {n}" for n in range(1, 31)]))
    first = shelf.submit()
    shelf.step(2)
    lease = claimed(shelf)
    second = documents.reindex(shelf.app.caller, 1, {}, force=True)
    old = [t for t in shelf.rows("tasks", job_id=first) if t.document_id]
    assert {t.state for t in old} == {"done", "skipped"}
    assert {t.error for t in old if t.state == "skipped"} == {reindex.WHY}
    [task] = [t for t in old if t.id == lease.task_id]
    assert task.fence == lease.fence + 1
    with (
        pytest.raises(LeaseLost),
        fenced.ending(shelf.db, lease.task_id, lease.fence, began_at=0.0, worker_id=None),
    ):
        pass
    assert job(shelf, first)["state"] == "completed"
    assert job(shelf, first)["files"] == {"cancelled": 1}
    assert shelf.generation("book.pdf", 1).state == "dropped"
    shelf.drain()
    assert job(shelf, second)["state"] == "completed"
    assert shelf.document("book.pdf").live_generation == 2
    assert len(shelf.texts("book.pdf")) == 30


def test_a_deleted_document_leaves_nothing_to_find(shelf: Shelf):
    shelf.put("a.txt", "one two three")
    shelf.ingest()
    documents.delete(shelf.app.caller, 1)
    assert shelf.rows("leaves") == shelf.rows("generations") == []
    assert not shelf.is_found("one")
    with pytest.raises(NotFound):
        queries.document(shelf.app.caller, 1)
    assert shelf.listed(shelf.ingest()) == {"new": 1}


def test_the_original_and_its_pages_are_given_back(shelf: Shelf, tmp_path: Path):
    from quire.fetch.blobs.backend import open_blobs

    content = made.pdf("first page here", "second page here")
    shelf.put("book.pdf", content)
    shelf.put("empty.txt", "")
    shelf.ingest()
    caller, blobs = shelf.app.caller, open_blobs({"home": shelf.app.settings.home})
    one = shelf.document("book.pdf").id
    assert documents.save(caller, blobs, one, tmp_path).read_bytes() == content
    assert [p["words"] for p in documents.pages(caller, one)["items"]] == [3, 3]
    [first, second] = documents.tokens(caller, one, 1)
    assert [t["text"] for t in second["tokens"]] == ["second", "page", "here"]
    assert first["page"]["index"] == 0
    assert documents.tokens(caller, one, 2)["v"] == 2
    read = documents.read_page(caller, blobs, one, 2)
    assert getattr(read.page, "text", "").split() == ["second", "page", "here"]
    with pytest.raises(NotFound, match="no page 9"):
        documents.read_page(caller, blobs, one, 9)
    # What could not be read is given back too; what waits to be fetched is not here yet.
    broken = documents.save(caller, blobs, shelf.document("empty.txt").id, tmp_path)
    assert (broken.name, broken.read_bytes()) == ("empty.txt", b"")
    shelf.put("later.txt", "text")
    shelf.submit()
    shelf.step()
    with pytest.raises(Gone, match="never fetched"):
        documents.save(caller, blobs, shelf.document("later.txt").id, tmp_path)


def test_explain_says_what_a_document_waits_for_and_why(shelf: Shelf):
    shelf.put("a.txt", "one")
    job_id = shelf.submit()
    shelf.step()
    waiting = explained(shelf, "a.txt")
    assert waiting["state"] == "queued"
    assert f"by job {job_id}" in waiting["text"]
    assert waiting["why"] == "First indexed as version 1."
    shelf.stop(job_id)
    assert f"quire job resume {job_id}" in explained(shelf, "a.txt")["next"]
    shelf.resume(job_id)
    shelf.drain()
    assert "searchable: 1 page, 1 chunk." in explained(shelf, "a.txt")["text"]
    shelf.put("a.txt", "other bytes, and more of them")
    shelf.ingest()
    changed = explained(shelf, "a.txt")
    assert "because the file has changed" in changed["why"]
    assert "the file has changed since version 1" in changed["reuse"]
    documents.reindex(shelf.app.caller, 1, {})
    shelf.drain()
    assert explained(shelf, "a.txt")["reuse"].startswith("Everything was reused")
