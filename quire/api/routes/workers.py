"""Workers: the processes that run tasks."""

from fastapi import APIRouter, Response

from quire.api.auth.authenticate import Reader
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, returns
from quire.control import queries

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", summary="List workers", **returns(models.ListOf[models.Worker]))
def listing(caller: Reader) -> Response:
    """List workers that have not ended, with the number of the tenant's tasks that each runs."""
    return ApiResponse({"items": queries.workers(caller), "next": None})
