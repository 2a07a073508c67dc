"""What a task does while an endpoint lets it wait."""

from __future__ import annotations

import itertools
from typing import cast

import pytest

from quire.clock import FakeClock
from quire.errors import Stopped
from quire.ingest.kinds import document, pages, swap
from quire.ingest.resources import Waiting
from quire.model.context import TaskContext
from quire.model.contracts import MARK


class Task:
    """As much of a context as somebody who waits needs."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.told: list[tuple[float, str | None]] = []
        self.clock = FakeClock(lease=0.0)

    def check(self) -> None:
        if self.is_stopped:
            raise Stopped("job 1 was stopped")

    def progress(self, fraction: float | None, message: str | None) -> None:
        self.told.append((self.now(), message))

    def now(self) -> float:
        return self.clock.now().lease


def test_a_reason_is_told_once_and_then_only_that_the_task_lives():
    task = Task()
    waiting = Waiting(cast(TaskContext, task), task.now)
    for why in [None, *["the limit"] * 100, *["asked again"] * 20, None, None]:
        waiting(why)
        task.clock.advance(0.5)
    assert task.told == [
        (0.0, None), (0.5, "the limit"), (20.5, None), (40.5, None), (50.5, "asked again")
    ]  # fmt: skip


def test_a_task_that_waits_is_never_silent_for_as_long_as_one_that_is_stuck():
    task = Task()
    waiting = Waiting(cast(TaskContext, task), task.now)
    while task.now() < 7200:
        waiting("the limit")
        task.clock.advance(0.5)
    times = [at for at, _ in task.told]
    longest = max(after - before for before, after in itertools.pairwise(times))
    limits = [getattr(kind, MARK).stall_timeout for kind in (document, pages, swap)]
    assert longest <= min(limits) / 10


def test_a_stop_is_heeded_at_the_next_look():
    task = Task()
    waiting = Waiting(cast(TaskContext, task), task.now)
    waiting("the limit")
    task.is_stopped = True
    with pytest.raises(Stopped):
        waiting("the limit")
