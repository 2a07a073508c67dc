"""Claims that run ahead: a slow head must not hold what was claimed behind it."""

from __future__ import annotations

import time

from tests.integration.processes import Site
from tests.waiting import until


def test_a_slow_task_does_not_hold_what_was_claimed_behind_it(site: Site):
    site.worker(concurrency=2, lease_seconds=60)
    warm = site.submit_many("i.nothing", [{}] * 600)
    assert site.until_over(warm) == {"completed": 600}
    # Runs were short so far, so claims run far ahead.
    began = time.monotonic()
    wishes = [
        {"tag": "slow", "seconds": 25.0},
        *({"tag": f"{n:02}", "seconds": 0} for n in range(40)),
    ]
    jobs = site.submit_many("i.wait", wishes)
    until(lambda: len(site.trace("ended")) >= 40, within=15, what=site.logs)
    print(f"forty tasks behind a slow one ended after {time.monotonic() - began:.2f} s")
    assert site.until_over(jobs[1:], within=15) == {"completed": 40}
    assert site.job(jobs[0]).state == "running"


def test_a_slow_run_of_a_fast_kind_gives_its_followers_back(site: Site):
    site.worker(concurrency=1, lease_seconds=60)
    fast = site.submit_many("i.wait", [{"tag": "f", "seconds": 0}] * 100)
    assert site.until_over(fast) == {"completed": 100}
    wishes = [
        {"tag": "slow", "seconds": 40.0},
        *({"tag": f"{n:02}", "seconds": 0} for n in range(9)),
    ]
    jobs = site.submit_many("i.wait", wishes)
    site.until_traced("began", "slow")
    site.worker(concurrency=1, lease_seconds=60)
    began = time.monotonic()
    for n in range(9):
        site.until_traced("ended", f"{n:02}", within=20)
    print(f"the followers were run elsewhere after {time.monotonic() - began:.2f} s")
    assert site.until_over(jobs[1:]) == {"completed": 9}
    assert site.job(jobs[0]).state == "running"
    assert {site.task(job).attempt for job in jobs} == {1}
