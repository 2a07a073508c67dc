"""Promises G4 and G5: the newest generation wins, and the old one is seen until the swap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.errors import Overtaken
from quire.ingest import document_words
from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.db.schema.documents import documents as documents_table
from quire.store.db.schema.documents import generations
from quire.store.documents import admission, generation_pages
from quire.store.documents import generations as documents
from quire.store.queue import owners
from quire.text.fields import PageEntries
from tests import documents as files
from tests.shelf import PLAIN, Shelf, open_shelf


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def book(edition: str, pages: int = 30) -> bytes:
    return files.pdf(*[f"edition {edition} page {n}" for n in range(1, pages + 1)])


def overtake(shelf: Shelf, name: str) -> int:
    """Begin a newer generation, as another machine's listing would; nothing works on it yet."""
    row = shelf.document(name)
    with shelf.db.begin() as conn:
        old = conn.execute(
            sa.select(generations).where(
                generations.c.document_id == row.id, generations.c.generation == row.generation
            )
        ).one()
        conn.execute(
            sa.update(generations)
            .where(generations.c.document_id == row.id, generations.c.state == "building")
            .values(state="dropped", error="overtaken")
        )
        conn.execute(
            sa.insert(generations).values(
                document_id=row.id, generation=row.generation + 1, tenant=row.tenant,
                job_id=None, state="building", why="forced", settings=old.settings,
                created_at=0.0,
            )
        )  # fmt: skip
        conn.execute(
            sa.update(documents_table)
            .where(documents_table.c.id == row.id)
            .values(generation=row.generation + 1, state="indexing")
        )
    return int(row.generation) + 1


def test_the_old_generation_is_seen_until_the_swap_and_the_new_one_after_it(shelf: Shelf):
    shelf.put("a.pdf", book("one"))
    shelf.ingest()
    before = shelf.index()
    shelf.put("a.pdf", book("second"))
    shelf.submit()
    seen = []
    while shelf.step():
        index = shelf.index()["file:///a.pdf"]
        seen.append(index["pages"] == before["file:///a.pdf"]["pages"])
    # The listing, the document's own task and three ranges change nothing; the swap changes all.
    assert seen == [True] * 5 + [False]
    assert shelf.texts("a.pdf") == [f"edition second page {n}" for n in range(1, 31)]
    assert shelf.document("a.pdf").live_generation == 2


@pytest.mark.parametrize("content", [b"%PDF-1.4 cut off", b"", bytes(range(256)) * 8])
def test_a_generation_that_fails_changes_nothing_that_is_seen(shelf: Shelf, content: bytes):
    shelf.put("a.pdf", book("one", 3))
    shelf.ingest()
    before = shelf.index()["file:///a.pdf"]["pages"]
    shelf.put("a.pdf", content)
    job = shelf.ingest()
    after = shelf.document("a.pdf")
    assert shelf.index()["file:///a.pdf"]["pages"] == before
    assert (after.state, after.generation, after.live_generation) == ("failed", 2, 1)
    assert "a.pdf: " in after.error
    assert shelf.job(job).state == "failed"
    assert shelf.generation("a.pdf").state == "failed"


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_cancelled_generation_changes_nothing_that_is_seen(shelf: Shelf, steps: int):
    shelf.put("a.pdf", book("one"))
    shelf.ingest()
    before = shelf.index()
    shelf.put("a.pdf", book("second"))
    job = shelf.submit()
    shelf.step(steps)
    shelf.cancel(job)
    shelf.drain()
    assert shelf.index() == before
    assert (shelf.document("a.pdf").state, shelf.generation("a.pdf").state) == (
        "success", "dropped",
    )  # fmt: skip
    again = shelf.ingest()
    assert shelf.listed(again) == {"changed": 1}
    assert shelf.texts("a.pdf")[0] == "edition second page 1"
    assert shelf.document("a.pdf").live_generation == 3


def test_a_task_of_an_older_generation_is_skipped_before_any_byte_is_fetched(shelf: Shelf):
    shelf.put("a.txt", "words")
    shelf.submit()
    shelf.step()
    overtake(shelf, "a.txt")
    shelf.drain()
    [task] = shelf.tasks("document")
    assert task.state == "skipped"
    assert "generation 2 is newer" in task.error
    assert (shelf.rows("contents"), shelf.rows("pages")) == ([], [])


