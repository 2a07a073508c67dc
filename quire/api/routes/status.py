"""How things stand: counts by state, what runs, what waits, and whether a worker lives."""

from typing import Any

from fastapi import APIRouter, Request, Response

from quire.api.auth.authenticate import Reader
from quire.api.models import responses as models
from quire.api.responses import Answer, giving
from quire.api.state import app_state_of
from quire.control import broker_status, outages
from quire.runtime.worker import liveness
from quire.store.reports import reports

router = APIRouter(prefix="/api", tags=["status"])


@router.get("/status", summary="Count by state", **giving(models.Status))
def status(request: Request, viewer: Reader) -> Response:
    """Count the tenant's jobs, tasks and documents by state, and list workers.

    Counts that take long are kept for a while; `Age` says how many seconds old they are.
    """
    app_state = app_state_of(request)

    def counted() -> dict[str, Any]:
        with app_state.db.read() as conn:
            return reports.status(conn, viewer.tenant)

    found, age = app_state.recent.of(f"status {viewer.tenant}", counted)
    with app_state.db.read() as conn:
        alive = liveness.list_workers(app_state.db, conn, viewer.tenant)
        now, patience = app_state.db.now(conn), app_state.db.lease_seconds
        live = {
            "workers": alive,
            "broker": broker_status.standing(conn, now=now, patience=patience),
            "troubles": outages.listed(conn, viewer.tenant, now=now, patience=patience),
        }
    answer = {"home": str(app_state.settings.home), **found, **live}
    return Answer(answer, headers={"Age": str(round(age))})


@router.get("/scheduler/status", summary="What runs and waits", **giving(models.SchedulerStatus))
def scheduler(request: Request, viewer: Reader) -> Response:
    """List running jobs in the order of their start, and count pending ones by kind."""
    app_state = app_state_of(request)
    db = app_state.db

    def counted() -> list[dict[str, Any]]:
        with db.read() as conn:
            return reports.waiting_by_kind(conn, viewer.tenant)

    waiting, _ = app_state.recent.of(f"waiting {viewer.tenant}", counted)
    with db.read() as conn:
        running = reports.running(conn, viewer.tenant, now=db.now(conn).wall)
        alive = any(each["alive"] for each in liveness.list_workers(db, conn, viewer.tenant))
    return Answer({"running": running, "pending_counts": waiting, "worker_healthy": alive})
