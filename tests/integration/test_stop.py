"""Promise G7: stop means stop. Nothing is written after it; running work dies soon."""

from __future__ import annotations

import functools
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.integration.processes import Site, is_alive, is_stopped
from tests.waiting import stays, until


def is_dead(pid: int) -> bool:
    return not is_alive(pid)


@pytest.mark.core
def test_a_stopped_job_is_dead_soon_and_writes_nothing_more(site: Site):
    site.worker(poll_interval=30, concurrency=4)
    latencies = []
    for first in range(0, 20, 4):
        batch = range(first, first + 4)
        jobs = site.submit_many("i.deaf", [{"tag": f"{n}"} for n in batch])
        pids = [int(site.until_traced("began", n)[2]) for n in batch]
        assert site.stop(*jobs) == jobs
        stopped = time.monotonic()
        for pid in pids:
            until(functools.partial(is_dead, pid), within=20, what=site.logs)
            latencies.append(time.monotonic() - stopped)
    latencies.sort()
    print(f"stop to death: median {latencies[10]:.2f} s, most {latencies[-1]:.2f} s (grace 0.5)")
    assert latencies[-1] < 5
    site.open_gate()
    assert stays(lambda: not site.effects(), during=0.3)
    assert site.states() == {"stopped": 20}
    site.assert_healthy()


def test_a_handler_that_asks_stops_by_itself_and_its_attempt_is_given_back(site: Site):
    site.worker()
    job = site.submit("i.polite", tag="a")
    pid = int(site.until_traced("began", "a")[2])
    site.stop(job)
    site.until_traced("stopped", "a", within=10)
    until(lambda: not site.rows("tasks", state="running"))
    assert is_alive(pid)
    task = site.task(job)
    assert (task.state, task.reason, task.attempt) == ("blocked", "stopped", 0)
    assert site.outcomes(job) == ["stopped"]


def test_a_handler_that_holds_the_interpreter_is_stopped_too(site: Site):
    site.worker()
    job = site.submit("i.holds_gil", tag="a")
    pid = int(site.until_traced("began", "a")[2])
    site.stop(job)
    until(lambda: not is_alive(pid), within=10, what=site.logs)
    assert site.job(job).state == "stopped"


def test_a_fenced_write_after_the_stop_is_refused_even_before_the_worker_knows(site: Site):
    worker = site.worker()
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    from quire.store.queue import job_actions

    # No ring, no notification: the child meets the fence first.
    site.app.db.write(lambda conn, now: job_actions.halt(conn, [job], "stop", None, now=now))
    site.open_gate()
    until(lambda: site.trace("refused", "a") or worker.logs("task.revoked"))
    assert stays(lambda: not site.effects(), during=0.5)
    assert site.job(job).state == "stopped"


@pytest.mark.core
def test_resume_runs_only_what_is_pending(site: Site):
    worker = site.worker()
    job = site.submit("i.parent", tag="p", count=6)
    assert site.until_over(job) == {"completed": 1}
    more = site.submit_many("i.gated", [{"tag": f"g{n}", "gate": f"gate{n}"} for n in range(4)])
    site.until_traced("began", "g0")
    site.open_gate("gate0")
    site.until_traced("ended", "g0")
    site.until_traced("began", "g1")
    assert set(site.stop(*more)) >= set(more[1:])
    until(lambda: not site.rows("tasks", state="running"), what=lambda: worker.log)
    before = site.effects()
    for n in range(1, 4):
        site.open_gate(f"gate{n}")
    site.resume(*more)
    assert site.until_over(more) == {"completed": 4}
    assert site.effects() == sorted([*before, "g1", "g2", "g3"])
    assert len(site.trace("began", "g0")) == 1
    site.assert_healthy()


def test_a_cancelled_job_ends_and_cannot_resume(site: Site):
    from quire.control import jobs

    site.worker()
    job = site.submit("i.deaf", tag="a")
    pid = int(site.until_traced("began", "a")[2])
    assert jobs.cancel(site.app.caller, [job]) == [job]
    until(lambda: not is_alive(pid), within=20, what=site.logs)
    assert site.job(job).state == "cancelled"
    assert site.resume(job) == []
    site.assert_healthy()


def test_what_must_not_run_twice_and_was_stopped_before_it_began_runs_when_resumed(site: Site):
    worker = site.worker(concurrency=1)
    [child] = worker.children()
    child.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(child.pid))
    job = site.submit("i.once", tag="a")
    until(lambda: site.task(job).state == "running", what=site.logs)
    site.stop(job)
    until(lambda: worker.logs("task.revoked"), what=site.logs)
    child.send_signal(signal.SIGCONT)
    until(lambda: site.task(job).state != "running", what=site.logs)
    task = site.task(job)
    assert (task.state, task.reason, site.trace("began")) == ("blocked", "stopped", [])
    site.resume(job)
    assert site.until_over(job) == {"completed": 1}
    assert len(site.trace("began", "a")) == 1
    site.assert_healthy()


def test_what_must_not_run_twice_is_lost_when_its_worker_is_told_to_stop_at_once(site: Site):
    worker = site.worker()
    job = site.submit("i.pays", tag="a")
    site.until_traced("began", "a")
    worker.tell(signal.SIGTERM)
    until(lambda: worker.logs("worker.draining"), what=site.logs)
    worker.leave()
    assert (site.task(job).state, site.job(job).state) == ("lost", "failed")
    assert "must not run twice" in site.job(job).error


def test_a_stopped_run_dies_although_its_worker_has_claimed_the_task_again(pg_url: str, home: Path):
    site = Site(home, pg_url).prepare()
    try:
        worker = site.worker(concurrency=3)
        deaf, other = (
            site.submit("i.deaf", tag="a"),
            site.submit("i.gated_plain", tag="b", gate="b-gate"),
        )
        first = int(site.until_traced("began", "a")[2])
        site.until_traced("began", "b")
        with psycopg.connect(site.url) as holder:
            holder.execute("SELECT id FROM jobs WHERE id = %s FOR NO KEY UPDATE", [other])
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            waits += " AND datname = current_database()"
            site.open_gate("b-gate")
            until(lambda: holder.execute(waits).fetchone() != (0,), what=site.logs)
            # The worker waits in the transaction that will claim the task again.
            assert site.stop(deaf) == site.resume(deaf) == [deaf]
        second = int(site.until_traced("began", "a", times=2)[2])
        until(lambda: not is_alive(first), within=10, what=site.logs)
        assert is_alive(second) and len(worker.logs("task.revoked")) == 1
        assert (site.task(deaf).state, site.outcomes(deaf)) == ("running", ["stopped"])
    finally:
        site.close()
