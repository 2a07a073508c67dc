"""`quire health` tells who is well, as the health checks of containers and units use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.integration.processes import Site
from tests.waiting import until

#: Several programs start one after the other.
pytestmark = pytest.mark.timeout(400)


def ask(site: Site, *role: str, **settings: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    ended = subprocess.run(
        [sys.executable, "-m", "quire", "health", *role, "--json"],
        env=site.environment(**settings), capture_output=True, text=True, cwd=site.home,
    )  # fmt: skip
    assert ended.stdout, ended.stderr
    return ended.returncode, {one["role"]: one for one in json.loads(ended.stdout)["items"]}


def test_processes_that_run_are_well_and_those_that_were_killed_are_not(site: Site):
    # The column of a broker has a scheduler of its own.
    assert [ask(site, role)[0] for role in ("worker", "api")] == [1, 1]
    worker, scheduler, api = site.worker(), site.start("scheduler"), site.start("api")
    until(lambda: scheduler.logs("scheduler.started") and api.logs("api.started"))
    until(lambda: ask(site)[0] == 0, what=lambda: ask(site))
    code, found = ask(site)
    assert set(found) == {"api", "worker", "scheduler"}
    worker.kill()
    code, found = ask(site, "worker")
    assert (code, found["worker"]["healthy"]) == (1, False)
    assert ask(site, "scheduler")[0] == 0
    assert (scheduler.leave(), api.leave()) == (0, 0)
    assert ask(site, "api")[0] == 1


def test_a_worker_that_does_not_beat_for_a_lease_is_not_well(site: Site):
    worker = site.worker(lease_seconds=2)
    worker.tell(signal.SIGSTOP)
    until(lambda: ask(site, "worker", lease_seconds=2)[0] == 1)
    worker.tell(signal.SIGCONT)
    until(lambda: ask(site, "worker", lease_seconds=2)[0] == 0)


def test_a_worker_whose_database_is_away_is_well(embedded: Site):
    embedded.worker()
    elsewhere = "postgresql://nobody@127.0.0.1:1/none"
    code, found = ask(embedded, "worker", database_url=elsewhere)
    assert (code, "waits for the database" in found["worker"]["detail"]) == (0, True)


def test_a_scheduler_whose_round_does_not_end_is_not_well(embedded: Site):
    assert ask(embedded)[0] == 1  # nobody is there
    scheduler = embedded.start("scheduler", sweep_interval=3600)
    until(lambda: scheduler.logs("scheduler.started"))
    [lock] = (embedded.home / "run").glob("scheduler-*.lock")
    assert ask(embedded, "scheduler")[0] == 0
    long_ago = time.time() - 3600
    os.utime(lock, (long_ago, long_ago))
    assert ask(embedded, "scheduler")[0] == 1
