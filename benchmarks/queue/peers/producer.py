"""Fills a queue on request: a line of JSON in, a line of JSON out, until its input ends.

It is one process for as long as a measurement lasts, so that connections and imports are not in
the times it reports.
"""

import importlib
import json
import sys
import time
from typing import Any

#: Jobs in one call of a queue's bulk submission.
BATCH = 1_000


def main() -> None:
    """Create the queue named by the first argument, then add jobs to it."""
    app = importlib.import_module(f"benchmarks.queue.peers.apps.{sys.argv[1]}")
    app.create()
    _reply({"is_ready": True})
    for line in sys.stdin:
        _reply(_submitted(app, **json.loads(line)))


def _submitted(app: Any, first: int, count: int, seconds: float, is_bulk: bool) -> dict[str, float]:
    numbers = range(first, first + count)
    at, began = time.time(), time.perf_counter()
    if is_bulk:
        for start in range(0, count, BATCH):
            app.submit_many(numbers[start : start + BATCH])
    else:
        app.submit(numbers, seconds)
    return {"at": at, "seconds": time.perf_counter() - began}


def _reply(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
