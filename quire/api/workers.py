"""Workers: the processes that run tasks."""

from fastapi import APIRouter, Request, Response

from quire.api import shapes
from quire.api.answers import Answer, giving
from quire.api.gate import Reader
from quire.api.office import office_of
from quire.runtime import crews

router = APIRouter(prefix="/api/workers", tags=["workers"])


@router.get("", summary="List workers", **giving(shapes.Listed[shapes.Worker]))
def listing(request: Request, viewer: Reader) -> Response:
    """List the workers that have not ended, with how many of the tenant's tasks each runs."""
    db = office_of(request).db
    with db.read() as conn:
        return Answer({"items": crews.listed(db, conn, viewer.tenant), "next": None})
