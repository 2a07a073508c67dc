"""What no document uses is marked, waits and is deleted; what is used again stays."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import doctor, jobs
from quire.model.pages import Page
from quire.runtime import scheduler
from quire.settings import Settings
from quire.store.db.engine import Database
from quire.store.documents import corpora, gc, generation_pages, generations, pages
from quire.store.documents.gc import CHUNKS, CONTENTS, PAGES, Collector, sweep
from tests.store.shelf import Shelf, key_of, vector_of
from tests.store.stage import Stage

HOUR = 3600.0
KEEP = 24 * HOUR


@pytest.fixture
def shelf(stage: Stage, tmp_path: Path) -> Shelf:
    """Documents whose blobs are files."""
    return Shelf(stage, tmp_path / "blobs")


def collector(shelf: Shelf) -> Collector:
    assert shelf.blobs is not None
    return Collector(shelf.db, shelf.blobs.delete)


def collect_all(shelf: Shelf, rounds: int = 3) -> None:
    """Make rounds with an hour and more between them; what falls in one frees the next's."""
    worker = collector(shelf)
    for _ in range(rounds):
        worker.round(keep_seconds=KEEP)
        shelf.stage.clock.advance(HOUR + 1)
    worker.round(keep_seconds=KEEP)


def delete(shelf: Shelf, document_id: int) -> None:
    shelf.db.write(
        lambda conn, now: corpora.delete_documents(conn, shelf.tenant, [document_id], now=now)
    )


def files(shelf: Shelf) -> int:
    assert shelf.blobs is not None
    return sum(1 for path in shelf.blobs.root.glob("??/*") if path.is_file())


def indexed(db: Database) -> int:
    """Count the chunks that the full-text index knows."""
    query = "SELECT count(*) FROM chunk_words"
    if db.path is None:
        query = "SELECT count(*) FROM chunks WHERE words IS NOT NULL"
    with db.read() as conn:
        return int(conn.exec_driver_sql(query).scalar_one())


def test_a_replaced_generation_loses_its_leaves_and_stays_as_history(shelf: Shelf):
    old = shelf.file("a.txt", "one\ntwo")
    shelf.file("a.txt", "one\nthree")
    worker = collector(shelf)
    shelf.stage.clock.advance(KEEP - 1)
    assert "generations" not in worker.round(keep_seconds=KEEP)
    shelf.stage.clock.advance(2)
    assert worker.round(keep_seconds=KEEP)["generations"] == 1
    assert [row.generation for row in shelf.stage.rows("leaves")] == [2]
    first, second = shelf.stage.rows("generations", document_id=old.document_id)
    assert (first.state, first.recipe, first.pages) == ("replaced", None, 1)
    assert second.recipe is not None


def test_pages_chunks_words_vectors_and_files_go_after_the_grace(shelf: Shelf):
    shelf.file("a.txt", "one\ntwo", "same")
    shelf.file("a.txt", "one\nthree", "same")
    assert (files(shelf), indexed(shelf.db)) == (2, 4)
    shelf.stage.clock.advance(KEEP + 1)
    worker = collector(shelf)
    assert worker.round(keep_seconds=KEEP) == {
        "generations": 1, "pages_marked": 1, "contents_marked": 1
    }  # fmt: skip
    shelf.stage.clock.advance(HOUR - 1)
    assert worker.round(keep_seconds=KEEP) == {}
    shelf.stage.clock.advance(2)
    assert worker.round(keep_seconds=KEEP) == {"pages": 1, "chunks_marked": 1, "contents": 1}
    shelf.stage.clock.advance(HOUR + 1)
    assert worker.round(keep_seconds=KEEP) == {"chunks": 1}
    assert shelf.texts("pages") == ["one\nthree", "same"]
    assert shelf.texts("chunks") == ["one", "same", "three"]
    assert (files(shelf), indexed(shelf.db), shelf.stage.count("vectors")) == (1, 3, 3)
    shelf.stage.clock.advance(HOUR + 1)
    assert worker.round(keep_seconds=KEEP) == {}


