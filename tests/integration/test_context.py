"""What a handler is given: durable steps, child tasks, scratch space, progress, a stable key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes import Site
from tests.waiting import until


@pytest.mark.core
def test_a_step_happens_once_although_the_process_died_after_it(site: Site):
    site.worker()
    job = site.submit("i.steps", tag="a")
    assert site.until_over(job) == {"completed": 1}
    assert len(site.trace("began", "a")) == 2
    assert len(site.trace("step", "a", "first")) == 1
    assert site.effects() == ["a-second"]
    assert site.job(job).result == '["one", 2, null]'
    site.assert_healthy()


def test_the_idempotency_key_is_the_same_in_every_try(site: Site):
    site.worker()
    first = site.submit("i.transient", tag="a", fails=2)
    second = site.submit("i.transient", tag="b", fails=0)
    assert site.until_over([first, second]) == {"completed": 2}
    keys = {line[4] for line in site.trace("began", "a")}
    assert len(keys) == 1
    assert len(site.trace("began", "a")) == 3
    assert keys != {line[4] for line in site.trace("began", "b")}


@pytest.mark.core
def test_children_are_added_once_and_the_last_one_waits_for_the_others(site: Site):
    site.worker()
    job = site.submit("i.parent", tag="p", count=5)
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == [*(f"p-{n}" for n in range(5)), "p-last"]
    assert site.trace("began")[-1][1] == "p-last"
    row = site.job(job)
    assert (row.tasks_done, row.progress) == (7, 1.0)
    site.assert_healthy()


def test_the_scratch_folder_is_removed_when_the_run_ends(site: Site):
    worker = site.worker()
    site.until_over(site.submit("i.scratch", tag="a"))
    folder = Path(site.until_traced("scratch", "a")[2])
    until(lambda: not folder.exists())
    assert worker.leave() == 0
    assert not list(site.home.glob("scratch/*"))


def test_the_scratch_folder_of_a_killed_worker_is_removed_by_the_next_one(site: Site):
    worker = site.worker()
    site.until_over(site.submit("i.scratch", tag="a", die=True))
    worker.kill()
    other = site.worker()
    until(lambda: other.logs("worker.dead"))
    assert other.leave() == 0
    assert not list(site.home.glob("scratch/*"))


def test_progress_and_messages_arrive_and_never_go_back(site: Site):
    site.worker()
    job = site.submit("i.reports", tag="a")
    seen = []

    def look() -> bool:
        row = site.job(job)
        seen.append(row.progress)
        return bool(row.message == "at 0.8")

    until(look, what=lambda: f"{site.job(job)}")
    assert seen == sorted(seen)
    assert site.job(job).progress == 0.8
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert site.job(job).progress == 1.0
    messages = [e.detail for e in site.rows("events", job_id=job) if e.name == "progress"]
    assert messages and "at 0.8" in str(messages[-1])


def test_what_follows_the_fenced_end_is_not_taken_for_a_stopped_run(site: Site):
    worker = site.worker(concurrency=1)
    # Longer than it takes to look for lost leases, and than the grace of a stop.
    first, second = (site.submit("i.tidies", tag=tag, seconds=1.2) for tag in "ab")
    site.until_traced("tidied", "b", within=20)
    assert site.until_over([first, second]) == {"completed": 2}
    pids = {pid for _, _, pid in site.trace("tidied")}
    assert len(pids) == 1, "the child was killed"
    assert not worker.logs("task.revoked") and not worker.logs("task.refused")
