"""Errors as problem+json (RFC 9457): `detail` says what happened, `remedy` what to do."""

import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from quire import errors, log
from quire.api.responses import PROBLEM, ApiResponse

#: The first matching class decides; an error that matches none is an internal error.
STATUS: dict[type[errors.QuireError], tuple[int, str]] = {
    errors.NotSignedIn: (401, "Not signed in"),
    errors.Forbidden: (403, "Not allowed"),
    errors.TooLarge: (413, "Too large"),
    errors.TooMany: (429, "Too many requests"),
    errors.NotFound: (404, "Not found"),
    errors.Gone: (410, "Gone"),
    errors.SourceRefused: (502, "Storage or source refused"),
    errors.Conflict: (409, "Conflict"),
    errors.UserBusy: (409, "Another job is active"),
    errors.UnknownKind: (422, "Unknown job kind"),
    errors.BadInput: (422, "Invalid request"),
    errors.DatabaseUnavailable: (503, "Database unavailable"),
    errors.Unreadable: (422, "Unreadable file"),
    errors.Refused: (409, "Refused"),
    errors.Transient: (503, "Temporarily unavailable"),
}
RETRY_SECONDS = 2
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def problem(
    status: int, title: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return a problem+json response."""
    what, *remedy = _SENTENCE.split(detail, maxsplit=1)
    body = {"type": "about:blank", "title": title, "status": status, "detail": what, **more}
    if remedy:
        body["remedy"] = remedy[0]
    return ApiResponse(body, status, headers=headers or {}, media_type=PROBLEM)


def install(api: FastAPI) -> None:
    """Turn every error of Quire, FastAPI and request validation into a problem."""
    api.add_exception_handler(errors.QuireError, _quire_error)
    api.add_exception_handler(RequestValidationError, _malformed)
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(Exception, _internal_error)


def status_of(error: Exception) -> tuple[int, str]:
    """Return the status and the title for an error."""
    for known, answer in STATUS.items():
        if isinstance(error, known):
            return answer
    return 500, "Internal error"


async def _quire_error(request: Request, error: Exception) -> JSONResponse:
    status, title = status_of(error)
    headers = {}
    if status in (429, 503):
        wait = getattr(error, "retry_after", None) or RETRY_SECONDS
        headers["Retry-After"] = str(max(1, round(wait)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 500:
        log.event("api.internal_error", level="error", path=request.url.path, error=str(error))
    return problem(status, title, str(error), headers=headers)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    found = [
        {
            "field": ".".join(map(str, each["loc"])),
            "message": str(each["msg"]).removeprefix("Value error, "),
        }
        for each in error.errors()
    ]
    first = found[0] if found else {"field": "request", "message": "malformed"}
    detail = f"{first['field']}: {first['message']}. Nothing was changed."
    return problem(422, "Invalid request", detail, errors=found)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    detail = f"{request.method} {request.url.path}: {error.detail}. See /api/docs."
    return problem(error.status_code, str(error.detail), detail, headers=dict(error.headers or {}))


async def _internal_error(request: Request, error: Exception) -> JSONResponse:
    log.event("api.internal_error", level="error", path=request.url.path, error=repr(error))
    return problem(
        500,
        "Internal error",
        "The server failed unexpectedly. See the server log for this request ID.",
    )