def test_nothing_that_is_live_or_being_built_is_ever_collected(shelf: Shelf):
    shelf.file("live.txt", "one\ntwo")
    building = shelf.queue("building.txt")
    shelf.begin(building)
    shelf.fill(building, ["three"])
    before = {name: shelf.stage.rows(name) for name in ("leaves", "pages", "chunks", "contents")}
    shelf.stage.clock.advance(10 * KEEP)
    collect_all(shelf)
    assert {name: shelf.stage.rows(name) for name in before} == before
    shelf.end(building, "fail", "permanent")


def test_failed_and_dropped_generations_are_collected_too(shelf: Shelf):
    failed, dropped = shelf.queue("failed.txt"), shelf.queue("dropped.txt")
    shelf.begin(failed)
    shelf.fill(failed, ["one"])
    shelf.begin(dropped)
    shelf.fill(dropped, ["two"])
    shelf.end(failed, "fail", "permanent")
    jobs.cancel(shelf.stage.caller(), [dropped.job_id])
    states = [row.state for row in shelf.stage.rows("generations")]
    assert states == ["failed", "dropped"]
    shelf.stage.clock.advance(KEEP + 1)
    collect_all(shelf)
    counts = [shelf.stage.count(name) for name in ("leaves", "pages", "chunks", "contents")]
    assert (counts, files(shelf)) == ([0, 0, 0, 0], 0)


def test_a_deleted_document_s_pages_go_and_shared_ones_stay(shelf: Shelf):
    first = shelf.file("a.txt", "shared", "own")
    shelf.file("b.txt", "shared")
    delete(shelf, first.document_id)
    collect_all(shelf)
    assert shelf.texts("pages") == shelf.texts("chunks") == ["shared"]
    assert files(shelf) == 1


def test_a_page_that_is_used_again_within_the_grace_is_spared(shelf: Shelf):
    first = shelf.file("a.txt", "one\ntwo")
    page = shelf.stage.rows("pages")[0].id
    delete(shelf, first.document_id)
    worker = collector(shelf)
    worker.round(keep_seconds=KEEP)
    assert [row.condemned_at is None for row in shelf.stage.rows("pages")] == [False]
    shelf.stage.clock.advance(HOUR / 2)
    shelf.file("b.txt", "one\ntwo")
    [row] = shelf.stage.rows("pages")
    assert (row.id, row.condemned_at) == (page, None)
    collect_all(shelf)
    assert shelf.texts("chunks") == ["one", "two"]
    assert files(shelf) == 1


def test_a_marked_row_that_a_page_list_names_is_unmarked_at_the_sweep(shelf: Shelf):
    shelf.file("a.txt", "one")
    with shelf.db.begin() as conn:
        for table in ("pages", "chunks", "contents"):
            conn.exec_driver_sql(f"UPDATE {table} SET condemned_at = 5")
        for stock in gc.COLLECTABLES:
            assert sweep(conn, stock, before=6.0, remove=no_file) == (0, 1)
    for table in ("pages", "chunks", "contents"):
        assert [row.condemned_at for row in shelf.stage.rows(table)] == [None]


def no_file(digest: str) -> None:
    raise AssertionError(f"{digest} was to stay")


def test_what_is_marked_is_not_reused_but_unmarked_when_it_is_stored_again(shelf: Shelf):
    page = shelf.put_page("one")
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE pages SET condemned_at = 5")
    with shelf.db.read() as conn:
        assert pages.find(conn, "default", [key_of("one")]) == {}
    assert shelf.put_page("one") == page
    with shelf.db.read() as conn:
        assert pages.find(conn, "default", [key_of("one")])[key_of("one")].id == page


def test_a_marked_chunk_counts_as_not_embedded(shelf: Shelf):
    shelf.file("a.txt", "one")
    [chunk], [model] = shelf.stage.rows("chunks"), shelf.stage.rows("models")

    def embedded() -> set[str]:
        with shelf.db.read() as conn:
            return pages.embedded(conn, "default", model.id, [chunk.digest])

    assert embedded() == {chunk.digest}
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE chunks SET condemned_at = 5")
    assert embedded() == set()
    words = {chunk.digest: "one"}

    def store(conn: sa.Connection, now: Any) -> None:
        pages.put_chunks(conn, "default", {chunk.digest: ("one", "en", 1)}, words, 1)
        pages.put_vectors(conn, "default", model.id, {chunk.digest: vector_of(chunk.digest)})

    shelf.db.write(store)
    assert embedded() == {chunk.digest}


