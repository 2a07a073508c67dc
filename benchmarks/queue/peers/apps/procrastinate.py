"""Procrastinate, by psycopg.

It runs no job of a dead worker again unless the application adds a periodic task for it. The crash
test adds the one of its documentation, every five seconds.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import procrastinate

from benchmarks.queue.peers import given, marks

_loop = asyncio.new_event_loop()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=given.DATABASE))


@app.task(name="peers.job")
async def run(number: int, seconds: float) -> None:
    """Leave marks."""
    await marks.run_async(number, seconds)


if given.IS_CRASH:

    @app.periodic(cron="* * * * * */5")
    @app.task(name="peers.retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context: Any, timestamp: int) -> None:
        """Run jobs again whose worker has not been heard of for 15 seconds."""
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=15):
            await app.job_manager.retry_job(job)


async def _submit(numbers: Sequence[int], seconds: float) -> None:
    for number in numbers:
        await run.defer_async(number=number, seconds=seconds)


def create() -> None:
    """Create its tables."""
    _loop.run_until_complete(app.open_async())
    _loop.run_until_complete(app.schema_manager.apply_schema_async())


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    _loop.run_until_complete(_submit(numbers, seconds))


def submit_many(numbers: Sequence[int]) -> None:
    """Submit in one call."""
    jobs = [{"number": number, "seconds": 0.0} for number in numbers]
    _loop.run_until_complete(run.batch_defer_async(*jobs))


async def main() -> None:
    """Run jobs until killed."""
    options: dict[str, Any] = {}
    if given.IS_CRASH:
        options = {"update_heartbeat_interval": 5, "stalled_worker_timeout": 15}
    async with app.open_async():
        await app.run_worker_async(**options)


if __name__ == "__main__":
    asyncio.run(main())
