"""Promises G5, G9 and G11 over whole documents: what is taken in, what is reused, what is told."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from quire.control import documents as verbs
from quire.control import jobs
from quire.demo import samples
from quire.fetch.blobs.backend import open_blobs
from tests import documents
from tests.shelf import FUSED, PLAIN, Shelf, open_shelf

PROSE = "The harbour master writes the tides into a ledger. " * 40


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


@pytest.fixture
def huge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """A shelf whose index is too large for the doctor to look at every chunk of it here."""
    yield from open_shelf(request, tmp_path, is_examined=False)


def book(count: int, **changed: str) -> bytes:
    """A PDF of pages that differ, with some pages changed (p7="other words")."""
    texts = {f"p{n}": f"Page {n} of the book. {PROSE}" for n in range(1, count + 1)} | changed
    return documents.pdf(*texts.values())


def message(*attached: tuple[str, bytes]) -> bytes:
    made = EmailMessage()
    made["Subject"] = "The copper wire"
    made.set_content("See what is attached about the pilots.")
    for name, content in attached:
        made.add_attachment(content, "application", "octet-stream", filename=name)
    return made.as_bytes()


# --------------------------------------------------------------------- every kind of file


def test_the_sample_documents_end_as_they_should(shelf: Shelf):
    samples.make(shelf.folder)
    job = shelf.ingest()
    states = {row.name: row.state for row in shelf.rows("documents")}
    assert {name for name, state in states.items() if state == "failed"} == {
        "broken.pdf", "protected.pdf", "scanned-letters.pdf",
    }  # fmt: skip
    assert set(states.values()) == {"success", "failed"}
    assert shelf.document("manifest.csv").parent_id == shelf.document("message.eml").id
    assert shelf.job(job).state == "completed"
    assert shelf.is_found("Notice to passengers")
    reasons = {row.name: row.error for row in shelf.rows("documents") if row.error}
    assert all(error.startswith((f"{name}: ", "No text found")) for name, error in reasons.items())


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.pdf", b"", "is empty (0 bytes)"),
        ("empty.txt", b"", "is empty (0 bytes)"),
        ("cut.pdf", book(3)[:400], "is damaged or cut off"),
        ("locked.pdf", samples.protected(book(1), "tide"), "is protected by a password"),
        ("thing.bin", bytes(range(256)) * 8, "is not supported"),
        ("scan.pdf", samples.pdf([samples.scanned_page(["tide"])]), "No text found"),
        ("bomb.docx", documents.docx_with_entities(), "bomb.docx: "),
    ],
)
def test_a_file_that_cannot_be_read_fails_with_a_plain_reason_and_the_rest_goes_on(
    shelf: Shelf, name: str, content: bytes, words: str
):
    shelf.put(name, content)
    shelf.put("good.txt", "good words")
    job = shelf.ingest()
    bad = shelf.document(name)
    assert (bad.state, bad.live_generation) == ("failed", None)
    assert words in bad.error
    assert bad.error.startswith((name, "No text"))
    assert shelf.document("good.txt").state == "success"
    assert shelf.job(job).state == "completed"
    [task] = [row for row in shelf.tasks("document") if row.state == "failed"]
    assert task.attempt == 1  # what will fail again is not tried again


def test_a_file_with_the_wrong_extension_is_read_for_what_it_is(shelf: Shelf):
    shelf.put("report.txt", book(2))
    shelf.put("page.pdf", "<!doctype html><html><body><p>a page of the web</p></body></html>")
    shelf.put("sheet.docx", samples.xlsx({"S": [["cargo", "tonnes"], ["slate", 3.0]]}))
    shelf.ingest()
    found = shelf.rows("documents")
    assert {row.name: row.media_type.rpartition(".")[2] for row in found} == {
        "report.txt": "application/pdf", "page.pdf": "text/html", "sheet.docx": "sheet",
    }  # fmt: skip
    assert {row.state for row in found} == {"success"}


def test_hostile_names_are_taken_in_and_lead_nowhere(shelf: Shelf):
    names = [
        b"line\nbreak.txt", "naïve-名前-\U0001f600.txt".encode(), b"x" * 251 + b".txt",
        b"not-utf8-\xff.txt", b"dots..txt", b"%2e%2e.txt", b"a'b\"c;--.txt", b"tab\t.txt",
        b"\xe2\x80\xaertl.txt",
    ]  # fmt: skip
    for number, name in enumerate(names):
        (shelf.folder / os.fsdecode(name)).write_text(f"words of file {number}")
    job = shelf.ingest()
    rows = shelf.rows("documents")
    assert shelf.listed(job) == {"new": len(names)}
    assert {row.state for row in rows} == {"success"}
    assert all("\n" not in row.name and "/" not in row.name for row in rows)
    assert all(row.uri.startswith("file://") and row.uri.isascii() for row in rows)
    assert shelf.listed(shelf.ingest()) == {"unchanged": len(names)}


def test_characters_that_databases_refuse_are_replaced(shelf: Shelf):
    shelf.put("a.md", b"half a character \xed\xa0\x80 end")
    shelf.put("b.html", "<p>zero &#0; and half &#xd800; here</p>")
    shelf.ingest()
    assert {row.state for row in shelf.rows("documents")} == {"success"}
    assert "\x00" not in "".join(shelf.texts("a.md") + shelf.texts("b.html"))
    # Cutting the stored text once more finds the same chunks.
    chunks = len(shelf.rows("chunks"))
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("DELETE FROM slices")
    shelf.ingest(force=True, settings={**PLAIN, "page_size": 11, "chunk_tokens": 300})
    assert len(shelf.rows("chunks")) == chunks


@pytest.mark.parametrize("huge", ["sqlite", "postgres"], indirect=True)
def test_a_text_with_more_chunks_than_a_statement_has_parameters_is_taken_in(huge: Shelf):
    shelf = huge
    lines = [f"entry {n} {'abcdefghij'[n % 10] * 12}" for n in range(40_000)]
    shelf.put("a.txt", "\n\n".join(lines))
    shelf.ingest(settings={**PLAIN, "chunk_tokens": 16, "overlap": 0, "delimiter": "\n\n"})
    document = shelf.document("a.txt")
    assert document.state == "success", document.error
    assert document.chunks > 33_000
    assert shelf.ledger("a.txt")["pages_made"] == 1


# --------------------------------------------------------------------- files on the move


def test_a_file_that_vanishes_between_listing_and_fetch_fails_with_that_reason(shelf: Shelf):
    path = shelf.put("a.txt", "one")
    shelf.put("b.txt", "two")
    shelf.submit()
    shelf.step()
    path.unlink()
    shelf.drain()
    assert shelf.document("a.txt").state == "failed"
    assert "the file no longer exists" in shelf.document("a.txt").error
    assert shelf.document("b.txt").state == "success"


def test_a_file_that_changes_between_listing_and_fetch_is_taken_as_it_is_then(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.submit()
    shelf.step()
    shelf.put("a.txt", "one and more")
    shelf.drain()
    assert shelf.texts("a.txt") == ["one and more"]
    # The next listing sees another size than the first one did; the bytes are known by then.
    assert shelf.listed(shelf.ingest()) == {"changed": 1}
    assert shelf.ledger("a.txt") == {"pages_reused": 1, "whole_reused": 1}


def test_a_file_that_became_a_folder_fails_and_the_rest_goes_on(shelf: Shelf):
    path = shelf.put("a.txt", "one")
    shelf.submit()
    shelf.step()
    path.unlink()
    path.mkdir()
    shelf.drain()
    assert shelf.document("a.txt").state == "failed"
    assert "a.txt: " in shelf.document("a.txt").error


def test_bytes_that_changed_on_the_disk_are_an_error_and_a_retry_fetches_them_again(shelf: Shelf):
    shelf.put("a.pdf", book(30))
    job = shelf.submit()
    shelf.step(3)
    [content] = shelf.rows("contents")
    blob = open_blobs({"home": shelf.app.settings.home}).path(content.digest)
    good = blob.read_bytes()
    blob.chmod(0o644)
    blob.write_bytes(good[:-1] + b"X")
    shelf.drain()
    assert shelf.document("a.pdf").state == "failed"
    assert "the stored bytes have changed" in shelf.document("a.pdf").error
    shelf.retry(job)
    shelf.drain()
    assert shelf.document("a.pdf").state == "success", shelf.document("a.pdf").error
    assert blob.read_bytes() == good
    assert len(shelf.texts("a.pdf")) == 30


# --------------------------------------------------------------------- messages


def test_what_is_attached_to_a_message_becomes_documents_of_their_own(shelf: Shelf):
    shelf.put(
        "m.eml",
        message(("wire.txt", b"copper wire"), ("plan.pdf", book(2)), ("bad.pdf", b"%PDF-1")),
    )
    job = shelf.ingest()
    parent = shelf.document("m.eml")
    children = {row.name: row for row in shelf.rows("documents", parent_id=parent.id)}
    assert {name: row.state for name, row in children.items()} == {
        "wire.txt": "success", "plan.pdf": "success", "bad.pdf": "failed",
    }  # fmt: skip
    assert children["plan.pdf"].pages == 2
    assert children["wire.txt"].uri == f"{parent.uri}#1/wire.txt"
    assert shelf.is_found("copper wire")
    assert len(shelf.tasks("document", job_id=job)) == 4
    again = shelf.ingest(force=True)
    # The message and the child that failed; the others are the same as before.
    assert len(shelf.tasks("document", job_id=again)) == 2


def test_what_is_not_attached_any_more_is_marked_as_gone(shelf: Shelf):
    shelf.put("m.eml", message(("one.txt", b"one one"), ("two.txt", b"two two")))
    shelf.ingest()
    shelf.put("m.eml", message(("one.txt", b"one one")))
    shelf.ingest()
    assert shelf.document("one.txt").gone_at is None
    assert shelf.document("two.txt").gone_at is not None


def test_hostile_names_of_attachments_lead_nowhere(shelf: Shelf):
    sent = message(("../../etc/passwd", b"root words"), ("NAME.txt", b"two words"))
    shelf.put("m.eml", sent.replace(b'filename="NAME.txt"', b"filename*=utf-8''a%0A%2Fb%00.txt"))
    shelf.ingest()
    parent = shelf.document("m.eml")
    names = {row.name for row in shelf.rows("documents", parent_id=parent.id)}
    assert len(names) == 2
    assert all("/" not in name and "\n" not in name for name in names)


# --------------------------------------------------------------------- reuse


def test_the_same_bytes_at_two_places_are_read_once_and_stay_two_documents(shelf: Shelf):
    shelf.put("a.pdf", book(5))
    shelf.put("sub/b.pdf", book(5))
    shelf.ingest()
    first, second = shelf.document("a.pdf"), shelf.document("b.pdf")
    assert first.digest == second.digest
    assert shelf.texts("a.pdf") == shelf.texts("b.pdf")
    assert len(shelf.rows("pages")) == 5
    assert shelf.ledger("a.pdf") == {"pages_made": 5}
    assert shelf.ledger("b.pdf") == {"pages_reused": 5, "whole_reused": 1}
    shelf.put("sub/b.pdf", book(5, p1="another start"))
    shelf.ingest()
    assert shelf.texts("a.pdf")[0] != shelf.texts("b.pdf")[0] == "another start"


def test_one_edited_page_of_sixty_costs_one_page(shelf: Shelf):
    shelf.put("a.pdf", book(60))
    shelf.ingest(settings=FUSED)
    before = shelf.ledger("a.pdf")
    assert before["pages_made"] == 60
    shelf.put("a.pdf", book(60, p37="an edited page"))
    shelf.ingest(settings=FUSED)
    assert shelf.ledger("a.pdf") == {"pages_made": 1, "pages_reused": 59, "vectors_made": 1}
    assert shelf.tasks("range", generation=2) == []  # the task that found it has read it
    assert shelf.texts("a.pdf")[36] == "an edited page"
    assert len(shelf.rows("pages")) == 61


def test_a_page_put_in_front_of_others_costs_one_page(shelf: Shelf):
    texts = [f"page {n} of {PROSE}" for n in range(1, 31)]
    shelf.put("a.pdf", documents.pdf(*texts))
    shelf.ingest()
    shelf.put("a.pdf", documents.pdf("in front", *texts))
    shelf.ingest()
    assert shelf.ledger("a.pdf") == {"pages_made": 1, "pages_reused": 30}
    assert shelf.texts("a.pdf")[0] == "in front"


@pytest.mark.parametrize("name", ["a.pdf", "long.pdf", "a.html", "a.csv", "a.pptx"])
def test_another_chunk_size_cuts_anew_and_reads_no_page(shelf: Shelf, name: str):
    files = {
        "a.pdf": book(4), "long.pdf": book(20), "a.html": f"<p>{PROSE}</p>".encode(),
        "a.csv": "".join(f"row {n},{PROSE}\n" for n in range(20)).encode(),
        "a.pptx": samples.pptx([["One", PROSE], ["Two", PROSE]]),
    }  # fmt: skip
    shelf.put(name, files[name])
    shelf.ingest()
    pages, chunks = len(shelf.rows("pages")), shelf.document(name).chunks
    shelf.ingest(settings={**PLAIN, "chunk_tokens": 64, "overlap": 8})
    assert shelf.document(name).chunks > chunks
    assert len(shelf.rows("pages")) == pages
    ledger = shelf.ledger(name)
    assert "pages_made" not in ledger
    assert ledger["pages_reused"] == pages


@pytest.mark.parametrize("pages", [4, 20])
def test_another_embedder_reads_no_page_and_the_first_one_is_taken_over_whole(
    shelf: Shelf, pages: int
):
    shelf.put("a.pdf", book(pages))
    shelf.ingest(settings=FUSED)
    first = shelf.index()
    assert shelf.ledger("a.pdf")["vectors_made"] == len(shelf.rows("vectors")) > 0
    shelf.ingest(settings={**FUSED, "embedder": "none"})
    assert "pages_made" not in shelf.ledger("a.pdf")
    assert "vectors_made" not in shelf.ledger("a.pdf")
    shelf.ingest(settings=FUSED)
    assert shelf.ledger("a.pdf") == {"pages_reused": pages, "whole_reused": 1}
    assert shelf.index() == first
    assert len(shelf.rows("pages")) == pages


def test_chunks_that_are_the_same_on_two_pages_are_embedded_once(shelf: Shelf):
    shelf.put("a.txt", "the same words")
    shelf.put("b.md", "the same words")
    shelf.ingest(settings=FUSED)
    assert len(shelf.rows("chunks")) == len(shelf.rows("vectors")) == 1
    assert shelf.ledger("b.md")["vectors_reused"] == 1


def test_a_picture_that_was_recognised_is_not_recognised_again(shelf: Shelf):
    letter = samples.scanned_page(["The pilot boat leaves at dawn."])
    settings = {**PLAIN, "ocr": "auto"}
    shelf.put("a.pdf", samples.pdf([letter]))
    shelf.ingest(settings=settings)
    assert shelf.ledger("a.pdf") == {"ocr_made": 1}
    assert "pilot boat" in shelf.texts("a.pdf")[0]
    # The same picture in another file, on a page that has an entry more.
    shelf.put("b.pdf", samples.pdf([letter._replace(more=b"/UserUnit 1")]))
    shelf.ingest(settings=settings)
    assert shelf.ledger("b.pdf") == {"ocr_reused": 1}
    assert shelf.texts("b.pdf") == shelf.texts("a.pdf")
    first, second = (row.blocks for row in shelf.rows("pages"))
    assert first == second and first  # found anew in the words that were recognised
    shelf.ingest(settings={**settings, "chunk_tokens": 64, "overlap": 8})
    assert shelf.ledger("a.pdf") == {"ocr_reused": 1}


# --------------------------------------------------------------------- stop, resume, retry


def test_a_stopped_job_resumes_with_what_is_pending_and_failed_only(shelf: Shelf):
    for n in range(4):
        shelf.put(f"{n}.txt", f"words {n}")
    broken = shelf.put("bad.pdf", b"%PDF-1.4")
    job = shelf.submit()
    shelf.step(4)
    done = {row.id: row.finished_at for row in shelf.tasks("document", state="done")}
    shelf.stop(job)
    assert shelf.step() == []
    broken.write_bytes(book(2))
    shelf.clock.advance(60)
    shelf.resume(job)
    shelf.drain()
    assert {row.state for row in shelf.rows("documents")} == {"success"}
    assert {i: row.finished_at for row in shelf.tasks("document") if (i := row.id) in done} == done
    assert shelf.job(job).state == "completed"


def test_a_document_stopped_between_its_ranges_goes_on_where_it_was(shelf: Shelf):
    shelf.put("a.pdf", book(48))
    job = shelf.submit()
    shelf.step(4)
    shelf.stop(job)
    assert shelf.document("a.pdf").state == "indexing"
    read = {row.key: row.task_id for row in shelf.rows("pages")}
    assert len(read) == 24
    shelf.resume(job)
    shelf.drain()
    assert len(shelf.texts("a.pdf")) == 48
    assert {
        k: v for k, v in {r.key: r.task_id for r in shelf.rows("pages")}.items() if k in read
    } == read
    assert shelf.document("a.pdf").generation == 1


def test_a_mended_file_is_taken_in_by_a_retry_under_a_new_generation(shelf: Shelf):
    shelf.put("good.txt", "good words")
    shelf.put("a.pdf", b"%PDF-1.4")
    job = shelf.ingest()
    assert shelf.job(job).state == "completed"
    shelf.put("a.pdf", book(20))
    shelf.retry(job)
    shelf.drain()
    document = shelf.document("a.pdf")
    assert (document.state, document.generation, document.live_generation) == ("success", 2, 2)
    assert [shelf.generation("a.pdf", n).state for n in (1, 2)] == ["failed", "live"]
    assert shelf.job(job).state == "completed"
    assert shelf.job(job).error is None
    assert shelf.document("good.txt").generation == 1


def test_a_cancelled_job_that_is_retried_takes_its_files_in(shelf: Shelf):
    shelf.put("a.pdf", book(30))
    shelf.put("b.txt", "words")
    job = shelf.submit()
    shelf.step(3)
    shelf.cancel(job)
    shelf.drain()
    shelf.retry(job)
    shelf.drain()
    assert {row.state for row in shelf.rows("documents")} == {"success"}
    assert len(shelf.texts("a.pdf")) == 30


# --------------------------------------------------------------------- progress


def test_progress_is_monotonic_and_no_fraction_is_told_while_the_list_grows(shelf: Shelf):
    shelf.put("a.pdf", book(30))
    for n in range(3):
        shelf.put(f"{n}.txt", f"words {n}")
    job = shelf.submit()
    seen = [shelf.job(job).progress]
    shelf.step()
    assert shelf.job(job).progress < 1
    while shelf.step():
        seen.append(shelf.job(job).progress)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert seen[-2] < 1.0
    assert len(set(seen)) >= 6  # three texts and three ranges of pages


def test_a_document_that_is_ready_tells_so_once_per_generation(shelf: Shelf):
    shelf.put("a.txt", "words")
    shelf.ingest()
    shelf.ingest(force=True)
    told = [json.loads(row.detail) for row in shelf.rows("events", name="document.ready")]
    assert [(each["generation"], each["pages"]) for each in told] == [(1, 1), (2, 1)]


def test_a_file_that_failed_is_fetched_anew_though_its_job_is_deleted(shelf: Shelf):
    shelf.put("a.pdf", b"%PDF-1.4 and no more")
    job_id = shelf.ingest()
    assert shelf.document("a.pdf").state == "failed"
    jobs.delete(shelf.app.caller, [job_id])
    shelf.put("a.pdf", documents.pdf("A mended lantern."))
    verbs.reindex(shelf.app.caller, shelf.document("a.pdf").id, {})
    shelf.drain()
    assert shelf.document("a.pdf").state == "success"
    assert shelf.is_found("lantern")


def test_patterns_of_earlier_work_that_are_refused_today_still_choose(shelf: Shelf):
    """A job that waits, or a schedule, is not broken by an upgrade."""
    shelf.put("report [draft.txt", "A draft of the report.")
    shelf.put("other.txt", "Something else.")
    options = {"include": ["report [draft*"], "exclude": ["./tmp/*"]}
    shelf.ingest(options=options)
    assert [each.name for each in shelf.rows("documents")] == ["report [draft.txt"]
    assert shelf.document("report [draft.txt").state == "success"


def test_the_picture_of_a_first_page_is_drawn_again_when_that_page_changes_and_only_then(
    shelf: Shelf,
):
    pages = [f"Page {number} of the log." for number in range(1, 31)]
    drawn = {**PLAIN, "thumbnails": "true"}

    def picture() -> str:
        shelf.put("log.pdf", documents.pdf(*pages))
        shelf.clock.advance(60)
        shelf.ingest(settings=drawn)
        assert shelf.document("log.pdf").state == "success"
        return str(shelf.document("log.pdf").thumbnail)

    before = picture()
    pages[20] = "Another page twenty-one."
    assert picture() == before
    pages[0] = "Another first page, with much more to be seen on it."
    assert picture() != before
