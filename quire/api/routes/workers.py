"""Workers: the processes that run tasks."""

from fastapi import APIRouter, Request, Response

from quire.api.auth.authenticate import Reader
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, returns
from quire.api.state import app_state_of
from quire.control import queries

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", summary="List workers", **returns(models.ListOf[models.Worker]))
def listing(request: Request, viewer: Reader) -> Response:
    """List workers that have not ended, with the number of the tenant's tasks that each runs."""
    return ApiResponse(
        {"items": queries.workers(app_state_of(request).caller(viewer)), "next": None}
    )
