"""Which workers live, as far as this machine can tell."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.app import App
    from quire.model.records import WorkerRow


def is_alive(row: "WorkerRow", *, now: float, lease: float) -> bool:
    """Tell whether a worker lives: by its lock where it can be tried, else by its heartbeat."""
    from quire.runtime import liveness

    dead = liveness.is_dead(row.lock_path, row.host, row.boot_id, row.pid, row.pid_start)
    return now - row.heartbeat_at <= lease if dead is None else not dead


def is_here(row: "WorkerRow") -> bool:
    """Tell whether a worker certainly lives on this machine, so that its pid can be used."""
    from quire.runtime import liveness

    dead = liveness.is_dead(row.lock_path, row.host, row.boot_id, row.pid, row.pid_start)
    return dead is False


def listed(app: "App", conn: Any) -> list[dict[str, Any]]:
    """List the workers that have not ended, with what each runs."""
    from quire.store import reports, workers

    now = app.db.now(conn).wall
    running = {each["id"]: each["running"] for each in reports.worker_list(conn)}
    return [
        {
            "id": row.id,
            "host": row.host,
            "pid": row.pid,
            "alive": is_alive(row, now=now, lease=app.settings.lease_seconds),
            "running": running.get(row.id, 0),
            "state": row.state,
            "concurrency": row.concurrency,
            "queues": row.queues.split(","),
            "started_at": reports.iso(row.started_at),
            "heartbeat_at": reports.iso(row.heartbeat_at),
        }
        for row in workers.live(conn)
    ]


def any_alive(app: "App") -> bool:
    """Tell whether some worker lives."""
    with app.db.read() as conn:
        return any(worker["alive"] for worker in listed(app, conn))
