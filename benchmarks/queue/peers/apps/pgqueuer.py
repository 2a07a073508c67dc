"""PgQueuer, by its own driver asyncpg."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pgqueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.queue.peers import given, marks

_loop = asyncio.new_event_loop()
_opened: list[Queries] = []


async def _driver() -> AsyncpgDriver:
    return AsyncpgDriver(await asyncpg.connect(given.DATABASE))


async def _create() -> None:
    _opened.append(Queries(await _driver()))
    await _opened[0].install()


async def _submit(numbers: Sequence[int], seconds: float) -> None:
    for number in numbers:
        await _opened[0].enqueue("job", b"%d %f" % (number, seconds))


async def _submit_many(numbers: Sequence[int]) -> None:
    count = len(numbers)
    await _opened[0].enqueue(["job"] * count, [b"%d 0" % n for n in numbers], [0] * count)


def create() -> None:
    """Create its tables."""
    _loop.run_until_complete(_create())


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    _loop.run_until_complete(_submit(numbers, seconds))


def submit_many(numbers: Sequence[int]) -> None:
    """Submit in one call."""
    _loop.run_until_complete(_submit_many(numbers))


async def main() -> None:
    """Run jobs until killed."""
    worker = pgqueuer.PgQueuer(await _driver())

    @worker.entrypoint("job")
    async def run(job: Any) -> None:
        number, seconds = job.payload.split()
        await marks.run_async(int(number), float(seconds))

    options: dict[str, Any] = {}
    if given.IS_CRASH:  # two jobs at a time are the least it accepts
        options = {"batch_size": 1, "max_concurrent_tasks": 2}
        options["heartbeat_timeout"] = timedelta(seconds=10)
    await worker.run(**options)


if __name__ == "__main__":
    asyncio.run(main())
