"""The status of a tenant: how much there is in each state, and the workers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from quire.clock import Instant, iso, json_values
from quire.store.db import sqlite_driver
from quire.store.reports import status

Json = dict[str, Any]
_SHOWN = ("id", "host", "pid", "state", "concurrency", "started_at", "heartbeat_at", "broker")


def counts(run: sqlite_driver.Run, tenant: str) -> Json:
    """Count jobs, tasks and documents by state, and list paused kinds; slow with many jobs."""
    return {
        **status.totals(run, tenant),
        "documents": status.documents(run, tenant),
        "paused": status.paused_kinds(run),
    }


def workers(
    run: sqlite_driver.Run,
    tenant: str,
    *,
    now: Instant,
    lease: float,
    is_alive: Callable[..., bool],
) -> list[Json]:
    """List the workers that have not ended, with how many of the tenant's tasks each runs."""
    held = status.held_by_worker(run, tenant)
    return [
        {
            **json_values(row, _SHOWN),
            "alive": is_alive(row, now=now.wall, lease=lease),
            # A worker claims a few tasks ahead; they wait until a child is free.
            "running": min(held.get(row.id, 0), row.concurrency),
            "queues": row.queues.split(","),
            "broker_silent_since": iso(row.alone_since),
        }
        for row in status.live_workers(run)
    ]


def read_without_sqlalchemy(
    path: Path, tenant: str, *, now: Instant, lease: float, is_alive: Callable[..., bool]
) -> Json | None:
    """Return what `queries.status` does for an embedded database, in a third of the time.

    None if there is more to look at than counts: another schema, a broker, a possible problem.
    """

    def report(run: sqlite_driver.Run) -> Json | None:
        if status.may_have_problems(run, now=now):
            return None
        listed = workers(run, tenant, now=now, lease=lease, is_alive=is_alive)
        return {**counts(run, tenant), "workers": listed, "broker": None, "problems": []}

    return sqlite_driver.read(path, report)