def test_thumbnails_and_files_that_wait_to_be_indexed_are_kept(shelf: Shelf):
    filing = shelf.file("a.txt", "one")
    picture, attached, stray = (shelf.put_content(each) for each in (b"png", b"mail", b"stray"))
    with shelf.db.begin() as conn:
        generations.set_thumbnail(conn, filing.document_id, picture)
    shelf.queue("a.txt#1/mail", seen=attached, parent_id=filing.document_id)
    collect_all(shelf)
    kept = {row.digest for row in shelf.stage.rows("contents")}
    assert picture in kept
    assert attached in kept
    assert stray not in kept
    assert files(shelf) == len(kept) == 3


def test_a_file_that_two_tenants_have_goes_with_the_last_of_them(shelf: Shelf, stage: Stage):
    assert shelf.blobs is not None
    other = Shelf(stage, shelf.blobs.root, tenant="other")
    digest = shelf.put_content(b"same")
    assert other.put_content(b"same") == digest
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("UPDATE contents SET condemned_at = 5 WHERE tenant = 'default'")
        assert sweep(conn, CONTENTS, before=6.0, remove=no_file)[0] == 1
    assert [row.tenant for row in stage.rows("contents")] == ["other"]
    collect_all(shelf)
    assert (stage.count("contents"), files(shelf)) == (0, 0)


def test_a_put_after_the_collection_writes_the_file_again(shelf: Shelf):
    shelf.put_content(b"come back")
    collect_all(shelf)
    assert files(shelf) == 0
    digest = shelf.put_content(b"come back")
    assert shelf.blobs is not None
    assert shelf.blobs.verify(digest)


def test_a_collector_that_dies_between_file_and_row_is_mended_by_the_next_put(shelf: Shelf):
    assert shelf.blobs is not None
    digest = shelf.put_content(b"half gone")
    shelf.db.write(lambda conn, now: gc.mark(CONTENTS, [("default", digest)], conn, now))

    def die_after_removal(digest: str) -> None:
        assert shelf.blobs is not None
        shelf.blobs.delete(digest)
        raise SystemExit

    shelf.stage.clock.advance(HOUR + 1)
    with pytest.raises(SystemExit):
        Collector(shelf.db, die_after_removal).round(keep_seconds=KEEP)
    assert [row.digest for row in shelf.stage.rows("contents")] == [digest]
    assert files(shelf) == 0
    shelf.put_content(b"half gone")
    assert shelf.blobs.verify(digest)


def test_every_act_is_bounded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gc, "SCAN_ROWS", 3)
    monkeypatch.setattr(gc, "DELETE_ROWS", 2)
    for n in range(7):
        shelf.put_page(f"page {n}")
    worker = collector(shelf)
    assert worker.round(keep_seconds=KEEP, seconds=0.0) == {"pages_marked": 3}
    assert worker.round(keep_seconds=KEEP, seconds=0.0) == {"pages_marked": 3}
    assert worker.round(keep_seconds=KEEP, seconds=0.0) == {"pages_marked": 1}
    shelf.stage.clock.advance(HOUR + 1)
    with shelf.db.begin() as conn:
        now = shelf.stage.now().wall
        assert sweep(conn, PAGES, before=now - HOUR, remove=no_file, limit=2)[0] == 2
    assert worker.round(keep_seconds=KEEP) == {"pages": 5}


def test_a_long_generation_is_collected_alone_and_whole(shelf: Shelf):
    for name in ("a.txt", "b.txt"):
        shelf.file(name, *(f"{name} {n}" for n in range(5)))
        shelf.file(name, "short")
    shelf.stage.clock.advance(1)
    with shelf.db.begin() as conn:
        now = shelf.stage.now().wall
        assert gc.delete_old_page_lists(conn, before=now, limit=6) == 1
        assert gc.delete_old_page_lists(conn, before=now, limit=6) == 1
        assert gc.delete_old_page_lists(conn, before=now, limit=6) == 0
    assert shelf.stage.count("leaves") == 2


