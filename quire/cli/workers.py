"""Which workers live, as far as this machine can tell."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.app import App
    from quire.model.records import WorkerRow


def is_here(row: "WorkerRow") -> bool:
    """Tell whether a worker certainly lives on this machine, so that its pid can be used."""
    from quire.runtime.worker import liveness

    return liveness.is_here(row)


def listed(app: "App", conn: Any) -> list[dict[str, Any]]:
    """List the workers that have not ended, with what each runs."""
    from quire.runtime.worker import liveness

    return liveness.list_workers(app.db, conn)


def any_alive(app: "App") -> bool:
    """Tell whether some worker lives."""
    with app.db.read() as conn:
        return any(worker["alive"] for worker in listed(app, conn))
