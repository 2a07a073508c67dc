"""When a job will be done: told from the cost done and the time spent, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import format, testing
from quire.model.states import Reason
from quire.store.documents import corpora
from quire.store.reports import jobs as job_reports
from tests import documents as made
from tests.shelf import Shelf, open_shelf


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def job(shelf: Shelf, job_id: int) -> dict[str, Any]:
    with shelf.db.read() as conn:
        found = job_reports.job(conn, "default", job_id, now=shelf.clock.now().wall)
    assert found is not None
    return found


def seconds_left(shelf: Shelf, job_id: int) -> float | None:
    at = format.epoch(job(shelf, job_id)["eta_at"])
    return None if at is None else at - shelf.clock.now().wall


def test_after_half_the_cost_it_takes_about_as_long_again(shelf: Shelf):
    for number in range(20):
        shelf.put(f"{number:02}.txt", f"text number {number}")
    job_id = shelf.submit()
    assert seconds_left(shelf, job_id) is None
    shelf.step()  # the listing
    for _ in range(10):
        shelf.clock.advance(6.0)
        assert len(shelf.step()) == 1
    half = job(shelf, job_id)
    assert 0.45 <= half["progress"] <= 0.55
    assert seconds_left(shelf, job_id) == pytest.approx(60, rel=0.1)
    shelf.drain()
    assert seconds_left(shelf, job_id) is None


def test_pages_weigh_not_files(shelf: Shelf):
    shelf.put("book.pdf", made.pdf(*[f"page {number} of the book" for number in range(1, 49)]))
    shelf.put("note.txt", "a note")
    job_id = shelf.submit()
    while not shelf.tasks("range"):
        shelf.step()
    shelf.clock.advance(100.0)
    while sum(row.state == "done" for row in shelf.tasks("range")) < 2:
        shelf.step()
    assert seconds_left(shelf, job_id) == pytest.approx(100, rel=0.15)
    shelf.drain()


def test_there_is_no_eta_while_the_listing_grows_nor_while_nothing_moves(shelf: Shelf):
    for number in range(4):
        shelf.put(f"{number}.txt", f"text number {number}")
    job_id = shelf.submit()
    shelf.step(3)
    shelf.clock.advance(60.0)
    assert seconds_left(shelf, job_id) is not None
    shelf.db.write(lambda conn, now: corpora.set_growing(conn, job_id, is_growing=True))
    assert job(shelf, job_id)["is_listing"]
    assert seconds_left(shelf, job_id) is None
    shelf.db.write(lambda conn, now: corpora.set_growing(conn, job_id, is_growing=False))
    shelf.stop(job_id)
    assert seconds_left(shelf, job_id) is None
    shelf.resume(job_id)
    shelf.drain()
    assert job(shelf, job_id)["state"] == "completed"


def test_there_is_no_eta_while_all_that_is_left_backs_off(shelf: Shelf):
    for number in range(2):
        shelf.put(f"{number}.txt", f"text number {number}")
    job_id = shelf.submit()
    shelf.step(2)
    shelf.clock.advance(60.0)
    assert seconds_left(shelf, job_id) is not None
    [lease] = testing._claim(shelf.app, "default")
    assert seconds_left(shelf, job_id) is not None
    shelf.end(lease, "crashed")
    [left] = shelf.tasks("document", state="blocked")
    assert left.reason == Reason.BACKOFF
    assert seconds_left(shelf, job_id) is None
    shelf.drain()