def test_a_generation_that_was_collected_gives_nothing_to_another(shelf: Shelf):
    filing = shelf.file("a.txt", "one")
    row = shelf.stage.rows("generations")[0]

    def giver() -> tuple[int, int] | None:
        with shelf.db.read() as conn:
            return generations.find_identical(conn, "default", row.digest, row.recipe)

    shelf.file("a.txt", "two")
    assert giver() == (filing.document_id, 1)
    shelf.stage.clock.advance(KEEP + 1)
    collector(shelf).round(keep_seconds=KEEP)
    assert giver() is None


def test_two_collectors_at_once_delete_each_thing_once(shelf: Shelf):
    for n in range(60):
        shelf.put_page(f"page {n}")
        shelf.put_content(b"%d" % n)
    collector(shelf).round(keep_seconds=KEEP)
    shelf.stage.clock.advance(HOUR + 1)
    found: list[dict[str, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(collector(shelf).round(keep_seconds=KEEP)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert sum(done.get("pages", 0) for done in found) == 60
    assert sum(done.get("contents", 0) for done in found) == 60
    assert (shelf.stage.count("pages"), files(shelf)) == (0, 0)


def mark_everything(db: Database) -> None:
    with db.begin() as conn:
        for table in ("pages", "chunks", "contents"):
            conn.exec_driver_sql(f"UPDATE {table} SET condemned_at = 5")


def test_a_row_that_a_writer_holds_is_left_alone(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    page = shelf.put_page("one")
    mark_everything(pg_stage.db)
    fresh = [pages.ReadPage(key_of("one"), Page(1, "one"), "en", 0.5)]
    with pg_stage.db.begin() as writer:
        assert pages.put(writer, "default", fresh, 1) == {key_of("one"): page}
        with pg_stage.db.begin() as conn:
            assert sweep(conn, PAGES, before=6.0, remove=no_file) == (0, 0)
    with pg_stage.db.begin() as conn:
        assert sweep(conn, PAGES, before=6.0, remove=no_file) == (0, 0)
    assert pg_stage.count("pages") == 1


def beside(act: Any, stage: Stage, inside: Any) -> list[Any]:
    """Start `act` in a thread while `inside` holds its locks; returns what it gave."""
    found: list[Any] = []
    with stage.db.begin() as conn:
        inside(conn)
        thread = threading.Thread(target=lambda: found.append(act()))
        thread.start()
        stage.wait_until_one_waits()
    thread.join()
    return found


def test_a_writer_that_waits_for_the_collector_stores_the_page_anew(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    old = shelf.put_page("one")
    mark_everything(pg_stage.db)
    found = beside(
        lambda: shelf.put_page("one"),
        pg_stage,
        lambda conn: sweep(conn, PAGES, before=6.0, remove=no_file),
    )
    [row] = pg_stage.rows("pages")
    assert found == [row.id]
    assert (row.id != old, row.condemned_at) == (True, None)


def test_a_plan_that_waits_for_the_collector_reads_the_page_anew(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    delete(shelf, shelf.file("a.txt", "one").document_id)
    new = shelf.queue("b.txt")
    mark_everything(pg_stage.db)
    with pg_stage.db.begin() as conn:
        cut_id = generations.chunking_id(conn, "lines", "{}")
        generations.record_inputs(
            conn, new.document_id, new.generation, digest=None, recipe="lines", media_type=None,
            cut_id=cut_id, model_id=None,
        )  # fmt: skip

    def plan() -> list[int]:
        which = ("default", new.document_id, new.generation, {1: key_of("one")})
        return pg_stage.db.write(
            lambda conn, now: generation_pages.plan(conn, *which, cut_id=cut_id, model_id=None)
        )

    swept = beside(plan, pg_stage, lambda conn: sweep(conn, PAGES, before=6.0, remove=no_file))
    assert swept == [[1]]


def test_a_writer_that_waits_for_the_collector_stores_the_chunk_anew(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    filing = shelf.file("a.txt", "one")
    delete(shelf, filing.document_id)
    mark_everything(pg_stage.db)
    with pg_stage.db.begin() as conn:
        sweep(conn, PAGES, before=6.0, remove=no_file)
    [old] = pg_stage.rows("chunks")
    beside(
        lambda: shelf.file("b.txt", "one"),
        pg_stage,
        lambda conn: sweep(conn, CHUNKS, before=6.0, remove=no_file),
    )
    [row] = pg_stage.rows("chunks")
    assert row.id != old.id
    assert indexed(pg_stage.db) == pg_stage.count("vectors") == 1


def test_a_put_that_waits_for_the_collector_never_trusts_the_old_file(
    pg_stage: Stage, tmp_path: Path
):
    shelf = Shelf(pg_stage, tmp_path)
    assert shelf.blobs is not None
    other = Shelf(pg_stage, tmp_path, tenant="other")
    digest = shelf.put_content(b"bytes")
    for who in (shelf, other):
        mark_everything(pg_stage.db)
        beside(
            lambda who=who: who.put_content(b"bytes"),
            pg_stage,
            lambda conn: sweep(conn, CONTENTS, before=6.0, remove=shelf.blobs.delete),
        )
        assert shelf.blobs.verify(digest)
        assert pg_stage.rows("contents")[-1].tenant == who.tenant


def test_a_blob_that_another_tenant_is_about_to_put_is_left_alone(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    digest = shelf.put_content(b"bytes")
    mark_everything(pg_stage.db)
    with pg_stage.db.begin() as writer:
        pages.put_content(writer, "other", digest, 5, 1.0)
        with pg_stage.db.begin() as conn:
            assert sweep(conn, CONTENTS, before=6.0, remove=no_file) == (0, 0)
    with pg_stage.db.begin() as conn:
        assert sweep(conn, CONTENTS, before=6.0, remove=no_file) == (1, 0)


def test_the_scheduler_collects_and_removes_abandoned_parts(stage: Stage, tmp_path: Path):
    settings = Settings(home=tmp_path, keep_generations_hours=1.0)
    shelf = Shelf(stage, tmp_path / "blobs")
    assert shelf.blobs is not None
    shelf.file("a.txt", "one")
    shelf.file("a.txt", "two")
    shelf.blobs.part_path("left").write_bytes(b"half a file")
    worker = collector(shelf)
    stage.clock.advance(HOUR + 1)
    done = scheduler.tick(stage.db, settings, collector=worker)
    assert done["collected_generations"] == 1
    # The clock of the test stands long before that of the disk, until it is moved.
    stage.clock.advance(10 * 365 * 24 * HOUR * 10)
    done = scheduler.tick(stage.db, settings, collector=worker)
    assert (done["collected_pages"], done["collected_parts"]) == (1, 1)
    assert not shelf.blobs.part_path("left").exists()


def test_a_disk_that_refuses_does_not_stop_the_scheduler(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def refuse(digest: str) -> None:
        raise PermissionError(f"{digest}: not yours")

    shelf = Shelf(stage, tmp_path / "blobs")
    shelf.put_content(b"stays")
    mark_everything(stage.db)
    settings = Settings(home=tmp_path)
    scheduler.tick(stage.db, settings, collector=Collector(stage.db, refuse))
    assert stage.count("contents") == 1
    assert "collect.refused" in caplog.text


def test_a_deleted_job_leaves_the_generations_that_it_made(shelf: Shelf):
    done, stopped = shelf.file("a.txt", "one"), shelf.queue("b.txt")
    jobs.stop(shelf.stage.caller(), [stopped.job_id])
    jobs.delete(shelf.stage.caller(), [done.job_id, stopped.job_id])
    live, dropped = shelf.stage.rows("generations")
    assert [(row.state, row.job_id) for row in (live, dropped)] == [
        ("live", None), ("dropped", None)
    ]  # fmt: skip
    assert [row.state for row in shelf.stage.rows("documents")] == ["success", "not_indexed"]
    assert doctor.examine(shelf.db).is_healthy


def test_a_mark_from_a_clock_that_was_ahead_does_not_wait_for_it(shelf: Shelf):
    first = shelf.file("a.txt", "one")
    delete(shelf, first.document_id)
    shelf.stage.clock.advance(24 * HOUR)
    collector(shelf).round(keep_seconds=KEEP)
    assert shelf.stage.count("pages") == 1
    shelf.stage.clock.jump(-24 * HOUR)
    collect_all(shelf)
    assert shelf.stage.count("pages") == 0
