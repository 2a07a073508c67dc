"""PgQueuer with default settings, as a program, to compare Quire's drain on PostgreSQL with.

An interpreter that has PgQueuer, but perhaps not Quire, runs it; hence the import by name.
"""

import asyncio
import importlib
import os
import sys
import time
from typing import Any

BATCH = 1_000


async def opened(url: str) -> Any:
    """Connect with PgQueuer's driver."""
    asyncpg, db = importlib.import_module("asyncpg"), importlib.import_module("pgqueuer.db")
    return db.AsyncpgDriver(await asyncpg.connect(url))


async def fill(url: str, count: int) -> None:
    """Create its tables and add no-op jobs."""
    queries = importlib.import_module("pgqueuer.queries").Queries(await opened(url))
    await queries.install()
    for start in range(0, count, BATCH):
        size = min(count - start, BATCH)
        await queries.enqueue(["job"] * size, [b"{}"] * size, [0] * size)


async def work(url: str, marks: str) -> None:
    """Run jobs until killed; each appends the time to `marks` with one write."""
    marks_fd = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    queuer = importlib.import_module("pgqueuer").PgQueuer(await opened(url))

    @queuer.entrypoint("job")  # type: ignore[untyped-decorator]
    async def job(_: Any) -> None:
        os.write(marks_fd, b"%.6f\n" % time.time())

    await queuer.run()


def main() -> None:
    """Fill the queue, or run a worker."""
    verb, url, last = sys.argv[1:]
    asyncio.run(fill(url, int(last)) if verb == "fill" else work(url, last))


if __name__ == "__main__":
    main()
