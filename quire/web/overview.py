"""The overview page, and the page of workers and kinds."""

import shutil
from pathlib import Path

import psutil
from fastapi import APIRouter, Request, Response

from quire.api.auth.authenticate import InstanceAdmin, Reader
from quire.api.routes.kinds import Name
from quire.api.state import app_state_of
from quire.control import jobs, queries
from quire.errors import BadInput
from quire.web import throughput
from quire.web.rendering import PageRoute, back, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
RUNNING = 12
GROUPS = 20
PAUSING = {"pause": jobs.pause, "unpause": jobs.unpause}


@router.get("/")
def overview(request: Request, caller: Reader) -> Response:
    """Show what runs and waits, recent throughput, and free disk and memory."""
    app_state = app_state_of(request)
    recent, _ = app_state.recent.get(
        f"figures {caller.tenant}", lambda: throughput.recent(caller), at_least=throughput.FRESH
    )
    return page(
        request, "overview.html", machine=_machine(app_state.settings.home), recent=recent,
        **queries.overview(caller, running=RUNNING, groups=GROUPS),
    )  # fmt: skip


@router.get("/workers")
def workers(request: Request, caller: Reader) -> Response:
    """List the workers that have not ended, and the kinds of jobs."""
    return page(request, "workers.html", kinds=queries.kinds(caller), **queries.health(caller))


@router.post("/kinds/{name}/{verb}")
def act_on_kind(caller: InstanceAdmin, name: Name, verb: str) -> Response:
    """Pause a kind of job for everyone, or unpause it."""
    if verb not in PAUSING:
        raise BadInput(
            f"kinds: {verb[:40]!r} is not one of {', '.join(PAUSING)}. Nothing was changed."
        )
    PAUSING[verb](caller, name)
    return back("/workers", verb)


def _machine(home: Path) -> list[tuple[str, int, int]]:
    """List used and total bytes of disk and memory."""
    # With a remote database and bucket, the home may not exist yet.
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    disk, memory = shutil.disk_usage(there), psutil.virtual_memory()
    return [
        ("Disk", disk.total - disk.free, disk.total),
        ("Memory", memory.total - memory.available, memory.total),
    ]