def test_ranges_and_the_swap_of_an_older_generation_are_skipped_and_read_nothing(shelf: Shelf):
    shelf.put("a.pdf", book("one"))
    job = shelf.submit()
    shelf.step(3)  # the listing, the document, one of three ranges
    read = len(shelf.rows("pages"))
    overtake(shelf, "a.pdf")
    shelf.drain()
    assert [row.state for row in shelf.tasks("range")] == ["done", "skipped", "skipped"]
    assert [row.state for row in shelf.tasks("swap")] == ["skipped"]
    assert len(shelf.rows("pages")) == read == 12
    assert shelf.leaves("a.pdf", 2) == []
    assert shelf.document("a.pdf").live_generation is None
    assert shelf.job(job).state == "completed"


def test_a_document_that_was_deleted_ends_its_tasks_as_skipped(shelf: Shelf):
    shelf.put("a.txt", "words")
    shelf.submit()
    shelf.step()
    with shelf.db.begin() as conn:
        conn.execute(sa.delete(generations))
        conn.execute(sa.delete(documents_table))
    shelf.drain()
    [task] = shelf.tasks("document")
    assert (task.state, "it was deleted" in task.error) == ("skipped", True)


@pytest.mark.parametrize("act", ["check", "swap"])
def test_a_commit_of_an_older_generation_is_refused(shelf: Shelf, act: str):
    shelf.put("a.pdf", book("one"))
    shelf.submit()
    shelf.step(3)
    document = shelf.document("a.pdf")
    overtake(shelf, "a.pdf")
    acts: dict[str, Callable[[Any, Any], Any]] = {
        "check": lambda conn, now: documents.require_building(conn, document.id, 1),
        "swap": lambda conn, now: documents.swap(conn, document.id, 1, now=now),
    }
    with pytest.raises(Overtaken, match="Nothing was written"):
        shelf.db.write(acts[act])
    assert shelf.document("a.pdf").live_generation is None


