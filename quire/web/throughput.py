"""Recent attempts in equal time buckets: how many, how long, how many failed."""

import math
from collections.abc import Sequence
from typing import Any

from quire import format
from quire.control import queries
from quire.control.caller import Caller
from quire.control.queries import Run
from quire.web.charts import Bar

BUCKETS = 48
LONGEST = 86_400.0
SHORTEST = 600.0
#: Seconds for which the figures of a tenant are cached.
FRESH = 5.0
FAILED = frozenset({"failed", "crashed", "timeout", "memory", "stalled"})
#: Ended from outside; does not count as an attempt.
PASSING = frozenset({"died"})


def recent(caller: Caller) -> dict[str, Any]:
    """Return the figures of a tenant's latest attempts."""
    runs, begins, now = queries.recent_runs(caller, seconds=LONGEST)
    return figures(runs, begins, now=now)


def figures(runs: Sequence[Run], begins: float | None = None, *, now: float) -> dict[str, Any]:
    """Count attempts by time bucket; none is known from before `begins`."""
    first = min((run.finished_at for run in runs), default=now)
    # A bucket of which only the end is known would show too few.
    window = max(now - first, SHORTEST) if begins is None else max(now - begins, 1.0)
    window = min(window, LONGEST)
    spans: list[list[Run]] = [[] for _ in range(BUCKETS)]
    for run in runs:
        at = int((run.finished_at - (now - window)) / window * BUCKETS)
        spans[min(max(at, 0), BUCKETS - 1)].append(run)
    times = [_times(some) for some in spans]
    everything = _times(runs)
    done = sum(run.outcome == "done" for run in runs)
    step = window / BUCKETS
    return {
        "bars": [_bar(s, step, now - window + i * step, good=True) for i, s in enumerate(spans)]
        if runs
        else [],
        "bars_bad": [_bar(s, step, now - window + i * step) for i, s in enumerate(spans)],
        "medians": [_share(some, 0.5) for some in times],
        "p95s": [_share(some, 0.95) for some in times],
        "median": _share(everything, 0.5),
        "p95": _share(everything, 0.95),
        "failed": sum(run.outcome in FAILED for run in runs),
        "total": len(runs),
        "rate": _rate(done, window),
        "window": f"last {format.span(round(window / 60) * 60 or round(window))}",
        "begins": now - window,
    }


def _bar(some: Sequence[Run], step: float, begins: float, *, good: bool = False) -> Bar:
    counts = {"good": sum(run.outcome == "done" for run in some)}
    if not good:
        counts = {
            "bad": sum(run.outcome in FAILED for run in some),
            "warn": sum(run.outcome in PASSING for run in some),
        }
    told = ", ".join(f"{format.number(n)} {_NAMES[name]}" for name, n in counts.items())
    return Bar(
        counts, f"{format.clock_time(begins)} to {format.clock_time(begins + step)} UTC: {told}"
    )


_NAMES = {"good": "succeeded", "bad": "failed", "warn": "lost with their worker"}


def _times(some: Sequence[Run]) -> list[float]:
    return sorted(run.duration for run in some if run.duration is not None)


def _share(ordered: Sequence[float], share: float) -> float | None:
    """Return a quantile."""
    return ordered[max(math.ceil(len(ordered) * share) - 1, 0)] if ordered else None


def _rate(done: int, window: float) -> str:
    a_minute = done / window * 60
    if a_minute >= 100:
        return f"{format.count(round(a_minute / 60), 'task')}/s"
    if a_minute >= 1 or not done:
        return f"{format.count(round(a_minute), 'task')}/min"
    return f"{format.count(round(a_minute * 60), 'task')}/h"
