"""Whether this process lives, and whether it can serve: for load balancers and supervisors."""

from fastapi import APIRouter, Request, Response

from quire.api.responses import Answer, failing
from quire.api.state import app_state_of
from quire.errors import DatabaseUnavailable, Refused, SchemaAhead
from quire.store.db import migrate

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?", response_class=Answer)
async def alive() -> Response:
    """Answer at once, whatever the database does."""
    return Answer({"status": "alive"})


@router.get(
    "/readyz", summary="Can requests be served?", responses=failing(), response_class=Answer
)
def ready(request: Request) -> Response:
    """Answer when the database does and its schema is this Quire's; else 503."""
    app_state = app_state_of(request)
    try:
        with app_state.db.read() as conn:
            missing = migrate.check(conn)
    except (Refused, SchemaAhead) as error:
        raise DatabaseUnavailable(str(error), retry_after=30) from error
    if missing:
        raise DatabaseUnavailable(
            f"database: its schema lacks {missing} of this Quire's migrations. "
            "Run `quire migrate`.",
            retry_after=30,
        )
    return Answer({"status": "ready"})
