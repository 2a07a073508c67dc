"""A host whose wall clock is wrong, or jumps while leases run: nothing is stolen or repeated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from quire.model.records import Submission
from tests.integration.processes import Running, Site, pause
from tests.waiting import until

#: Asks a file of the home, at each look at the clock, by how much the clock is wrong.
SHIFTED = """
import os, time
_real, _path = time.time, os.environ["CLOCK_SHIFT"]
def _wrong():
    with open(_path) as shift:
        return _real() + float(shift.read())
time.time = _wrong
"""


def set_clock(site: Site, seconds: float) -> None:
    """Let the clock of that host jump, in one step: nobody reads half a number."""
    fresh = site.home / "shift.new"
    fresh.write_text(str(seconds))
    fresh.rename(site.home / "shift")


def shifted(site: Site, seconds: float, **settings: Any) -> Running:
    """A worker on a host whose wall clock is wrong, in the worker and in its children."""
    folder = site.home / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SHIFTED)
    set_clock(site, seconds)
    path = site.environment()["PYTHONPATH"]
    prefix = ["env", f"PYTHONPATH={folder}:{path}", f"CLOCK_SHIFT={site.home / 'shift'}"]
    running = site.start(prefix=prefix, **settings)
    until(lambda: running.logs("worker.started"), what=lambda: running.log)
    return running


@pytest.mark.timeout(240)
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_while_leases_run_ends_none_of_them(site: Site, jump: float):
    first = shifted(site, 0.0, concurrency=1)
    # Processes that share an embedded database share the clock of its host.
    if site.url:
        site.worker(concurrency=1)
    else:
        shifted(site, 0.0, concurrency=1)
    held = [site.submit("i.gated", tag=tag) for tag in "ab"]
    for tag in "ab":
        site.until_traced("began", tag)
    fences = [site.task(job).fence for job in held]
    lease = site.settings["lease_seconds"]
    for shift in (jump, 0.0):
        set_clock(site, shift)
        pause(1.5 * lease)
        assert [site.task(job).fence for job in held] == fences, site.logs()
    # It jumps once more, and all ends and begins as ever.
    set_clock(site, jump)
    site.open_gate()
    more = [site.submit("i.effect", tag=tag) for tag in "cd"]
    assert site.until_over([*held, *more]) == {"completed": 4}
    assert {tuple(site.outcomes(job)) for job in (*held, *more)} == {("done",)}
    assert {row.crashes for row in site.rows("tasks")} == {0}
    assert site.effects() == ["a", "b", "c", "d"]
    assert first.popen.poll() is None
    assert not first.logs("worker.dead") and not first.logs("task.reaped")
    set_clock(site, 0.0)
    site.assert_healthy()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shift", [3600.0, -3600.0])
def test_a_host_whose_clock_jumped_steals_and_loses_nothing(pg_url: str, home: Path, shift: float):
    site = Site(home, pg_url).prepare()
    try:
        site.settings.update(poll_interval=60)
        site.worker(concurrency=1)
        held = site.submit("i.gated", tag="held")
        site.until_traced("began", "held")
        wrong = shifted(site, shift, concurrency=1)
        own = site.submit("i.gated", tag="own")
        site.until_traced("began", "own")
        fences = [site.task(job).fence for job in (held, own)]
        pause(2 * site.settings["lease_seconds"])
        assert [site.task(job).fence for job in (held, own)] == fences
        site.open_gate()
        assert site.until_over([held, own]) == {"completed": 2}
        assert [site.outcomes(job) for job in (held, own)] == [["done"], ["done"]]
        due = time.time() + 2
        later = [Submission("i.wait", {"tag": f"{n}", "seconds": 0.2}, run_at=due) for n in "ab"]
        jobs = site.app.submit_many(later)
        parent = wrong.tree()[0]
        before = sum(parent.cpu_times()[:2])
        assert site.until_over(jobs, within=40) == {"completed": 2}
        # It waits for the moment instead of asking for it without a pause.
        assert sum(parent.cpu_times()[:2]) - before < 1.5
        for job in jobs:
            [run] = site.attempts(job)
            assert due <= run.began_at <= run.finished_at < due + 60
            assert 0.15 < run.duration < 60
        assert site.effects() == ["held", "own"]
        site.assert_healthy()
    finally:
        site.close()
