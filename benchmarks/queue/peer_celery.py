"""Plain Celery with late acknowledgement, as a program: what Quire through Celery is held against.

It is run by an interpreter that has Celery, which need not have Quire: so this imports neither,
but by name.
"""

import importlib
import os
import sys
import time
from typing import Any

QUEUE = "quire-bench-plain"
PROGRAMS = 2


def made(url: str, marks: str | None) -> tuple[Any, Any]:
    """Make the app and its one job, which appends its time to the marks by one write."""
    app = importlib.import_module("celery").Celery("bench", broker=url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_default_queue=QUEUE,
        broker_connection_retry_on_startup=True,
    )
    # Opened before the fork, so that every process appends to the same file.
    told = -1 if marks is None else os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @app.task(name="bench.noop", ignore_result=True)  # type: ignore[untyped-decorator]
    def job() -> None:
        os.write(told, b"%.6f\n" % time.time())

    return app, job


def main() -> None:
    """Fill a queue, or work at it."""
    verb, url, last = sys.argv[1:]
    if verb == "fill":
        _, job = made(url, None)
        for _ in range(int(last)):
            job.delay()
        return
    app, _ = made(url, last)
    app.worker_main(["worker", "--concurrency", str(PROGRAMS), "--loglevel", "ERROR"])


if __name__ == "__main__":
    main()
