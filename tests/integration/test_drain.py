"""A worker that is asked to leave: running tasks end, claimed ones go back, nothing is counted."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.integration.processes import Site
from tests.waiting import stays, until


@pytest.mark.core
def test_a_draining_worker_finishes_what_runs_and_returns_what_does_not(site: Site):
    worker = site.worker(concurrency=1)
    fast = site.submit_many("i.wait", [{"tag": "f", "seconds": 0}] * 60)
    site.until_over(fast)
    jobs = site.submit_many("i.gated", [{"tag": "a"}, *({"tag": f"b{n}"} for n in range(5))])
    site.until_traced("began", "a")
    worker.tell(signal.SIGTERM)
    until(lambda: worker.logs("worker.draining"))
    assert stays(lambda: worker.popen.poll() is None, during=0.5)
    site.open_gate()
    assert worker.popen.wait(30) == 0, worker.log
    assert site.effects() == ["a"]
    assert site.states(jobs)["completed"] == 1
    assert not site.rows("tasks", state="running")
    assert {site.task(job).attempt for job in jobs[1:]} == {0}
    assert site.own_processes() == []
    assert not list(site.home.glob("scratch/*"))
    [row] = site.rows("workers")
    assert row.state == "stopped"
    site.assert_healthy()


def test_a_second_signal_ends_a_worker_at_once_and_gives_its_leases_back(site: Site):
    worker = site.worker(lease_seconds=60)
    jobs = [site.submit("i.gated", tag=tag) for tag in "ab"]
    for tag in "ab":
        site.until_traced("began", tag)
    worker.tell(signal.SIGTERM)
    until(lambda: worker.logs("worker.draining"))
    worker.tell(signal.SIGTERM)
    assert worker.popen.wait(10) == 0, worker.log
    assert [(site.task(j).state, site.task(j).attempt, site.task(j).crashes) for j in jobs] == [
        ("ready", 0, 0)
    ] * 2
    assert [site.outcomes(j) for j in jobs] == [["returned"]] * 2
    assert site.own_processes() == []
    site.assert_healthy()


def test_the_grace_of_a_drain_ends_and_what_still_runs_is_returned(site: Site):
    worker = site.worker(stop_grace=1, lease_seconds=60)
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    assert worker.leave(30) == 0, worker.log
    task = site.task(job)
    assert (task.state, task.attempt, task.crashes) == ("ready", 0, 0)
    site.open_gate()
    site.worker()
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == ["a"]
    site.assert_healthy()


def test_ctrl_c_on_a_supervisor_drains_its_processes(site: Site):
    up = site.start("up", "--workers", "2")
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    up.tell(signal.SIGINT)
    until(lambda: up.logs("worker.draining"))
    site.open_gate()
    assert up.popen.wait(60) == 0, up.log
    assert site.job(job).state == "completed"
    assert site.effects() == ["a"]
    assert site.own_processes() == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="the libraries of a process are read from /proc"
)
def test_processes_of_a_supervisor_load_only_what_they_use(embedded: Site):
    up = embedded.start("up", "--no-api")
    until(lambda: up.logs("worker.started") and up.logs("scheduler.started"), what=lambda: up.log)
    loaded = {each.pid: " ".join(m.path for m in each.memory_maps()) for each in up.tree()}
    assert len(loaded) == 3 + embedded.settings["concurrency"]
    assert not [pid for pid, paths in loaded.items() if "pydantic" in paths], "Typer imports it"
    without = [pid for pid, paths in loaded.items() if "sqlalchemy" not in paths]
    assert up.pid in without and len(without) == 1 + embedded.settings["concurrency"]
    assert up.leave() == 0
