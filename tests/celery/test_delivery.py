"""Delivery by Celery over Redis: who is rung for, who hears it, and how it ends."""

from __future__ import annotations

from tests.brokers import Valkey
from tests.integration.processes import Site
from tests.waiting import until


def test_jobs_run_for_doorbells_and_none_is_left(site: Site, valkey: Valkey):
    scheduler = site.start("scheduler")
    worker = site.start("worker", poll_interval=600)
    until(lambda: worker.logs("worker.started"), what=lambda: site.logs())
    ids = site.submit_many("i.effect", [{"tag": f"t{n}"} for n in range(50)])
    assert site.until_over(ids) == {"completed": 50}
    assert site.effects() == sorted(f"t{n}" for n in range(50))
    until(lambda: valkey.length() == 0)
    print(scheduler.log, worker.log)
    assert worker.leave() == 0, worker.log
    assert scheduler.leave() == 0
    site.assert_healthy()
