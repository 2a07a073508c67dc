"""Promise G8 with real processes: a page that kills whoever reads it costs one page."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from quire.control import jobs
from tests import documents
from tests.integration.processes import Site
from tests.shelf import PLAIN, logical_index
from tests.waiting import until

POISON = str(Path(__file__).with_name("poison_file.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def pages(count: int, **bad: str) -> bytes:
    """A PDF in which some pages say other words (p7="ABORT")."""
    texts = {f"p{n}": f"page number {n}" for n in range(1, count + 1)} | bad
    return documents.pdf(*texts.values())


def ingest(site: Site, folder: Path, **settings: Any) -> int:
    job = site.submit("ingest", sources=[str(folder)], settings={**PLAIN, **settings})
    site.until_over(job, within=200)
    return job


def errors(site: Site) -> dict[int, dict[str, Any]]:
    return {row.number: json.loads(row.error) for row in site.rows("leaves") if row.error}


def test_a_page_that_kills_its_process_is_quarantined_and_the_rest_is_searchable(
    site: Site, folder: Path
):
    quarantined(site, folder, "ABORT", "crashed", 24, page_size=12)


def test_a_bad_page_in_a_changed_document_costs_one_page(site: Site, folder: Path):
    (folder / "a.pdf").write_bytes(pages(24))
    site.settings["plugins"] = POISON
    site.worker()
    ingest(site, folder, page_size=12)
    (folder / "a.pdf").write_bytes(pages(24, p7="ABORT", p8="an edited page"))
    ingest(site, folder, page_size=12)
    [document] = site.rows("documents")
    assert (document.state, document.page_errors, document.live_generation) == ("success", 1, 2)
    assert {n: e["kind"] for n, e in errors(site).items()} == {7: "crashed"}
    live = [row for row in site.rows("leaves") if row.generation == 2 and row.page_id]
    assert {row.number for row in live} == set(range(1, 25)) - {7}


@pytest.mark.parametrize(
    ("word", "kind", "limits"),
    [
        # Long enough for a fresh child on a busy machine to load its libraries.
        ("HANG", "stalled", {"stall_timeout": 12.0}),
        ("HUNGRY", "memory", {"memory": 900 << 20}),
    ],
)
def test_a_page_that_takes_all_time_or_memory_is_quarantined_too(
    embedded: Site, folder: Path, word: str, kind: str, limits: dict[str, float]
):
    (embedded.home / "limits.json").write_text(json.dumps(limits))
    # Each crash takes its time: the page is alone from the start.
    quarantined(embedded, folder, word, kind, 2, page_size=1)


def quarantined(
    site: Site,
    folder: Path,
    word: str,
    kind: str,
    count: int,
    *,
    page_size: int,
    prefix: Sequence[str] = (),
) -> None:
    """Take in a book whose second page holds the word, and find all but that page."""
    (folder / "a.pdf").write_bytes(pages(count, p2=word))
    (folder / "b.txt").write_text("an innocent file")
    site.settings.update(plugins=POISON)
    site.worker(prefix=prefix)
    job = ingest(site, folder, page_size=page_size)
    assert site.job(job).state == "completed", site.logs()
    index = logical_index(site.app.db, folder)
    assert index["file:///b.txt"]["state"] == "success"
    book = index["file:///a.pdf"]
    assert (book["state"], book["page_errors"]) == ("success", 1), errors(site)
    assert [p["text"] for p in book["pages"]] == [
        None if n == 2 else f"page number {n}" for n in range(1, count + 1)
    ]
    [(number, why)] = errors(site).items()
    assert (number, why["kind"]) == (2, kind)
    assert why["command"].endswith("--page 2")
    assert ("SIGABRT" in why["error"]) == (word == "ABORT"), why
    assert set(why) == {"kind", "error", "peak_rss", "seconds", "task_id", "command"}
    site.assert_healthy()


def test_two_bad_pages_of_a_small_document_cost_two_pages(embedded: Site, folder: Path):
    (folder / "a.pdf").write_bytes(pages(6, p1="ABORT", p6="ABORT"))
    embedded.settings.update(plugins=POISON)
    embedded.worker()
    ingest(embedded, folder)
    assert sorted(errors(embedded)) == [1, 6]
    [document] = embedded.rows("documents")
    assert (document.state, document.pages, document.page_errors) == ("success", 6, 2)
    embedded.assert_healthy()


def test_a_document_of_bad_pages_only_is_failed_and_the_rest_goes_on(site: Site, folder: Path):
    (folder / "a.pdf").write_bytes(pages(2, p1="ABORT", p2="ABORT"))
    (folder / "a.html").write_text("<p>ABORT</p>")
    (folder / "b.txt").write_text("an innocent file")
    site.settings.update(plugins=POISON)
    site.worker()
    job = ingest(site, folder)
    states = {row.name: (row.state, row.error) for row in site.rows("documents")}
    assert states["b.txt"] == ("success", None)
    assert states["a.pdf"][0] == states["a.html"][0] == "failed"
    assert "No page could be read (2 tried)" in states["a.pdf"][1]
    assert "SIGABRT" in states["a.html"][1]
    assert site.job(job).state == "completed"
    site.assert_healthy()


def test_a_page_that_cannot_be_drawn_costs_no_more_than_its_picture(embedded: Site, folder: Path):
    (folder / "a.pdf").write_bytes(pages(3, p1="UNDRAWABLE words"))
    embedded.settings.update(plugins=POISON)
    embedded.worker()
    ingest(embedded, folder, thumbnails="true")
    [document] = embedded.rows("documents")
    assert (document.state, document.page_errors, document.thumbnail) == ("success", 0, None)
    embedded.assert_healthy()


def has_left(task: Callable[[], Any], fence: int) -> bool:
    """Tell whether a run of the task is over."""
    return (task().fence, task().state) != (fence, "running")


def test_kills_from_outside_quarantine_nothing(site: Site, folder: Path):
    (folder / "a.pdf").write_bytes(pages(3, p2="HANG"))
    site.settings.update(plugins=POISON, concurrency=2)
    worker = site.worker()
    job = site.submit("ingest", sources=[str(folder)], settings={**PLAIN, "page_size": 1})

    def task() -> Any:
        """The task that reads page 2, which it does until it is killed."""
        return next((row for row in site.rows("tasks") if row.from_page == 2), None)

    for _ in range(3):
        until(lambda: task() and task().state == "running", what=site.logs)
        fence = task().fence
        for child in worker.children():
            os.kill(child.pid, signal.SIGKILL)
        until(functools.partial(has_left, task, fence), what=site.logs)
    assert task().crashes >= 3
    assert errors(site) == {}
    outcomes = [row.outcome for row in site.rows("attempts") if row.task_id == task().id]
    assert outcomes.count("died") >= 3
    assert [row.state for row in site.rows("documents")] == ["indexing"]
    jobs.cancel(site.app.caller, [job])
    site.assert_healthy()
