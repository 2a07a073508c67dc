"""Status: counts by state, what runs and waits, and which workers are alive."""

from fastapi import Request, Response

from quire.api.auth.authenticate import Reader, Viewed
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router
from quire.api.state import app_state_of
from quire.control import queries

router = Router(prefix="/api", tags=["status"])


@router.on("GET", "/status", "Count by state", models.Status)
def status(request: Request, caller: Reader, viewer: Viewed) -> Response:
    """Count the tenant's jobs, tasks and documents by state, and list workers.

    Slow counts are cached; `Age` says how many seconds old they are.
    """
    app_state = app_state_of(request)
    counts, age = app_state.recent.get(f"status {caller.tenant}", lambda: queries.counts(caller))
    # Where files lie on the server concerns who operates it.
    home = str(app_state.settings.home) if viewer.operates else None
    answer = {"home": home, **counts, **queries.health(caller)}
    return ApiResponse(answer, headers={"Age": str(round(age))})


@router.on("GET", "/workers", "List workers", models.ListOf[models.Worker])
def workers(caller: Reader) -> Response:
    """List workers that have not ended, with the number of the tenant's tasks that each runs."""
    return ApiResponse({"items": queries.workers(caller), "next": None})


@router.on("GET", "/scheduler/status", "What runs and waits", models.SchedulerStatus)
def scheduler(request: Request, caller: Reader) -> Response:
    """List running jobs in the order in which they started, and count pending ones by kind."""
    app_state = app_state_of(request)
    pending, _ = app_state.recent.get(
        f"pending {caller.tenant}", lambda: queries.pending_jobs_by_kind(caller)
    )
    return ApiResponse(
        {
            "running": queries.running_jobs(caller),
            "pending_counts": pending,
            "worker_healthy": queries.any_worker_alive(caller),
        }
    )
