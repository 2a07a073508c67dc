"""Which workers live, as far as this machine can tell."""

from typing import Any

from quire.model.records import WorkerRow
from quire.runtime.worker import liveness
from quire.store.db.engine import Database
from quire.store.queue import workers
from quire.store.reports import reports


def is_alive(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    """Tell whether a worker lives: by its lock where it can be tried, else by its heartbeat."""
    dead = liveness.is_dead(row.lock_path, row.host, row.boot_id, row.pid, row.pid_start)
    return now - row.heartbeat_at <= lease if dead is None else not dead


def is_here(row: WorkerRow) -> bool:
    """Tell whether a worker certainly lives on this machine, so that its pid can be used."""
    dead = liveness.is_dead(row.lock_path, row.host, row.boot_id, row.pid, row.pid_start)
    return dead is False


def listed(db: Database, conn: Any, tenant: str | None = None) -> list[dict[str, Any]]:
    """List the workers that have not ended, with what each runs, of one tenant where named."""
    now = db.now(conn).wall
    running = {each["id"]: each["running"] for each in reports.worker_list(conn, tenant)}
    return [
        {
            "id": row.id,
            "host": row.host,
            "pid": row.pid,
            "alive": is_alive(row, now=now, lease=db.lease_seconds),
            "running": running.get(row.id, 0),
            "state": row.state,
            "concurrency": row.concurrency,
            "queues": row.queues.split(","),
            "started_at": reports.iso(row.started_at),
            "heartbeat_at": reports.iso(row.heartbeat_at),
            "broker": row.broker,
            "alone_since": reports.iso(row.alone_since),
        }
        for row in workers.live(conn)
    ]
