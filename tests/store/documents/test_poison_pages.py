"""Promise G8: a page that kills its process is cut off from the others, and costs one page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quire import testing
from quire.demo import samples
from quire.demo.samples import PdfPage
from quire.model.contracts import JobKind
from quire.model.outcomes import Lease, Outcome, RunReport, decide
from quire.model.retry import MAX_CRASHES
from tests import documents
from tests.shelf import PLAIN, Shelf, open_shelf

POISON = ("crashed", "timeout", "memory", "stalled")


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def book(shelf: Shelf, count: int = 24, name: str = "a.pdf") -> None:
    shelf.put(name, documents.pdf(*[f"page number {n}" for n in range(1, count + 1)]))


def table(shelf: Shelf, rows: int) -> None:
    shelf.put("a.csv", "".join(f"row {n},value {n}\n" for n in range(1, rows + 1)))


def killing(*numbers: int, outcome: str = "crashed") -> Callable[[Lease], str | None]:
    """Pages that kill whatever reads them."""

    def crash(lease: Lease) -> str | None:
        if lease.from_page is None or lease.to_page is None:
            return None
        return outcome if any(lease.from_page <= n <= lease.to_page for n in numbers) else None

    return crash


def lease_of(first: int | None, last: int | None, attempt: int, crashes: int = 0) -> Lease:
    return Lease(
        1, 1, 1, "ingest.range", "{}", attempt, 3, crashes, "default", 5, 0.0, 0.0,
        from_page=first, to_page=last,
    )  # fmt: skip


def move(outcome: str, lease: Lease) -> str:
    kind = JobKind("ingest.range", lambda ctx: None)
    return decide(RunReport(1, 1, Outcome(outcome)), lease, kind, 0.5, "w", asked=False).move


@pytest.mark.parametrize("outcome", POISON)
def test_a_range_is_cut_after_its_second_crash_and_a_page_set_apart_after_its_third(outcome: str):
    assert [move(outcome, lease_of(1, 12, n)) for n in (1, 2)] == ["retry", "split"]
    assert [move(outcome, lease_of(4, 4, n)) for n in (1, 2, 3)] == ["retry", "retry", "quarantine"]
    assert [move(outcome, lease_of(None, None, n)) for n in (1, 2, 3)] == ["retry", "retry", "fail"]


def test_a_kill_from_outside_never_cuts_a_range_and_never_sets_a_page_apart():
    for first, last in ((1, 12), (4, 4)):
        moves = [move("died", lease_of(first, last, 3, n)) for n in range(MAX_CRASHES)]
        assert set(moves) == {"return", "retry", "lose"}
        assert moves.index("lose") == MAX_CRASHES - 1


@pytest.mark.parametrize("outcome", ["transient", "outage", "permanent", "stopped", "revoked"])
def test_what_a_page_does_not_do_to_its_process_never_cuts_a_range(outcome: str):
    for attempt in (1, 2, 3):
        assert move(outcome, lease_of(1, 12, attempt)) in ("retry", "fail")
        assert move(outcome, lease_of(4, 4, attempt)) in ("retry", "fail")


def open_ranges(shelf: Shelf) -> list[tuple[int, int]]:
    rows = [row for row in shelf.tasks("range") if row.state in ("ready", "blocked", "running")]
    return sorted((row.from_page, row.to_page) for row in rows)


def test_a_split_keeps_cost_and_progress_and_its_successor_waits_for_the_halves(shelf: Shelf):
    book(shelf, 13)
    job = shelf.submit()
    shelf.step(2)
    assert open_ranges(shelf) == [(1, 12), (13, 13)]
    before = shelf.job(job)
    for _ in range(3):
        [lease] = testing._claim(shelf.app, "default")
        if lease.to_page == 12:
            shelf.end(lease, "crashed")
            shelf.clock.advance(600)
        else:
            testing._run(shelf.app, lease)
    after = shelf.job(job)
    assert open_ranges(shelf) == [(1, 6), (7, 12)]
    assert after.cost_total == before.cost_total == 14.0
    assert sum(row.cost for row in shelf.rows("tasks")) == 14.0
    assert after.progress > before.progress
    [swap] = shelf.tasks("swap")
    assert (swap.state, swap.waits) == ("blocked", 2)
    [whole] = [row for row in shelf.tasks("range") if (row.from_page, row.to_page) == (1, 12)]
    assert (whole.state, whole.cost) == ("skipped", 0.0)
    shelf.drain()
    assert (shelf.job(job).state, shelf.job(job).cost_done) == ("completed", 14.0)
    assert len(shelf.texts("a.pdf")) == 13


@pytest.mark.parametrize("outcome", POISON)
def test_one_bad_page_is_quarantined_with_the_reason_and_the_rest_is_read(
    shelf: Shelf, outcome: str
):
    book(shelf)
    job = shelf.submit()
    seen = []

    def crash(lease: Lease) -> str | None:
        seen.append(shelf.job(job).progress)
        return killing(8, outcome=outcome)(lease)

    crashes = shelf.drain_with(crash)
    # 12 → 6 → 3 → 2 → 1 pages, twice each, and three times the page alone.
    assert crashes <= 2 * 4 + 3
    assert seen == sorted(seen)
    document = shelf.document("a.pdf")
    assert (document.state, document.pages, document.page_errors) == ("success", 24, 1)
    [bad] = [leaf for leaf in shelf.leaves("a.pdf") if leaf.error]
    assert bad.number == 8
    why = json.loads(bad.error)
    [task] = [row for row in shelf.tasks("range") if row.from_page == row.to_page == 8]
    assert why == {
        "kind": outcome,
        "error": f"it was {outcome}",
        "peak_rss": 7 << 20,
        "seconds": 1.5,
        "task_id": task.id,
        "command": f"quire document read {document.id} --page 8",
    }
    assert [t for t in shelf.texts("a.pdf") if t] == [
        f"page number {n}" for n in range(1, 25) if n != 8
    ]
    assert shelf.job(job).state == "completed"
    assert shelf.job(job).progress == 1.0


def test_a_small_document_that_kills_its_process_is_read_by_ranges_the_next_time(shelf: Shelf):
    book(shelf, 5)

    def crash(lease: Lease) -> str | None:
        if lease.kind == "ingest.document":
            return "crashed" if lease.attempt == 1 else None
        return killing(3)(lease)

    shelf.submit()
    shelf.drain_with(crash)
    document = shelf.document("a.pdf")
    assert (document.state, document.pages, document.page_errors) == ("success", 5, 1)


def test_a_document_without_a_readable_page_is_failed(shelf: Shelf):
    book(shelf, 3)
    shelf.submit(settings={**PLAIN, "page_size": 2})
    shelf.drain_with(killing(1, 2, 3))
    document = shelf.document("a.pdf")
    assert (document.state, document.live_generation) == ("failed", None)
    assert document.error == "No page could be read (3 tried): it was crashed"


def test_a_file_that_kills_its_process_as_a_whole_is_failed_after_three_crashes(shelf: Shelf):
    shelf.put("a.html", "<p>words</p>")
    shelf.submit()
    crashes = shelf.drain_with(lambda lease: "crashed" if lease.kind == "ingest.document" else None)
    assert crashes == 3
    assert (shelf.document("a.html").state, shelf.document("a.html").error) == (
        "failed", "it was crashed",
    )  # fmt: skip


def test_foreign_kills_of_every_run_quarantine_nothing(shelf: Shelf):
    book(shelf)
    job = shelf.submit()
    died: dict[int, int] = {}

    def crash(lease: Lease) -> str | None:
        died[lease.task_id] = died.get(lease.task_id, 0) + 1
        return "died" if died[lease.task_id] < MAX_CRASHES else None

    shelf.drain_with(crash)
    assert shelf.job(job).state == "completed"
    assert (shelf.document("a.pdf").state, shelf.document("a.pdf").page_errors) == ("success", 0)
    assert len(shelf.tasks("range")) == 2


def test_pages_of_a_table_are_isolated_like_those_of_a_pdf_and_the_rest_is_read(shelf: Shelf):
    table(shelf, 40)
    shelf.submit(settings={**PLAIN, "row_size": 1, "page_size": 10})
    shelf.drain_with(killing(14))
    document = shelf.document("a.csv")
    assert (document.state, document.page_errors) == ("success", 1)
    [bad] = [leaf for leaf in shelf.leaves("a.csv") if leaf.error]
    assert bad.number == 14
    text = "\n".join(text for text in shelf.texts("a.csv") if text)
    assert all((f"row {n}\t" in text) == (n != 14) for n in range(1, 41))


@pytest.mark.parametrize("name", ["a.csv", "a.pdf"])
def test_a_range_that_was_given_up_makes_the_document_fail_not_succeed_without_it(
    shelf: Shelf, name: str
):
    if name == "a.csv":
        table(shelf, 40)
    else:
        book(shelf, 40)
    settings = {**PLAIN, "row_size": 1, "page_size": 10}
    job = shelf.submit(settings=settings)
    shelf.drain_with(killing(14, outcome="transient"))
    document = shelf.document(name)
    assert (document.state, document.live_generation) == ("failed", None)
    assert "it was transient" in document.error
    assert shelf.job(job).state == "failed"
    shelf.resume(job)
    read = len(shelf.rows("pages"))
    shelf.drain()
    assert (shelf.document(name).state, shelf.document(name).page_errors) == ("success", 0)
    assert shelf.job(job).state == "completed"
    # What the first try had read is not read again.
    assert len(shelf.rows("pages")) - read == 10
    made = {k: v for k, v in shelf.ledger(name).items() if k in ("pages_made", "pages_reused")}
    assert made == {"pages_made": 10, "pages_reused": 30}


SMALL = {**PLAIN, "small_size": "20", "page_size": "5"}


def ranges_of(shelf: Shelf, texts: int, scans: int = 0, **settings: str) -> int:
    """Take in a PDF; returns in how many ranges it was read."""
    before = len(shelf.tasks("range"))
    name = f"{len(shelf.rows('documents'))}.pdf"
    pages: list[str | PdfPage] = [f"page {n} of {name}" for n in range(texts)]
    pages += [samples.scanned_page(f"scan {n} of {name}") for n in range(scans)]
    shelf.put(name, documents.pdf(*pages))
    shelf.ingest(settings={**SMALL, **settings})
    document = shelf.document(name)
    assert (document.state, document.pages) == ("success", texts + scans)
    return len(shelf.tasks("range")) - before


def test_a_text_is_read_in_few_ranges_of_equal_length_and_scans_are_split(shelf: Shelf):
    assert ranges_of(shelf, 20) == 0
    assert ranges_of(shelf, 21) == 2
    spans = [(task.from_page, task.to_page) for task in shelf.tasks("range")]
    assert spans == [(1, 11), (12, 21)]
    assert ranges_of(shelf, 14, 5) == 0
    assert ranges_of(shelf, 13, 6) == 4
    assert ranges_of(shelf, 7, small_size="0") == 2


def test_a_short_text_that_killed_its_process_is_split_at_the_next_try(shelf: Shelf):
    book(shelf, 14)
    shelf.submit(settings=SMALL)

    def crash(lease: Lease) -> str | None:
        if lease.kind == "ingest.document":
            return "crashed" if lease.attempt == 1 else None
        return killing(3)(lease)

    shelf.drain_with(crash)
    document = shelf.document("a.pdf")
    assert (document.state, document.pages, document.page_errors) == ("success", 14, 1)
