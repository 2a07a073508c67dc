"""Guards of documents that only a race or an unlikely order needs, each proved alone.

`tools/mutants.py` removes them one by one and runs these tests.
"""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from quire.clock import Instant
from quire.control import jobs as verbs
from quire.errors import Overtaken
from quire.ingest import document_words
from quire.model.pages import Page
from quire.model.records import About
from quire.store.db import dialect
from quire.store.db.schema.documents import documents
from quire.store.db.schema.documents import pages as pages_table
from quire.store.db.schema.queue import tasks
from quire.store.documents import (
    admission,
    failures,
    gc,
    generation_pages,
    generations,
    pages,
    reindex,
)
from quire.store.queue import fenced, job_actions, job_transition, owners
from quire.store.search import vectors
from tests.store.queue.test_concurrency import later
from tests.store.shelf import DIMENSIONS, SOURCE, Filing, Shelf
from tests.store.stage import Stage, ending


@pytest.fixture
def shelf(stage: Stage) -> Shelf:
    return Shelf(stage)


def newer(shelf: Shelf, filing: Filing) -> Filing:
    """Begin a newer generation of a document, by another task."""
    shelf.db.write(lambda conn, now: reindex.overtake(conn, filing.document_id, now=now))
    again = shelf.queue("a.txt")
    shelf.begin(again)
    assert (again.document_id, again.generation) == (filing.document_id, 2)
    return again


def state_of(shelf: Shelf, filing: Filing) -> tuple[str, int]:
    [row] = shelf.stage.rows("documents", id=filing.document_id)
    return row.state, row.generation


def test_the_failure_of_an_old_generation_leaves_the_newer_one_at_work(shelf: Shelf):
    old = shelf.queue("a.txt")
    shelf.begin(old)
    newer(shelf, old)
    with shelf.db.begin() as conn:
        failed = [(old.document_id, old.generation, "late")]
        assert failures.fail(conn, failed, now=shelf.stage.now()) == []
    assert state_of(shelf, old) == ("indexing", 2)


def test_the_cancelling_of_an_old_generation_leaves_the_newer_one_at_work(shelf: Shelf):
    old = shelf.queue("a.txt")
    shelf.begin(old)
    newer(shelf, old)
    with shelf.db.begin() as conn:
        failures.drop(conn, [(old.document_id, old.generation)], now=shelf.stage.now())
    assert state_of(shelf, old) == ("indexing", 2)


def test_a_generation_that_failed_writes_nothing_and_is_not_swapped_in(shelf: Shelf):
    filing = shelf.queue("a.txt")
    shelf.begin(filing)
    shelf.fill(filing, ["one"])
    with shelf.db.begin() as conn:
        failures.fail(conn, [(filing.document_id, 1, "broken")], now=shelf.stage.now())
    with shelf.db.begin() as conn, pytest.raises(Overtaken):
        generations.require_building(conn, filing.document_id, 1)
    with shelf.db.begin() as conn, pytest.raises(Overtaken):
        generations.swap(conn, filing.document_id, 1, now=shelf.stage.now())
    assert state_of(shelf, filing) == ("failed", 1)


def test_an_older_generation_is_not_swapped_in(shelf: Shelf):
    old = shelf.queue("a.txt")
    shelf.begin(old)
    shelf.fill(old, ["one"])
    newer(shelf, old)
    with shelf.db.begin() as conn, pytest.raises(Overtaken):
        generations.swap(conn, old.document_id, old.generation, now=shelf.stage.now())
    assert state_of(shelf, old) == ("indexing", 2)


def test_rows_that_an_earlier_release_gave_to_a_task_of_their_own_are_missed(shelf: Shelf):
    """They are not in the list of pages, which says of all others that they were not read."""
    filing = shelf.queue("a.csv")
    shelf.begin(filing)
    shelf.fill(filing, ["the first rows"])
    rows = shelf.stage.one()
    [lease] = shelf.stage.claim()
    shelf.stage.settle(ending(lease, "fail", "failed", error="the disk is full"))
    with shelf.db.begin() as conn:
        about = {"document_id": filing.document_id, "generation": 1, "from_page": 11, "to_page": 20}
        conn.execute(sa.update(tasks).where(tasks.c.job_id == rows).values(about))
        # A task of a document that has failed counts as done.
        conn.exec_driver_sql(f"UPDATE jobs SET cost_done = cost_total WHERE id = {rows}")
    assert shelf.swap(filing).failure == "Some rows were not read: the disk is full"
    assert state_of(shelf, filing) == ("failed", 1)


def test_a_blob_that_is_put_again_is_no_longer_marked(shelf: Shelf):
    shelf.put_content(b"some bytes")
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE contents SET condemned_at = 5")
    shelf.put_content(b"some bytes")
    assert [row.condemned_at for row in shelf.stage.rows("contents")] == [None]


def test_what_is_used_is_not_marked(shelf: Shelf):
    shelf.file("a.txt", "one")
    for kind in gc.COLLECTABLES:
        with shelf.db.begin() as conn:
            query = sa.select(kind.table.c.tenant, kind.name)
            keys = [(tenant, key) for tenant, key in conn.execute(query)]
            assert keys
            assert gc.mark(kind, keys, conn, shelf.stage.now()) == 0