def changes(db: Database, act: Callable[[], object]) -> tuple[int, int]:
    """Count the statements that `act` makes and the rows that they write."""
    counted = [0, 0]

    def count(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        counted[0] += 1
        if statement.lstrip()[:6].upper() in ("UPDATE", "INSERT", "DELETE"):
            counted[1] += max(cursor.rowcount, 0)

    sa.event.listen(db.engine, "after_cursor_execute", count)
    try:
        act()
    finally:
        sa.event.remove(db.engine, "after_cursor_execute", count)
    return counted[0], counted[1]


def swap(document_id: int, conn: sa.Connection, now: Any) -> None:
    documents.swap(conn, document_id, 1, now=now)


def test_a_swap_touches_as_few_rows_with_hundreds_of_pages_as_with_twenty(shelf: Shelf):
    found = {}
    for name, count in (("small.pdf", 20), ("large.pdf", 400)):
        shelf.put(name, book(name, count))
        settings = {**PLAIN, "page_size": max(count // 2, 1)}
        shelf.submit(str(shelf.folder / name), settings=settings)
        shelf.step(4)  # the listing, the document and two ranges: only the swap is left
        document = shelf.document(name)
        assert document.state == "indexing"
        found[name] = changes(shelf.db, partial(shelf.db.write, partial(swap, document.id)))
        assert shelf.document(name).live_generation == 1
        assert len(shelf.leaves(name)) == count
        with shelf.db.begin() as conn:  # back to where the task finds its own work to do
            conn.exec_driver_sql(
                f"UPDATE documents SET state = 'indexing', live_generation = NULL "
                f"WHERE id = {document.id}"
            )
            conn.exec_driver_sql(
                f"UPDATE generations SET state = 'building' WHERE document_id = {document.id}"
            )
        shelf.drain()
    assert found["small.pdf"] == found["large.pdf"]
    statements, rows = found["large.pdf"]
    assert statements <= 15
    assert rows <= 4


def test_a_newer_generation_that_comes_first_makes_the_older_commit_fail(
    pg_url: str, tmp_path: Path
):
    shelf = Shelf(tmp_path / "home", tmp_path / "in", pg_url)
    shelf.put("a.pdf", book("one"))
    shelf.submit()
    shelf.step(5)
    document = shelf.document("a.pdf")
    ended: list[object] = []

    def commit() -> None:
        own = open_database(pg_url)
        try:
            own.write(lambda conn, now: documents.swap(conn, document.id, 1, now=now))
            ended.append("swapped")
        except Overtaken as error:
            ended.append(error)
        own.close()

    late = threading.Thread(target=commit)
    with shelf.db.begin() as conn:
        conn.exec_driver_sql(
            f"UPDATE documents SET generation = 2, state = 'queued' WHERE id = {document.id}"
        )
        late.start()
        wait_for_a_lock(shelf)
    late.join()
    assert isinstance(ended[0], Overtaken)
    assert shelf.document("a.pdf").live_generation is None
    shelf.close()


def test_a_swap_that_comes_first_is_seen_by_the_listing_that_waited_for_it(
    pg_url: str, tmp_path: Path
):
    shelf = Shelf(tmp_path / "home", tmp_path / "in", pg_url)
    shelf.put("a.pdf", book("one"))
    job = shelf.submit()
    shelf.step(5)
    document = shelf.document("a.pdf")
    found: list[admission.Admitted] = []

    def listing() -> None:
        own = open_database(pg_url)
        own.clock = shelf.clock

        def act(conn: sa.Connection, now: Any) -> list[admission.Admitted]:
            owner = owners.lock_or_create(conn, "default", shelf.app.user)
            wish = admission.AdmissionRequest(
                owner, job, "x", shelf.generation("a.pdf").settings, (), True
            )
            item = admission.ListedFile(document.uri, "a.pdf", document.seen)
            return admission.admit(conn, wish, [item], now=now)

        found.extend(own.write(act))
        own.close()

    late = threading.Thread(target=listing)
    with shelf.db.begin() as conn:
        documents.swap(conn, document.id, 1, now=shelf.db.now(conn))
        late.start()
        wait_for_a_lock(shelf)
    late.join()
    # Without the lock it would have seen the document at work, or made the same number twice.
    assert [(one.generation, one.why) for one in found] == [(2, "forced")]
    assert (shelf.document("a.pdf").live_generation, shelf.document("a.pdf").generation) == (1, 2)
    shelf.close()


def wait_for_a_lock(shelf: Shelf) -> None:
    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    waiting = 0
    while not waiting:
        with shelf.db.read() as conn:
            waiting = conn.exec_driver_sql(query).scalar_one()


READ = (
    "SELECT p.text FROM documents d "
    "JOIN leaves l ON l.document_id = d.id AND l.generation = d.live_generation "
    "JOIN pages p ON p.id = l.page_id ORDER BY l.number"
)


@pytest.mark.timeout(300)
def test_a_reader_during_a_thousand_swaps_sees_one_whole_generation_each_time(shelf: Shelf):
    shelf.put("a.pdf", book("A", 5))
    shelf.ingest()
    shelf.put("a.pdf", book("BB", 5))
    shelf.ingest()
    document_id = shelf.document("a.pdf").id
    over = threading.Event()
    looks: list[set[str]] = []

    def watch() -> None:
        own = open_database(shelf.db.url)
        while not over.is_set():
            with own.read() as conn:
                texts = list(conn.exec_driver_sql(READ).scalars())
            over.wait(0.002)
            looks.append({" ".join(text.split()[:2]) for text in texts} | {f"{len(texts)} pages"})
        own.close()

    reader = threading.Thread(target=watch)
    reader.start()
    counted = [document_words.count(shelf.db, document_id, edition) for edition in (2, 1)]
    for n in range(3, 1003):
        shelf.db.write(partial(turn, document_id, n, counted[n % 2]))
    over.set()
    reader.join()
    assert len(looks) > 20
    wholes = [{"edition A", "5 pages"}, {"edition BB", "5 pages"}]
    assert [look for look in looks if look not in wholes] == []
    assert all(whole in looks for whole in wholes)


def turn(
    document_id: int, number: int, counted: PageEntries, conn: sa.Connection, now: Any
) -> None:
    """Swap in a generation with the leaves of the one before the last."""
    g = generations.c
    settings, cut = conn.execute(
        sa.select(g.settings, g.cut_id).where(g.document_id == document_id, g.generation == 1)
    ).one()
    conn.execute(
        sa.insert(generations).values(
            document_id=document_id, generation=number, tenant="default", state="building",
            why="forced", settings=settings, created_at=0.0, cut_id=cut, recipe=str(number),
        )
    )  # fmt: skip
    conn.execute(
        sa.update(documents_table)
        .where(documents_table.c.id == document_id)
        .values(generation=number, state="indexing")
    )
    generation_pages.copy(conn, (document_id, 2 - number % 2), document_id, number)
    documents.swap(conn, document_id, number, now=now)
    document_words.put(conn, document_id, number, counted)
