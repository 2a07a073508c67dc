"""Celery workers that are stopped past every timeout, killed, and drained."""

from __future__ import annotations

import signal

import psutil

from tests.celery.stand import assert_once, dispatching, start_worker
from tests.integration.processes import WORKER, Running, Site, is_alive, is_stopped
from tests.waiting import until

#: A broker that takes messages back from those who keep them for some seconds.
HASTY = (
    "from quire.celery import settings as broker; "
    "broker.VISIBILITY_SECONDS = 2; "
    "own = broker._transport; broker._transport = lambda s: {**own(s), "
    "'unacked_restore_interval': 1, 'unacked_restore_throttle': 1}; "
)


def holder(site: Site, job_id: int, workers: list[Running]) -> tuple[Running, Running]:
    """Tell which of two workers runs the job, and which does not."""
    [row] = site.rows("workers", id=site.task(job_id).worker_id)
    first, second = workers
    return (first, second) if first.pid == row.pid else (second, first)


def test_a_worker_stopped_past_lease_and_visibility_and_one_killed_lose_and_double_nothing(
    site: Site,
):
    workers = [start_worker(site, code=HASTY + WORKER) for _ in range(2)]
    with dispatching(site):
        stopped = site.submit("i.gated", tag="stopped000")
        site.until_traced("began", "stopped000")
        asleep, _ = holder(site, stopped, workers)
        asleep.tell_tree(signal.SIGSTOP)
        until(lambda: all(is_stopped(each.pid) for each in asleep.tree()))
        until(lambda: len(site.trace("began", "stopped000")) == 2, what=site.logs)
        site.open_gate()
        site.until_over(stopped)
        asleep.tell_tree(signal.SIGCONT)
        # Its end is refused, or it was killed before it could try.
        until(lambda: asleep.logs("task.revoked") or site.trace("refused"), what=site.logs)

        killed = site.submit("i.gated", tag="killed000", gate="second")
        site.until_traced("began", "killed000")
        dead, heir = holder(site, killed, workers)
        children = [each.pid for each in dead.children()]
        dead.kill()
        until(lambda: not any(is_alive(pid) for pid in children))
        until(lambda: len(site.trace("began", "killed000")) == 2, what=site.logs)
        site.open_gate("second")
        assert site.until_over(killed) == {"completed": 1}
        assert heir.popen.poll() is None
    assert_once(site, ("stopped", 1), ("killed", 1))


def test_a_worker_that_is_told_to_stop_lets_tasks_end_and_gives_back_the_rest(site: Site):
    worker = start_worker(site, stop_grace=5)
    with dispatching(site):
        # It returns: a first write would import much, which takes longer than the grace may.
        ends = site.submit("i.gated_plain", tag="drained000")
        stays = site.submit("i.gated", tag="stays", gate="never")
        site.until_traced("began", "drained000")
        site.until_traced("began", "stays")
        tree = [each.pid for each in worker.tree()]
        worker.tell(signal.SIGTERM)
        until(lambda: worker.logs("worker.draining"), what=site.logs)
        site.open_gate()
        assert worker.popen.wait(60) == 0, worker.log
        assert not any(psutil.pid_exists(pid) and is_alive(pid) for pid in tree)
        assert site.job(ends).state == "completed", worker.log
        row = site.task(stays)
        assert (row.state, row.attempt) == ("ready", 0)
        assert worker.logs("worker.stopped")
    site.assert_healthy()
