"""Workers: the processes that run tasks."""

from fastapi import APIRouter, Request, Response

from quire.api.auth.authenticate import Reader
from quire.api.models import responses as models
from quire.api.responses import Answer, giving
from quire.api.state import app_state_of
from quire.runtime.worker import liveness

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", summary="List workers", **giving(models.Listed[models.Worker]))
def listing(request: Request, viewer: Reader) -> Response:
    """List the workers that have not ended, with how many of the tenant's tasks each runs."""
    db = app_state_of(request).db
    with db.read() as conn:
        return Answer({"items": liveness.list_workers(db, conn, viewer.tenant), "next": None})
