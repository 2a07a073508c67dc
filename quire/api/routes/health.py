"""Liveness and readiness, for load balancers and supervisors."""

from fastapi import APIRouter, Request, Response

from quire.api.responses import ApiResponse, problem_responses
from quire.api.state import app_state_of
from quire.errors import DatabaseUnavailable

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?", response_class=ApiResponse)
async def alive() -> Response:
    """Respond at once, whatever the state of the database."""
    return ApiResponse({"status": "alive"})


@router.get(
    "/readyz",
    summary="Can requests be served?",
    responses=problem_responses(),
    response_class=ApiResponse,
)
def ready(request: Request) -> Response:
    """Respond 200 if the database is reachable and its schema is current, else 503."""
    if missing := app_state_of(request).count_missing_migrations():
        raise DatabaseUnavailable(
            f"database: its schema lacks {missing} of this Quire's migrations. "
            "Run `quire migrate`.",
            retry_after=30,
        )
    return ApiResponse({"status": "ready"})
