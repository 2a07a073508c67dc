"""What the pages of jobs tell: failed files in amber, who stopped it, the next attempt."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from quire.clock import iso
from quire.control import jobs
from quire.store.db.schema import queue as tables
from tests.web.conftest import Front


def test_a_completed_job_with_a_failed_file_is_amber_and_counts_it(front: Front):
    job_id = front.fill()["ingest"]
    with front.shelf.db.begin() as conn:
        mine = tables.jobs.c.id == job_id
        conn.execute(sa.update(tables.jobs).where(mine).values(state="completed"))
    visitor = front.visitor()
    for place in (f"/jobs/{job_id}", "/jobs?state=completed"):
        page = visitor.get(place)
        assert "completed with errors" in page.text
        assert ("span", "class", "badge warn") in page.attributes
        assert "3 of 3 files, 1 failed" in page.text
    assert "1 of 3 files failed." in visitor.get(f"/jobs/{job_id}").text


def test_the_error_of_a_file_is_told_once_on_the_page_of_its_job(front: Front):
    job_id = front.fill()["ingest"]
    [failed] = [each for each in front.shelf.rows("documents") if each.state == "failed"]
    page = front.visitor().get(f"/jobs/{job_id}").text.partition("Log")[0]
    assert failed.error.removeprefix(f"{failed.name}: ") in page
    assert failed.error not in page  # as tasks and attempts word it, with the name
    assert "Failed attempts" not in page


def test_a_file_that_failed_has_an_error_with_a_subject_on_its_card(front: Front):
    job_id = front.fill()["ingest"]
    for place in (f"/jobs/{job_id}", "/documents"):
        assert "The file is damaged or cut off" in front.visitor().get(place).text


def test_a_stopped_job_says_by_whom_on_its_page_and_in_the_list(front: Front):
    job_id = front.shelf.app.submit("ingest", sources=["x"])
    jobs.stop(replace(front.shelf.app.caller, user="ada"), [job_id], why="lunch")
    visitor = front.visitor()
    assert "stopped by ada just now: lunch" in visitor.get("/jobs").text
    assert "Stopped by ada just now: lunch." in visitor.get(f"/jobs/{job_id}").text


def test_a_failed_job_offers_resume_and_retry_and_no_cancel(front: Front):
    job_id = front.shelf.app.submit("ingest", sources=["/nowhere"])
    front.shelf.drain()
    page = front.visitor().get(f"/jobs/{job_id}")
    assert front.shelf.job(job_id).state == "failed"
    assert page.has_form(f"/jobs/{job_id}/resume") and page.has_form(f"/jobs/{job_id}/retry")
    assert not page.has_form(f"/jobs/{job_id}/cancel")


def test_a_job_that_waits_for_its_next_attempt_counts_down(front: Front):
    job_id = front.shelf.app.submit("ingest", sources=["x"])
    due_at = front.shelf.clock.now().wall + 58
    waits = {"state": "blocked", "reason": "backoff", "due_at": due_at, "attempt": 1,
             "error": "no route to host", "ready_at": None}  # fmt: skip
    with front.shelf.db.begin() as conn:
        mine = tables.tasks.c.job_id == job_id
        conn.execute(sa.update(tables.tasks).where(mine).values(**waits))
        counts = {"tasks_ready": 0, "tasks_blocked": 1, "state": "running"}
        mine = tables.jobs.c.id == job_id
        conn.execute(sa.update(tables.jobs).where(mine).values(**counts))
    page = front.visitor().get(f"/jobs/{job_id}")
    assert "next attempt in 58 s" in page.text
    assert "Next attempt in 58 s (2 of 6)." in page.text
    at = str(iso(due_at)).replace(".000Z", "+00:00")
    assert page.attributes.count(("time", "datetime", at)) >= 2
