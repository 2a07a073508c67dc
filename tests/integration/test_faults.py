"""What handlers do wrong, through a real worker: the right state and a plain error for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire.model.records import Submission
from tests.integration.processes import Site, is_alive
from tests.waiting import until

FAULTS: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("i.raises", {}, ["failed", "failed"], "KeyError: 'no such page'"),
    ("i.permanent", {}, ["failed"], "the file is empty"),
    ("i.exits", {}, ["failed"], "handler called sys.exit(3)"),
    ("i.hard_exit", {}, ["crashed"], "the child exited with code 7"),
    ("i.segfault", {}, ["crashed"], "killed by SIGSEGV"),
    ("i.too_long", {}, ["timeout"], "ran longer than its limit of 0.5 s"),
    ("i.holds_gil_limited", {}, ["timeout"], "ran longer than its limit of 0.5 s"),
    ("i.stalls", {}, ["stalled"], "made no progress for 0.6 s"),
    ("i.not_json", {}, ["failed"], "the result cannot be written as JSON"),
    ("i.nan", {}, ["failed"], "the result cannot be written as JSON"),
    ("i.wait", {"wrong": 1}, ["failed"], "the payload does not match the handler's parameters"),
]
SUCCESSES: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("i.transient", {"tag": "t", "fails": 2}, ["failed", "failed", "done"], '"try 3"'),
    ("i.named_wait", {}, ["failed", "done"], '"done"'),
    ("i.prints", {}, ["done"], '"printed"'),
    ("i.forks", {"tag": "f"}, ["done"], '"forked"'),
]


def test_every_fault_of_a_handler_ends_its_job_with_a_plain_error(site: Site):
    worker = site.worker()
    wishes = [Submission(kind, payload) for kind, payload, _, _ in [*FAULTS, *SUCCESSES]]
    jobs = site.app.submit_many(wishes)
    site.until_over(jobs)
    for job, (kind, _, outcomes, text) in zip(jobs, FAULTS, strict=False):
        row = site.job(job)
        assert (kind, row.state, site.outcomes(job)) == (kind, "failed", outcomes)
        assert text in row.error, kind
        assert "\n" not in row.error, kind
    for job, (kind, _, outcomes, result) in zip(jobs[len(FAULTS) :], SUCCESSES, strict=True):
        row = site.job(job)
        assert (kind, row.state, row.result) == (kind, "completed", result), row.error
        assert site.outcomes(job) == outcomes
        assert row.error is None
    assert worker.popen.poll() is None
    # It still works, and what a handler forked does not outlive its child.
    assert site.until_over(site.submit("i.wait", tag="after", seconds=0)) == {"completed": 1}
    assert worker.leave() == 0
    assert site.own_processes() == []
    site.assert_healthy()


def test_a_handler_that_takes_all_memory_is_killed_at_its_limit(site: Site):
    site.worker()
    job = site.submit("i.hog")
    assert site.until_over(job) == {"failed": 1}
    assert site.outcomes(job) == ["memory"]
    assert "MB of memory (limit 300 MB)" in site.job(job).error
    assert site.attempts(job)[0].peak_rss > 200_000_000


def test_the_traceback_and_the_last_output_are_kept(embedded: Site):
    embedded.worker()
    raised, left = embedded.submit("i.raises"), embedded.submit("i.hard_exit")
    embedded.until_over([raised, left])
    assert 'raise KeyError("no such page")' in embedded.attempts(raised)[-1].traceback
    assert "quire/runtime/child/main.py" not in embedded.attempts(raised)[-1].traceback
    assert "leaving now" in embedded.attempts(left)[-1].traceback


def test_a_program_that_a_handler_started_dies_with_it(embedded: Site):
    embedded.worker()
    job = embedded.submit("i.leaves_program", tag="a")
    pid = int(embedded.until_traced("program", "a")[2])
    embedded.until_over(job)
    until(lambda: not is_alive(pid))
    assert embedded.outcomes(job) == ["timeout"]


def test_a_job_that_must_not_run_twice_is_lost_when_its_child_dies(site: Site):
    import os
    import signal

    site.worker()
    job = site.submit("i.pays", tag="a")
    pid = int(site.until_traced("began", "a")[2])
    os.kill(pid, signal.SIGKILL)
    assert site.until_over(job) == {"failed": 1}
    assert site.task(job).state == "lost"
    assert "It must not run twice: it pays" in site.job(job).error
    assert len(site.trace("began", "a")) == 1


@pytest.fixture
def bad_plugin(embedded: Site) -> Iterator[str]:
    path = embedded.home / "bad.py"
    path.write_text("raise RuntimeError('no licence')\n")
    yield str(path)


def test_a_worker_whose_plugin_does_not_load_says_so_and_ends(embedded: Site, bad_plugin: str):
    worker = embedded.start("worker", plugins=bad_plugin)
    assert worker.popen.wait(60) == 1
    assert "bad.py" in worker.log and "no licence" in worker.log
    assert "Traceback" not in worker.log
