"""Errors as problem+json (RFC 9457): `detail` says what happened, `remedy` what to do."""

import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from quire import errors, log
from quire.api.responses import PROBLEM, ApiResponse
from quire.url_secrets import masked

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
    for known in (errors.QuireError, RequestValidationError, HTTPException, Exception):
        api.add_exception_handler(known, _respond)


def describe(error: Exception) -> tuple[int, str, str]:
    """Return the status, the title and the text of an error, as people read it."""
    if isinstance(error, RequestValidationError):
        first = next(iter(_fields(error)), {"field": "request", "message": "malformed"})
        text = f"{first['field']}: {first['message']}. Nothing was changed."
        return 422, "Invalid request", text
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail), str(error.detail)
    for known, (status, title) in errors.STATUS.items():
        if isinstance(error, known):
            return status, title, str(error)
    text = "The server failed unexpectedly. See the server log for this request ID."
    is_ours = isinstance(error, errors.QuireError)
    return 500, "Internal error", str(error) if is_ours else text


def _fields(error: RequestValidationError) -> list[dict[str, str]]:
    return [
        {
            "field": ".".join(map(str, each["loc"])),
            "message": str(each["msg"]).removeprefix("Value error, "),
        }
        for each in error.errors()
    ]


async def _respond(request: Request, error: Exception) -> JSONResponse:
    status, title, text = describe(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status in (429, 503):
        wait = getattr(error, "retry_after", None) or RETRY_SECONDS
        headers["Retry-After"] = str(max(1, round(wait)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 500:
        log.event("api.internal_error", level="error", path=request.url.path, error=repr(error))
    if isinstance(error, HTTPException):
        text = f"{request.method} {request.url.path}: {text}. See /api/docs."
    more = {"errors": _fields(error)} if isinstance(error, RequestValidationError) else {}
    return problem(status, title, masked(text), headers=headers, **more)