def test_a_page_that_is_reused_is_no_longer_marked(shelf: Shelf):
    filing = shelf.file("a.txt", "one")
    again = shelf.queue("a.txt")
    shelf.begin(again)
    [entry] = shelf.stage.rows("leaves", document_id=filing.document_id)
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE pages SET condemned_at = 5")
        cut_id = generations.chunking_id(conn, "lines", "{}")
        model_id = vectors.register(conn, "toy", DIMENSIONS)
        missing = generation_pages.plan(
            conn, "default", again.document_id, again.generation, {1: entry.key},
            cut_id=cut_id, model_id=model_id,
        )  # fmt: skip
        marks = conn.scalars(sa.select(pages_table.c.condemned_at)).all()
        conn.rollback()
    assert (missing, marks) == ([], [None])


def test_an_overtaking_ends_a_task_that_was_added_meanwhile(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    filing = shelf.queue("a.txt")
    added = pg_stage.one()
    with pg_stage.db.begin() as conn:
        dialect.lock_rows(conn, documents, [filing.document_id])
        conn.exec_driver_sql(
            f"UPDATE tasks SET document_id = {filing.document_id}, generation = 1 "
            f"WHERE job_id = {added}"
        )

        def overtake(conn: sa.Connection, now: Instant) -> list[int]:
            job_transition.lock_all(conn, reindex.lock(conn, "default", filing.document_id))
            return reindex.overtake(conn, filing.document_id, now=now)

        thread, ended = later(lambda: pg_stage.db.write(overtake))
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert ended == [[filing.task_id, pg_stage.task(added).id]]
    assert pg_stage.task(added).state == "skipped"
    again = shelf.queue("a.txt")
    assert again.generation == 2


def test_a_listing_waits_for_another_one_of_its_tenant(pg_stage: Stage):
    jobs = pg_stage.many(2)
    files = [admission.ListedFile(f"file:///d/{n}", f"{n}", "s") for n in range(3)]

    def admit(conn: sa.Connection, now: Instant, job: int) -> list[admission.Admitted]:
        owner = owners.lock_or_create(conn, "default", f"user {job}")
        wish = admission.AdmissionRequest(owner, job, "file:///d", "{}")
        return admission.admit(conn, wish, files, now=now)

    with pg_stage.db.begin() as conn:
        first = admit(conn, pg_stage.now(), jobs[0])
        thread, second = later(lambda: pg_stage.db.write(partial(admit, job=jobs[1])))
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert [one.why for one in (*first, *second[0])] == ["new"] * 3 + ["waiting"] * 3
    assert len(pg_stage.rows("documents")) == 3


def test_a_listing_waits_for_a_swap_before_it_decides(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    filing = shelf.queue("a.txt")
    shelf.begin(filing)
    shelf.fill(filing, ["one"])
    job = pg_stage.one()
    counted = document_words.count(pg_stage.db, filing.document_id, 1)

    def admit() -> admission.Admitted:
        with pg_stage.db.begin() as conn:
            owner = owners.lock_or_create(conn, "default", "ada")
            request = admission.AdmissionRequest(owner, job, SOURCE, "{}")
            file = admission.ListedFile("a.txt", "a.txt", "changed")
            [one] = admission.admit(conn, request, [file], now=pg_stage.now())
            conn.rollback()
            return one

    with pg_stage.db.begin() as conn:
        generations.swap(conn, filing.document_id, 1, now=pg_stage.now())
        document_words.put(conn, filing.document_id, 1, counted)
        thread, found = later(admit)
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert (found[0].should_index, found[0].generation) == (True, 2)


def test_a_page_that_is_about_to_be_used_is_left_by_the_collector(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    shelf.put_page("one")
    fresh = [pages.ReadPage(row.key, Page(1, "one"), "en", 0.5) for row in pg_stage.rows("pages")]
    with pg_stage.db.begin() as writer:
        pages.put(writer, "default", fresh, 1)
        with pg_stage.db.begin() as conn:
            locked = conn.execute(sa.text("SELECT id FROM pages FOR UPDATE SKIP LOCKED")).all()
    assert locked == []


@pytest.mark.parametrize("claims", [False, True], ids=["ready", "running"])
@pytest.mark.parametrize("batch", [1, 1000])
def test_a_document_whose_task_waits_for_another_is_free_when_the_job_is_cancelled(
    shelf: Shelf, monkeypatch, claims: bool, batch: int
):
    stage = shelf.stage
    monkeypatch.setitem(job_actions.sweep_halted.__kwdefaults__, "limit", batch)
    job_id = stage.one()
    [lease] = stage.claim()
    with fenced.ending(stage.db, *lease.key, worker_id="w1") as tx:
        request = admission.AdmissionRequest(
            owners.by_id(tx.connection, tx.owner_id), job_id, SOURCE, "{}"
        )
        items = [admission.ListedFile("a.txt", "a.txt", "1")]
        [one] = admission.admit(tx.connection, request, items, now=tx.now)
        first = tx.spawn("noop")
        second = tx.spawn("noop", after=[first], about=About(one.document_id, one.generation))
        tx.spawn("noop", after=[second])
    if claims:
        stage.claim()
    verbs.cancel(stage.caller(), [job_id])
    assert [row.state for row in stage.rows("tasks")][1:] == ["cancelled"] * 3
    [document] = stage.rows("documents")
    assert (document.state, document.error) == ("not_indexed", None)
    stage.inspect()
    verbs.retry(stage.caller(), [job_id])
    assert [row.waits for row in stage.rows("tasks")][1:] == [0, 1, 1]
