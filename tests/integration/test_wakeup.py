"""Jobs start at once: rings, due times, priorities, and workers that know different kinds."""

from __future__ import annotations

import time

import pytest

from quire.model.records import Submission
from tests.integration.processes import HANDLERS, OTHERS, Site, pause
from tests.waiting import until


@pytest.mark.core
def test_an_idle_worker_picks_up_a_job_at_once(site: Site):
    site.worker(poll_interval=30, sweep_interval=30)
    site.until_over(site.submit("i.wait", tag="warm", seconds=0))
    pause(0.5)
    began = time.monotonic()
    site.submit("i.wait", tag="a", seconds=0)
    site.until_traced("began", "a", within=5)
    print(f"picked up after {(time.monotonic() - began) * 1000:.0f} ms")


@pytest.mark.core
def test_a_job_that_is_due_later_runs_on_time_without_a_poll(site: Site):
    site.worker(poll_interval=60, sweep_interval=60)
    site.until_over(site.submit("i.wait", tag="warm", seconds=0))
    due = time.time() + 1.5
    [job] = site.app.submit_many([Submission("i.wait", {"tag": "a", "seconds": 0}, run_at=due)])
    assert site.until_over(job, within=20) == {"completed": 1}
    late = site.attempts(job)[0].began_at - due
    print(f"began {late * 1000:.0f} ms after it was due")
    assert 0 <= late < 5


def test_a_retry_runs_when_its_backoff_is_over_without_a_poll(site: Site):
    site.worker(poll_interval=60, sweep_interval=60)
    job = site.submit("i.transient", tag="a", fails=2)
    assert site.until_over(job, within=20) == {"completed": 1}
    assert site.outcomes(job) == ["failed", "failed", "done"]


@pytest.mark.core
def test_urgent_jobs_go_first(site: Site):
    wishes = [
        Submission("i.wait", {"tag": f"p{priority}-{n}", "seconds": 0}, priority=priority)
        for n in range(3)
        for priority in (7, 5, 1)
    ]
    jobs = site.app.submit_many(wishes)
    site.worker(concurrency=1)
    assert site.until_over(jobs) == {"completed": 9}
    order = [line[1][:2] for line in site.trace("began")]
    assert order == ["p1"] * 3 + ["p5"] * 3 + ["p7"] * 3


def test_two_workers_share_the_work(site: Site):
    for _ in range(2):
        site.worker(concurrency=1)
    jobs = site.submit_many("i.gated", [{"tag": f"{n}"} for n in range(2)])
    for n in range(2):
        site.until_traced("began", n)
    assert len({site.task(job).worker_id for job in jobs}) == 2
    site.open_gate()
    assert site.until_over(jobs) == {"completed": 2}


def test_a_kind_that_one_worker_does_not_know_is_run_by_the_one_that_does(site: Site):
    site.worker()
    jobs = site.submit_many("o.rare", [{"tag": f"{n}"} for n in range(5)])
    until(lambda: all(site.task(job).state == "blocked" for job in jobs), what=site.logs)
    assert {site.task(job).reason for job in jobs} == {"no_worker"}
    site.worker(plugins=f"{HANDLERS},{OTHERS}")
    assert site.until_over(jobs) == {"completed": 5}
    assert len(site.trace("rare")) == 5
    assert {site.task(job).attempt for job in jobs} == {1}
    site.assert_healthy()


def test_tasks_that_a_worker_cannot_run_do_not_hide_those_behind_them(site: Site):
    site.worker(poll_interval=60, sweep_interval=60)
    site.until_over(site.submit("i.wait", tag="warm", seconds=0))
    site.app.submit_many(
        [
            *[Submission("o.rare", {"tag": "x"}, priority=1)] * 10,
            Submission("i.wait", {"tag": "a", "seconds": 0}),
        ]
    )
    site.until_traced("began", "a", within=10)


def test_a_worker_serves_all_its_queues(embedded: Site):
    from quire.control import jobs

    embedded.worker(queues="default,slow")
    job = embedded.submit("i.wait", tag="a", seconds=0)
    assert embedded.until_over(job) == {"completed": 1}
    jobs.pause(embedded.app.caller, "i.wait")
    held = embedded.submit("i.wait", tag="b", seconds=0)
    pause(0.5)
    assert embedded.trace("began", "b") == []
    jobs.unpause(embedded.app.caller, "i.wait")
    assert embedded.until_over(held) == {"completed": 1}
