"""Built-in job kinds, for trying out Quire and for benchmarks."""

import time

from quire.model.context import TaskContext
from quire.model.contracts import job


@job("noop", max_attempts=3, internal=True)
def noop(ctx: TaskContext, **payload: object) -> None:
    """Do nothing; measures the overhead of the engine."""


@job("wait", max_attempts=3, internal=True)
def wait(ctx: TaskContext, seconds: float = 1.0) -> dict[str, float]:
    """Wait for `seconds`; reports progress and stops when told to."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ctx.check()
        ctx.progress(1 - left / seconds, f"{left:.1f} s left")
        time.sleep(min(left, 0.05))
    return {"waited": seconds}
