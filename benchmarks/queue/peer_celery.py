"""Plain Celery with late acknowledgement, as a program, to compare Quire through Celery with.

An interpreter that has Celery, but perhaps not Quire, runs it; hence the import by name.
"""

import importlib
import os
import sys
import time
from typing import Any

QUEUE = "quire-bench-plain"
PROGRAMS = 2


def made(url: str, marks: str | None) -> tuple[Any, Any]:
    """Create the app and its one task, which appends the time to `marks` with one write."""
    app = importlib.import_module("celery").Celery("bench", broker=url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_default_queue=QUEUE,
        broker_connection_retry_on_startup=True,
    )
    # Opened before the fork, so all processes append to the same file.
    marks_fd = (
        -1 if marks is None else os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    )

    @app.task(name="bench.noop", ignore_result=True)  # type: ignore[untyped-decorator]
    def job() -> None:
        os.write(marks_fd, b"%.6f\n" % time.time())

    return app, job


def main() -> None:
    """Fill the queue, or run a worker."""
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
