"""The first page: what runs and waits, how it went lately, what room is left; and who works."""

import shutil
from pathlib import Path
from typing import Any

import psutil
from fastapi import APIRouter, Request, Response

from quire.api.auth.authenticate import Admin, Reader
from quire.api.routes.kinds import Name
from quire.api.state import app_state_of
from quire.control import broker_status, jobs, outages
from quire.errors import BadInput
from quire.model.states import JobState
from quire.runtime.worker import liveness
from quire.store.queue import kinds
from quire.store.reports import dashboard, reports
from quire.web.rendering import PageRoute, back, page
from quire.web.throughput import Figures

router = APIRouter(route_class=PageRoute, include_in_schema=False)
RUNNING = 12
GROUPS = 20
PAUSING = {"pause": jobs.pause, "unpause": jobs.unpause}


@router.get("/")
def overview(request: Request, viewer: Reader) -> Response:
    """Show what goes on."""
    app_state = app_state_of(request)
    with app_state.db.read() as conn:
        at, patience = app_state.db.now(conn), app_state.db.lease_seconds
        now = at.wall
        running = reports.page_of_jobs(
            conn, viewer.tenant, now=now, limit=RUNNING, states=[JobState.RUNNING]
        )["items"]
        waiting = dashboard.waiting(conn, viewer.tenant, explained=GROUPS)
        workers = liveness.list_workers(app_state.db, conn, viewer.tenant)
        shown: dict[str, Any] = {
            "running": running,
            "running_count": dashboard.active(conn, viewer.tenant)
            if len(running) == RUNNING
            else len(running),
            "waiting": waiting[:GROUPS],
            "waiting_jobs": sum(one.jobs for one in waiting),
            "waiting_is_all": all(one.is_all for one in waiting),
            "workers": workers,
            "troubles": outages.listed(conn, viewer.tenant, now=at, patience=patience),
            "alive": sum(worker["alive"] for worker in workers),
            "lately": _figures(request).of(app_state.db, conn, viewer.tenant),
            "is_new": not dashboard.owners_of(conn, viewer.tenant),
        }
    return page(
        request, viewer, "overview.html", machine=_machine(app_state.settings.home), **shown
    )


@router.get("/workers")
def workers(request: Request, viewer: Reader) -> Response:
    """List the workers that have not ended."""
    app_state = app_state_of(request)
    with app_state.db.read() as conn:
        listed = liveness.list_workers(app_state.db, conn, viewer.tenant)
        now, patience = app_state.db.now(conn), app_state.db.lease_seconds
        shown: dict[str, Any] = {
            "broker": broker_status.standing(conn, now=now, patience=patience),
            "troubles": outages.listed(conn, viewer.tenant, now=now, patience=patience),
            "kinds": list(kinds.listed(conn).values()),
        }
    return page(request, viewer, "workers.html", workers=listed, **shown)


@router.post("/kinds/{name}/{verb}")
def act_on_kind(request: Request, viewer: Admin, name: Name, verb: str) -> Response:
    """Pause a kind of job for everyone, or let it go on."""
    if verb not in PAUSING:
        raise BadInput(
            f"kinds: {verb[:40]!r} is not one of {', '.join(PAUSING)}. Nothing was done."
        )
    PAUSING[verb](app_state_of(request).caller(viewer), name)
    return back("/workers", verb)


def _figures(request: Request) -> Figures:
    """Return the figures of this application, which are read once for many pages."""
    state = request.app.state
    if not hasattr(state, "figures"):
        state.figures = Figures()
    found: Figures = state.figures
    return found


def _machine(home: Path) -> list[tuple[str, int, int]]:
    """List what of this machine's disk and memory is used, and how much there is."""
    # With a database and a bucket elsewhere nothing makes a home before the first file.
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    disk, memory = shutil.disk_usage(there), psutil.virtual_memory()
    return [
        ("Disk", disk.total - disk.free, disk.total),
        ("Memory", memory.total - memory.available, memory.total),
    ]
