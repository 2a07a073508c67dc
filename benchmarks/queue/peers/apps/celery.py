"""Celery, durable: a message is acknowledged when its job has ended."""

from collections.abc import Sequence

import celery

from benchmarks.queue.peers import given, marks

app = celery.Celery("peers", broker=given.BROKER)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task(name="peers.job", ignore_result=True)
def run(number: int, seconds: float) -> None:
    """Leave marks."""
    marks.run(number, seconds)


def create() -> None:
    """Do nothing: the broker needs no schema."""


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    for number in numbers:
        run.delay(number, seconds)
