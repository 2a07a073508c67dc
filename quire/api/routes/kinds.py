"""Kinds of jobs: list, pause, unpause. All tenants share them, so only instance admins pause."""

from typing import Annotated

from fastapi import Path, Response

from quire.api.auth.authenticate import InstanceAdmin, Reader
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router
from quire.control import jobs as verbs
from quire.control import queries

router = Router(prefix="/api/kinds", tags=["kinds"])
Name = Annotated[str, Path(max_length=200, pattern=requests.PLAIN, description="Kind of job.")]


@router.on("GET", "", "List kinds of jobs", models.ListOf[models.Kind])
def listing(caller: Reader) -> Response:
    """List the kinds that workers have announced."""
    return ApiResponse({"items": queries.kinds(caller), "next": None})


@router.on("POST", "/{name}/pause", "Pause a kind", models.Paused)
def pause(caller: InstanceAdmin, name: Name) -> Response:
    """Stop new tasks of a kind; running ones finish."""
    changed = verbs.pause(caller, name)
    return ApiResponse({"name": name, "paused": True, "changed": changed})


@router.on("POST", "/{name}/unpause", "Unpause a kind", models.Paused)
def unpause(caller: InstanceAdmin, name: Name) -> Response:
    """Let tasks of a paused kind start again."""
    changed = verbs.unpause(caller, name)
    return ApiResponse({"name": name, "paused": False, "changed": changed})
