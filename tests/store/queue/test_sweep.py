"""The sweep of a worker: whose leases it ends, and whose it leaves alone."""

import time
from pathlib import Path

import pytest

from quire.clock import FakeClock, SystemClock, boot_id
from quire.model.outcomes import Lease
from quire.model.records import WorkerRow
from quire.runtime.worker import liveness
from quire.runtime.worker.sweep import sweep
from quire.settings import load
from quire.store.queue import workers
from tests.store.stage import KINDS, TTL, Stage

NAME = "w-there"


def appear(stage: Stage, boot: str) -> None:
    """Register a worker on a host with the name of this one, whose lock cannot be seen here."""
    row = WorkerRow(
        NAME, liveness.host(), 1, boot, "s", "/nowhere", "default", 1, "running", 0.0, 0.0, None
    )
    stage.db.write(lambda conn, now: workers.register(conn, row, list(KINDS), now=now))
    stage._workers.add(NAME)


def beat(stage: Stage, leases: list[Lease]) -> None:
    assert len(stage.renew(*leases)) == len(leases)
    assert stage.db.write(lambda conn, now: workers.heartbeat(conn, NAME, now=now))


def run_sweep(stage: Stage, home: Path) -> None:
    sweep(stage.db, load({}, home=home), "w-here", list(KINDS))


def states(stage: Stage, leases: list[Lease]) -> set[tuple[str, int]]:
    rows = [row for lease in leases for row in stage.rows("tasks", id=lease.task_id)]
    return {(row.state, row.crashes) for row in rows}


def test_a_renewed_lease_is_not_reaped_by_a_host_of_the_same_name(stage: Stage, home: Path):
    stage.one(), stage.one("once")
    appear(stage, "boot-of-a-clone pid:[1]")
    leases = stage.claim(NAME, limit=2)
    for _ in range(10):
        stage.clock.advance(TTL / 2)
        beat(stage, leases)
        stage.clock.advance(TTL / 4)
        run_sweep(stage, home)
    assert states(stage, leases) == {("running", 0)}
    assert stage.rows("workers", id=NAME)[0].state == "running"


def test_tasks_of_an_earlier_boot_run_again_a_lease_after_the_last_heartbeat(
    stage: Stage, home: Path
):
    stage.one()
    appear(stage, "boot-before-this pid:[1]")
    leases = stage.claim(NAME)
    # The machine boots again, in no time: the clock of SQLite's leases starts over.
    stage.clock = stage.db.clock = FakeClock(wall=stage.clock.now().wall, lease=1.0)
    run_sweep(stage, home)
    assert states(stage, leases) == {("running", 0)}
    stage.clock.advance(TTL + 1)
    run_sweep(stage, home)
    assert states(stage, leases) == {("ready", 1)}


def test_a_jump_of_the_wall_clock_reaps_nothing_of_another_container(stage: Stage, home: Path):
    if stage.is_postgres:  # its leases go by its own clock
        return
    stage.one(), stage.one("once")
    appear(stage, f"{boot_id()} pid:[1]")
    leases = stage.claim(NAME, limit=2)
    stage.clock.jump(5 * TTL)
    run_sweep(stage, home)
    assert states(stage, leases) == {("running", 0)}
    # Where it is silent in truth, its leases end.
    stage.clock.advance(TTL + 1)
    run_sweep(stage, home)
    assert states(stage, leases) == {("ready", 1), ("lost", 1)}
    assert stage.rows("workers", id=NAME)[0].state == "dead"


def test_a_machine_that_slept_finds_the_leases_of_its_workers_as_they_were(
    stage: Stage, home: Path, monkeypatch: pytest.MonkeyPatch
):
    if stage.is_postgres:  # the server goes on while a worker's machine sleeps
        return
    stage.db.clock = SystemClock()
    stage.one(), stage.one("once")
    appear(stage, f"{boot_id()} pid:[1]")
    leases = stage.claim(NAME, limit=2)
    # After the suspend of an hour this sweep comes before the other's heartbeat.
    read, wall = time.clock_gettime, time.time
    slept = {getattr(time, "CLOCK_BOOTTIME", -1)}
    monkeypatch.setattr(time, "clock_gettime", lambda c: read(c) + 3600 * (c in slept))
    monkeypatch.setattr(time, "time", lambda: wall() + 3600)
    run_sweep(stage, home)
    assert states(stage, leases) == {("running", 0)}
