"""How things stand: counts by state, what runs, what waits, and whether a worker lives."""

from fastapi import APIRouter, Request, Response

from quire.api import shapes
from quire.api.answers import Answer, giving
from quire.api.gate import Reader
from quire.api.office import office_of
from quire.runtime import crews
from quire.store import reports

router = APIRouter(prefix="/api", tags=["status"])


@router.get("/status", summary="Count by state", **giving(shapes.Status))
def status(request: Request, viewer: Reader) -> Response:
    """Count the tenant's jobs, tasks and documents by state, and list workers."""
    office = office_of(request)
    with office.db.read() as conn:
        found = reports.status(conn, viewer.tenant)
        found["workers"] = crews.listed(office.db, conn, viewer.tenant)
    return Answer({"home": str(office.settings.home), **found})


@router.get("/scheduler/status", summary="What runs and waits", **giving(shapes.SchedulerStatus))
def scheduler(request: Request, viewer: Reader) -> Response:
    """List running jobs in the order of their start, and count pending ones by kind."""
    db = office_of(request).db
    with db.read() as conn:
        running = reports.running(conn, viewer.tenant, now=db.now(conn).wall)
        waiting = reports.waiting_by_kind(conn, viewer.tenant)
        alive = any(each["alive"] for each in crews.listed(db, conn, viewer.tenant))
    return Answer({"running": running, "pending_counts": waiting, "worker_healthy": alive})
