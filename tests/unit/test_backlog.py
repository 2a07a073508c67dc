"""How many tasks a worker claims at a time, and how it shares them out."""

from __future__ import annotations

from typing import Any

import pytest

from quire.model.outcomes import Lease
from quire.runtime.child.channel import MAX_BATCH
from quire.runtime.worker.loop import BATCH_SECONDS, Backlog, RunTimes


def lease(task_id: int, kind: str = "k", **more: Any) -> Lease:
    return Lease(task_id, 1, 1, kind, "{}", 1, 3, 0, "default", 5, 0.0, 0.0)._replace(**more)


def after(seconds: float, runs: int = 200) -> RunTimes:
    times = RunTimes()
    for _ in range(runs):
        times.add("k", seconds)
    return times


def ids(leases: list[Lease]) -> list[int]:
    return [each.task_id for each in leases]


@pytest.mark.parametrize(("seconds", "size"), [(2.0, 1), (0.05, 2), (0.01, 10), (1e-9, MAX_BATCH)])
def test_a_batch_is_about_100_ms_of_work(seconds, size):
    assert after(seconds).batch_size() == pytest.approx(size, abs=1)


def test_an_unknown_kind_is_taken_to_be_long():
    times = RunTimes()
    assert (times.batch_size(), times.are_short()) == (1, False)
    assert times.expected("never seen") > BATCH_SECONDS


def test_a_batch_ends_when_its_time_is_used_up_and_the_order_is_kept():
    backlog = Backlog()
    backlog.add([lease(n) for n in range(1, 9)], now=0.0)
    times = after(0.04)
    assert ids(backlog.take_batch(times, 8)) == [1, 2]
    assert ids(backlog.take_batch(times, 1)) == [3]
    assert ids(backlog.take_all()) == [4, 5, 6, 7, 8]
    assert len(backlog) == 0


def test_a_task_that_must_run_alone_gets_a_batch_of_its_own():
    backlog = Backlog()
    backlog.add([lease(1), lease(2, is_alone=True), lease(3)], now=0.0)
    times = after(0.001)
    assert [ids(backlog.take_batch(times, 3)) for _ in range(3)] == [[1], [2], [3]]


def test_revoked_leases_leave_the_backlog_and_the_oldest_tells_how_long_they_wait():
    backlog = Backlog()
    backlog.add([lease(1)], now=10.0)
    backlog.add([lease(2)], now=12.0)
    assert backlog.has_waited(1.0, now=11.5) and not backlog.has_waited(2.0, now=11.5)
    assert ids(backlog.take({(1, 1)})) == [1]
    assert backlog.keys() == [(2, 1)]
    assert not backlog.has_waited(1.0, now=12.5)
