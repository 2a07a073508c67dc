"""Dramatiq on Redis.

By default it looks for jobs of dead workers in one of a thousand commands, after a minute: in three
minutes, none came back. The crash test uses settings that let it recover.
"""

from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.queue.peers import given, marks

_fast = {"heartbeat_timeout": 10_000, "maintenance_chance": 50_000} if given.IS_CRASH else {}
dramatiq.set_broker(RedisBroker(url=given.BROKER, **_fast))


@dramatiq.actor
def run(number: int, seconds: float) -> None:
    """Leave marks."""
    marks.run(number, seconds)


def create() -> None:
    """Do nothing: the broker needs no schema."""


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    for number in numbers:
        run.send(number, seconds)
