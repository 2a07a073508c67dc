"""Promises G1, G2 and G6: whatever is killed, nothing is lost and every effect happens once."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import psutil
import pytest

from tests.integration.processes import WORKER, Site, is_alive, pause
from tests.waiting import until

#: Makes a process inherit orphans below it, as the first one of a container does, and runs it.
FIRST = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_the_task_of_a_killed_child_runs_again_at_once_and_keeps_its_attempt(site: Site):
    site.worker()
    job = site.submit("i.gated", tag="a")
    _, _, pid, attempt = site.until_traced("began", "a")
    os.kill(int(pid), signal.SIGKILL)
    killed = time.monotonic()
    _, _, second_pid, second_attempt = site.until_traced("began", "a", times=2, within=30)
    print(f"a killed child's task ran again after {time.monotonic() - killed:.2f} s")
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert (attempt, second_attempt) == ("1", "1")
    assert second_pid != pid
    assert site.outcomes(job) == ["died", "done"]
    assert site.task(job).crashes == 1
    assert site.effects() == ["a"]
    site.assert_healthy()


def test_two_hosts_of_one_name_leave_each_other_s_tasks_alone(site: Site):
    elsewhere = "import quire.clock; quire.clock.boot_id = lambda: 'another-machine'; "
    # The host name is the same: these are processes of one machine.
    codes = WORKER, elsewhere + WORKER
    hosts = [site.worker(concurrency=2, code=code, lease_seconds=60) for code in codes]
    jobs = [site.submit("i.gated", tag=f"{n}") for n in range(3)] + [site.submit("i.pays", tag="p")]
    for tag in "012p":
        site.until_traced("began", tag)
    known = {row.id: row for row in site.rows("workers")}
    assert len({row.boot_id for row in known.values()}) == 2
    assert len({row.host for row in known.values()}) == 1

    def have_swept() -> bool:
        rows = site.rows("workers")
        return all(row.heartbeat_at > known[row.id].heartbeat_at + 1.5 for row in rows)

    until(have_swept, what=site.logs)
    assert [row.fence for row in site.rows("tasks", state="running")] == [1] * 4
    assert [host.logs("worker.dead") + host.logs("task.reaped") for host in hosts] == [[], []]
    site.open_gate()
    assert site.until_over(jobs[:3]) == {"completed": 3}


@pytest.mark.core
@pytest.mark.parametrize("where", ["before", "inside", "after"])
def test_a_child_killed_around_its_fenced_write_leaves_one_effect(site: Site, where: str):
    site.worker()
    job = site.submit("i.kills_self", tag="a", where=where)
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == ["a"]
    site.assert_healthy()


@pytest.mark.core
def test_a_new_worker_takes_over_from_a_killed_one_long_before_the_lease_ends(site: Site):
    site.settings.update(lease_seconds=60, heartbeat_interval=20)
    first = site.worker()
    jobs = [site.submit("i.gated", tag=tag) for tag in "ab"]
    pids = [int(site.until_traced("began", tag)[2]) for tag in "ab"]
    first.kill()
    until(lambda: not any(map(is_alive, pids)), what="its children live on")
    killed = time.monotonic()
    site.worker()
    for tag in "ab":
        site.until_traced("began", tag, times=2, within=30)
    print(f"a killed worker's tasks ran again {time.monotonic() - killed:.2f} s after the next")
    site.open_gate()
    assert site.until_over(jobs) == {"completed": 2}
    assert site.effects() == ["a", "b"]
    assert [site.outcomes(job) for job in jobs] == [["died", "done"]] * 2
    site.assert_healthy()


def test_a_running_worker_takes_over_from_a_killed_one_at_its_next_sweep(site: Site):
    site.settings.update(lease_seconds=60, heartbeat_interval=20)
    first = site.worker()
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    second = site.worker()
    first.kill()
    killed = time.monotonic()
    site.until_traced("began", "a", times=2, within=30)
    print(f"another worker took over after {time.monotonic() - killed:.2f} s (sweep 1 s)")
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert second.logs("worker.dead")
    assert site.effects() == ["a"]
    assert not list((site.home / "run").glob(f"*{first.pid}*"))
    site.assert_healthy()


def test_a_supervisor_restarts_a_killed_worker_which_goes_on(site: Site):
    site.settings.update(lease_seconds=60, heartbeat_interval=20)
    up = site.start("up")
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    [worker] = [row.pid for row in site.rows("workers", state="running")]
    os.kill(worker, signal.SIGKILL)
    site.until_traced("began", "a", times=2)
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == ["a"]
    assert up.leave() == 0
    assert site.own_processes() == []
    site.assert_healthy()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a test inherit orphans")
def test_a_supervisor_in_a_container_keeps_no_dead_children_of_a_killed_worker(embedded: Site):
    up = embedded.start("up", prefix=(sys.executable, "-c", FIRST))
    job = embedded.submit("i.gated", tag="a")
    _, _, child, _ = embedded.until_traced("began", "a")
    [worker] = [row.pid for row in embedded.rows("workers", state="running")]
    os.kill(worker, signal.SIGKILL)
    embedded.until_traced("began", "a", times=2)
    until(lambda: not psutil.pid_exists(int(child)), what="it is still in the table of processes")
    embedded.open_gate()
    assert embedded.until_over(job) == {"completed": 1}
    assert up.leave() == 0
    assert up.logs("process.left", "worker 1", "code=0") and not up.logs("process.ended", "code=0")


def test_the_processes_of_a_killed_supervisor_leave_and_the_next_one_goes_on(site: Site):
    up = site.start("up", stop_grace=1)
    job = site.submit("i.gated", tag="a")
    site.until_traced("began", "a")
    up.kill()
    until(lambda: site.own_processes() == [], what=site.logs)
    assert site.job(job).state in ("pending", "running")
    site.start("up")
    site.until_traced("began", "a", times=2)
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == ["a"]
    assert site.outcomes(job) == ["returned", "done"]
    site.assert_healthy()


def test_all_jobs_complete_after_every_process_was_killed_at_once(site: Site):
    up = site.start("up", lease_seconds=60, heartbeat_interval=20)
    jobs = site.submit_many("i.effect", [{"tag": f"{n:03}", "seconds": 0.01} for n in range(60)])
    until(lambda: len(site.trace("ended")) >= 10, what=site.logs)
    up.tell_tree(signal.SIGKILL)
    until(lambda: site.own_processes() == [], what="some survived")
    assert site.states(jobs)["completed"] < 60
    site.start("up", lease_seconds=60, heartbeat_interval=20)
    assert site.until_over(jobs) == {"completed": 60}
    assert site.effects() == [f"{n:03}" for n in range(60)]
    site.assert_healthy()


@pytest.mark.timeout(300)
def test_twenty_kills_of_the_worker_lose_and_double_nothing(site: Site):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    wanted = [f"{n:03}" for n in range(200)]
    jobs = site.submit_many("i.effect", [{"tag": tag, "seconds": 0.02} for tag in wanted])
    for _ in range(20):
        began = len(site.trace("began"))
        worker = site.worker()
        # As soon as it has begun anything, at a moment of its work that nobody chose.
        site.until_traced("began", times=began + 1)
        pause(chance.uniform(0, 0.3))
        worker.kill()
    site.worker()
    assert site.until_over(jobs, within=120) == {"completed": 200}
    assert site.effects() == wanted
    site.assert_healthy()


def test_a_job_that_must_not_run_twice_is_lost_when_its_worker_is_killed(site: Site):
    worker = site.worker()
    job = site.submit("i.pays", tag="a")
    site.until_traced("began", "a")
    worker.kill()
    site.worker()
    assert site.until_over(job) == {"failed": 1}
    assert site.task(job).state == "lost"
    assert "must not run twice" in site.job(job).error
    assert len(site.trace("began", "a")) == 1
    site.assert_healthy()
