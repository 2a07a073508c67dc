"""Doorbells in the database: for whom to ring, how often was rung, and what is said of a broker."""

from __future__ import annotations

import pytest

from quire.control import outages
from quire.model.records import WorkerRow
from quire.store.queue import doorbells, workers
from tests.store.stage import KINDS, Stage

URL = "redis://there:6379/0"


@pytest.fixture
def stage(db):
    return Stage(db)


def crew(stage: Stage, name: str, *, queues: str = "default", broker: str | None = URL) -> None:
    """Register a worker with two children."""
    row = WorkerRow(
        id=name, host="h", pid=1, boot_id="b", pid_start="s", lock_path=f"/none/{name}",
        queues=queues, concurrency=2, state="running", started_at=0.0, heartbeat_at=0.0,
        stopped_at=None, broker=broker,
    )  # fmt: skip
    stage.db.write(lambda conn, now: workers.register(conn, row, tuple(KINDS), now=now))


def note(stage: Stage, error: str | None = None) -> None:
    stage.db.write(
        lambda conn, now: doorbells.record_broker(conn, URL, ["default"], now=now, error=error)
    )


def ring(stage: Stage, seen: int, count: int) -> bool:
    return stage.db.write(
        lambda conn, now: doorbells.advance(conn, "default", seen=seen, count=count, now=now)
    )


def trouble(stage: Stage) -> str | None:
    with stage.db.read() as conn:
        found = outages.broker_state(conn, now=stage.db.now(conn), max_silence=60.0)
    return found["problem"] if found else None


def test_slots_are_those_of_live_workers_with_a_broker(stage):
    crew(stage, "w1")
    crew(stage, "w2", queues="default,slow")
    crew(stage, "w3", broker=None)
    with stage.db.read() as conn:
        now = stage.db.now(conn)
        assert doorbells.slots(conn, now=now, max_silence=60) == {"default": 4, "slow": 2}
    stage.clock.advance(100)
    with stage.db.read() as conn:
        assert doorbells.slots(conn, now=stage.db.now(conn), max_silence=60) == {}


def test_of_two_dispatchers_that_saw_the_same_one_rings(stage):
    crew(stage, "w1")
    note(stage)
    assert ring(stage, 0, 3)
    assert not ring(stage, 0, 3)
    assert ring(stage, 3, 1)
    with stage.db.read() as conn:
        assert doorbells.states(conn)["default"].seq == 4


def test_a_broker_that_fails_is_named_with_the_time_until_it_answers(stage):
    assert trouble(stage) is None  # nobody uses a broker
    crew(stage, "w1")
    assert "quire scheduler" in (trouble(stage) or "")
    note(stage)
    assert trouble(stage) is None
    since = stage.clock.now().wall
    note(stage, "Timeout: it did not answer")
    stage.clock.advance(10)
    note(stage, "Timeout: it did not answer")
    with stage.db.read() as conn:
        assert doorbells.states(conn)["default"].failing_since == pytest.approx(since, abs=0.01)
    said = trouble(stage) or ""
    assert "has not answered since" in said and "did not answer" in said and URL in said
    note(stage)
    assert trouble(stage) is None


def test_a_worker_that_claims_alone_is_named(stage):
    crew(stage, "w1")
    note(stage)
    stage.db.write(lambda conn, now: workers.heartbeat(conn, "w1", now=now, alone_since=now.wall))
    assert "Worker w1 has received nothing" in (trouble(stage) or "")
    stage.db.write(lambda conn, now: workers.heartbeat(conn, "w1", now=now))
    assert trouble(stage) is None


def test_a_scheduler_that_is_gone_is_missed(stage):
    crew(stage, "w1")
    note(stage)
    stage.clock.advance(50)
    stage.db.write(lambda conn, now: workers.heartbeat(conn, "w1", now=now))
    assert trouble(stage) is None
    stage.clock.advance(50)
    stage.db.write(lambda conn, now: workers.heartbeat(conn, "w1", now=now))
    assert "not notified of new tasks" in (trouble(stage) or "")
