"""A host whose wall clock is wrong, or jumps while leases run: nothing is stolen or repeated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from quire.model.records import Submission
from tests.integration.processes import Running, Site, pause
from tests.waiting import until

HOUR = 3600.0

#: Asks a file of the home, at each look at the clock, by how much the clock is wrong.
SHIFTED = """
import os, time
_real, _path = time.time, os.environ["CLOCK_SHIFT"]
def _wrong():
    with open(_path) as shift:
        return _real() + float(shift.read())
time.time = _wrong
"""


def set_clock(site: Site, seconds: float, host: str = "shift") -> None:
    """Let the clock of that host jump, in one step: nobody reads half a number."""
    fresh = site.home / f"{host}.new"
    fresh.write_text(str(seconds))
    fresh.rename(site.home / host)


def shifted(site: Site, seconds: float, host: str = "shift", **settings: Any) -> Running:
    """A worker on a host whose wall clock is wrong, in the worker and in its children."""
    folder = site.home / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SHIFTED)
    set_clock(site, seconds, host)
    path = site.environment()["PYTHONPATH"]
    prefix = ["env", f"PYTHONPATH={folder}:{path}", f"CLOCK_SHIFT={site.home / host}"]
    running = site.start(prefix=prefix, **settings)
    until(lambda: running.logs("worker.started"), what=lambda: running.log)
    return running


def test_a_clock_that_jumps_while_leases_run_ends_none_of_them(site: Site):
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
    for shift in (HOUR, -HOUR):
        set_clock(site, shift)
        pause(1.5 * lease)
        assert [site.task(job).fence for job in held] == fences, site.logs()
    # It is wrong in either direction, and all ends and begins as ever.
    site.open_gate()
    more = [site.submit("i.effect", tag="c")]
    assert site.until_over([*held, *more]) == {"completed": 3}
    for shift, tag in ((HOUR, "d"), (0.0, "e")):
        set_clock(site, shift)
        more.append(site.submit("i.effect", tag=tag))
        assert site.until_over(more[-1]) == {"completed": 1}
    assert {tuple(site.outcomes(job)) for job in (*held, *more)} == {("done",)}
    assert {row.crashes for row in site.rows("tasks")} == {0}
    assert site.effects() == ["a", "b", "c", "d", "e"]
    assert first.popen.poll() is None
    assert not first.logs("worker.dead") and not first.logs("task.reaped")
    site.assert_healthy()


def test_a_host_whose_clock_jumped_steals_and_loses_nothing(pg_url: str, home: Path):
    site = Site(home, pg_url).prepare()
    try:
        site.settings.update(poll_interval=60)
        site.worker(concurrency=1)
        tags = ["held"]
        held = [site.submit("i.gated", tag="held")]
        site.until_traced("began", "held")
        wrong = []
        for host, shift in (("fast", HOUR), ("slow", -HOUR)):
            wrong.append(shifted(site, shift, host, concurrency=1))
            held.append(site.submit("i.gated", tag=host))
            tags.append(host)
            site.until_traced("began", host)
        fences = [site.task(job).fence for job in held]
        pause(2 * site.settings["lease_seconds"])
        assert [site.task(job).fence for job in held] == fences
        site.open_gate()
        assert site.until_over(held) == {"completed": 3}
        assert [site.outcomes(job) for job in held] == [["done"]] * 3
        due = time.time() + 2
        later = [Submission("i.wait", {"tag": f"{n}", "seconds": 0.2}, run_at=due) for n in "abc"]
        jobs = site.app.submit_many(later)
        parents = [each.tree()[0] for each in wrong]
        before = [sum(each.cpu_times()[:2]) for each in parents]
        assert site.until_over(jobs, within=40) == {"completed": 3}
        # They wait for the moment instead of asking for it without a pause.
        for parent, seconds in zip(parents, before, strict=True):
            assert sum(parent.cpu_times()[:2]) - seconds < 1.5
        for job in jobs:
            [run] = site.attempts(job)
            assert due <= run.began_at <= run.finished_at < due + 60
            assert 0.15 < run.duration < 60
        assert site.effects() == sorted(tags)
        site.assert_healthy()
    finally:
        site.close()
