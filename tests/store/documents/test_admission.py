"""Promise G4: what a listing finds is indexed once, and what merely waits is never restarted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from quire.model.admission import KnownDocument, decide, reason_text
from quire.store import open_database
from quire.store.db.schema.documents import generations
from quire.store.documents import admission
from quire.store.queue import owners
from tests import documents
from tests.shelf import PLAIN, Shelf, open_shelf
from tests.store.stage import Stage


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def lose(shelf: Shelf, job_id: int) -> None:
    """Damage the queue as a careless hand would: a job vanishes, its documents stay locked."""
    shelf.stop(job_id)
    own = f"(SELECT id FROM tasks WHERE job_id = {job_id})"
    with shelf.db.begin() as conn:
        for table, column in (("steps", "task_id"), ("attempts", "task_id"), ("edges", "task_id")):
            conn.exec_driver_sql(f"DELETE FROM {table} WHERE {column} IN {own}")
        for table in ("events", "tasks"):
            conn.exec_driver_sql(f"DELETE FROM {table} WHERE job_id = {job_id}")
        conn.exec_driver_sql(f"UPDATE generations SET job_id = NULL WHERE job_id = {job_id}")
        conn.exec_driver_sql(f"DELETE FROM jobs WHERE id = {job_id}")


def test_files_that_are_not_known_are_new(shelf: Shelf):
    for name in ("a.txt", "b.md", "sub/c.txt"):
        shelf.put(name, f"The text of {name}.")
    job = shelf.submit()
    shelf.step()
    assert {
        row.name: (row.state, row.generation) for row in shelf.rows("documents")
    } == dict.fromkeys(("a.txt", "b.md", "c.txt"), ("queued", 1))
    assert len(shelf.tasks("document", state="ready")) == 3
    shelf.drain()
    assert shelf.listed(job) == {"new": 3}
    assert {row.state for row in shelf.rows("documents")} == {"success"}


def test_files_that_did_not_change_are_left_alone(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    again = shelf.ingest()
    assert shelf.listed(again) == {"unchanged": 1}
    assert shelf.job(again).state == "completed"
    assert len(shelf.tasks("document")) == 1
    assert shelf.document("a.txt").generation == 1


def test_a_file_whose_source_tells_of_other_content_is_indexed_anew(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.put("b.txt", "same")
    shelf.ingest()
    shelf.put("a.txt", "one and two")
    job = shelf.ingest()
    assert shelf.listed(job) == {"changed": 1, "unchanged": 1}
    assert (shelf.document("a.txt").generation, shelf.document("a.txt").live_generation) == (2, 2)
    assert shelf.texts("a.txt") == ["one and two"]
    assert shelf.generation("a.txt", 1).state == "replaced"
    assert shelf.document("b.txt").generation == 1


def test_a_failed_file_is_tried_when_it_has_changed(shelf: Shelf):
    shelf.put("a.pdf", b"%PDF-1.4 nothing more")
    first = shelf.ingest()
    assert shelf.job(first).state == "failed"
    assert shelf.listed(shelf.ingest()) == {"failed_before": 1}
    shelf.put("a.pdf", documents.pdf("mended at last"))
    assert shelf.listed(shelf.ingest()) == {"retried": 1}
    assert shelf.document("a.pdf").state == "success"
    assert shelf.document("a.pdf").error is None
    assert shelf.generation("a.pdf").why == "retried"


def test_a_forced_listing_indexes_what_did_not_change(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    assert shelf.listed(shelf.ingest(force=True)) == {"forced": 1}
    assert shelf.document("a.txt").live_generation == 2


def test_other_settings_index_what_did_not_change(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    assert shelf.listed(shelf.ingest(settings={**PLAIN, "chunk_tokens": 100})) == {"settings": 1}
    assert shelf.listed(shelf.ingest(settings={**PLAIN, "chunk_tokens": 100})) == {"unchanged": 1}


def test_a_setting_that_an_earlier_release_did_not_have_changes_nothing(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    with shelf.db.begin() as conn:
        stored = json.loads(shelf.generation("a.txt").settings)
        del stored["layout"]
        conn.execute(sa.update(generations).values(settings=admission.canonical_json(stored)))
    assert shelf.listed(shelf.ingest()) == {"unchanged": 1}
    assert shelf.listed(shelf.ingest(settings={**PLAIN, "layout": "x"})) == {"settings": 1}


def test_what_was_cancelled_before_it_was_ever_indexed_is_taken_by_the_next_listing(shelf: Shelf):
    shelf.put("a.txt", "one")
    job = shelf.submit()
    shelf.step()
    shelf.cancel(job)
    assert shelf.document("a.txt").state == "not_indexed"
    assert shelf.listed(shelf.ingest()) == {"not_indexed": 1}
    assert shelf.document("a.txt").state == "success"


@pytest.mark.parametrize(
    ("state", "patience", "skipped"), [("queued", 600, "waiting"), ("indexing", 2700, "running")]
)
def test_a_locked_document_without_an_open_task_is_taken_over_after_its_time(
    shelf: Shelf, state: str, patience: float, skipped: str
):
    shelf.put("a.pdf", documents.pdf(*[f"page {n}" for n in range(1, 31)]))
    lost = shelf.submit()
    shelf.step(1 if state == "queued" else 2)
    assert shelf.document("a.pdf").state == state
    lose(shelf, lost)
    shelf.clock.advance(patience - 1)
    job = shelf.submit()
    shelf.step()
    assert shelf.listed(job) == {skipped: 1}
    assert shelf.document("a.pdf").generation == 1
    shelf.clock.advance(2)
    job = shelf.ingest()
    assert shelf.listed(job) == {"takeover": 1}
    old, fresh = shelf.generation("a.pdf", 1), shelf.generation("a.pdf", 2)
    assert (old.state, old.error, fresh.state, fresh.why) == (
        "dropped", "overtaken", "live", "takeover",
    )  # fmt: skip
    assert len(shelf.texts("a.pdf")) == 30


@pytest.mark.parametrize(("steps", "why"), [(1, "waiting"), (2, "running")])
def test_a_document_with_an_open_task_is_never_taken_over(shelf: Shelf, steps: int, why: str):
    shelf.put("a.pdf", documents.pdf(*[f"page {n}" for n in range(1, 31)]))
    first = shelf.submit()
    shelf.step(steps)
    shelf.stop(first)  # whatever keeps it: a month of waiting is no reason
    shelf.clock.advance(30 * 86400)
    job = shelf.submit()
    shelf.step()
    assert shelf.listed(job) == {why: 1}
    shelf.resume(first)
    shelf.drain()
    assert shelf.document("a.pdf").live_generation == 1
    assert shelf.job(first).state == "completed"


def test_submitting_a_folder_every_ten_minutes_while_it_queues_restarts_nothing(shelf: Shelf):
    for n in range(5):
        shelf.put(f"{n}.txt", f"text {n}")
    shelf.submit()
    shelf.step()
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE tasks SET priority = 9 WHERE kind = 'ingest.document'")
    for _ in range(6 * 6):
        shelf.clock.advance(600)
        job = shelf.submit()
        shelf.step()
        assert shelf.listed(job) == {"waiting": 5}
        assert shelf.job(job).state == "completed"
    assert {row.generation for row in shelf.rows("documents")} == {1}
    assert len(shelf.tasks("document")) == 5
    shelf.drain()
    assert [(r.state, r.attempt) for r in shelf.tasks("document")] == [("done", 1)] * 5


def test_a_file_that_left_its_folder_is_marked_and_one_that_came_back_is_not(shelf: Shelf):
    shelf.put("a.txt", "one")
    path = shelf.put("b.txt", "two")
    shelf.ingest()
    shelf.clock.advance(60)
    path.rename(path.with_name(".hidden"))
    assert shelf.listed(shelf.ingest()) == {"unchanged": 1, "gone": 1}
    assert shelf.document("b.txt").gone_at is not None
    assert shelf.is_found("two")
    shelf.clock.advance(60)
    path.with_name(".hidden").rename(path)
    assert shelf.listed(shelf.ingest()) == {"unchanged": 2}
    assert shelf.document("b.txt").gone_at is None


def test_a_corpus_that_propagates_deletions_forgets_what_left_its_folder(shelf: Shelf):
    shelf.put("a.txt", "one")
    path = shelf.put("b.txt", "two")
    settings = {**PLAIN, "propagate_deletions": "true"}
    shelf.ingest(settings=settings)
    shelf.clock.advance(60)
    path.unlink()
    shelf.ingest(settings=settings)
    assert [row.name for row in shelf.rows("documents")] == ["a.txt"]
    assert not shelf.is_found("two")


def test_what_lies_in_a_folder_that_could_not_be_read_is_not_taken_for_gone(
    shelf: Shelf, tmp_path: Path
):
    # A folder that turned into a link back to its parent is left out by the listing.
    shelf.put("sub/a.txt", "one")
    settings = {**PLAIN, "propagate_deletions": "true"}
    shelf.ingest(settings=settings)
    shelf.clock.advance(60)
    (shelf.folder / "sub").rename(tmp_path / "aside")
    (shelf.folder / "sub").symlink_to(shelf.folder, target_is_directory=True)
    job = shelf.ingest(settings=settings)
    told = shelf.listed(job)
    assert told.pop("left_out_first")
    assert told == {"left_out": 1}
    assert shelf.document("a.txt").gone_at is None
    assert shelf.is_found("one")


def test_every_reason_code_has_words_for_people():
    known = KnownDocument(1, "success", 1, 1, "s", "x", False, 0.0)
    cases = [
        (None, "s", "x", False), (known, "s", "x", False), (known, "t", "x", False),
        (known, "s", "y", False), (known, "s", "x", True),
        (known._replace(state="failed"), "s", "x", False),
        (known._replace(state="not_indexed"), "s", "x", False),
        (known._replace(state="queued"), "s", "x", False),
        (known._replace(state="indexing", has_open_task=True), "s", "x", False),
        (known._replace(state="queued", since=-1000.0), "s", "x", False),
        (known._replace(state="failed"), "t", "x", False),
    ]  # fmt: skip
    found = [
        decide(k, seen, s, is_forced=f, retry_failed=False, now=1.0).why for k, seen, s, f in cases
    ]
    assert found == [
        "new", "unchanged", "changed", "settings", "forced", "failed_before", "not_indexed",
        "waiting", "running", "takeover", "retried",
    ]  # fmt: skip
    assert all(" " in reason_text(why) for why in found)


def test_two_listings_at_once_insert_each_document_once(pg_url: str):
    db = open_database(pg_url)
    stage = Stage(db)
    jobs = [stage.one(), stage.one()]
    with db.begin() as conn:
        owner = owners.lock_or_create(conn, "default", "ada")
    items = [admission.ListedFile(f"file:///d/{n}", f"{n}", "s") for n in range(300)]
    both = threading.Barrier(2)
    made: dict[int, list[admission.Admitted]] = {}

    def run(job: int) -> None:
        own = open_database(pg_url)
        own.clock = stage.clock
        both.wait()
        # One listing meets the items in the other order.
        some = items if job == jobs[0] else items[::-1]
        wish = admission.AdmissionRequest(owner, job, "file:///d", "{}")
        made[job] = own.write(lambda conn, now: admission.admit(conn, wish, some, now=now))
        own.close()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    taken = [[one.should_index for one in made[job]] for job in jobs]
    assert sorted(map(sum, taken)) == [0, 300]
    assert sorted({one.why for job in jobs for one in made[job]}) == ["new", "waiting"]
    assert len(stage.rows("documents")) == len(stage.rows("generations")) == 300
    db.close()
