"""API responses: JSON, ETags, and the documentation of errors in the OpenAPI document."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

F = TypeVar("F", bound=Callable[..., Any])
PROBLEM = "application/problem+json"
_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "description": "The kind of error."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened."},
        "remedy": {"type": "string", "description": "What happens next, or what to do."},
        "errors": {
            "type": "array",
            "description": "All invalid fields of a request (422).",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
_TITLES = {
    400: "Malformed request", 401: "Not signed in", 403: "Not allowed", 404: "Not found",
    409: "Conflict", 410: "Gone", 413: "Too large", 416: "Range not satisfiable",
    422: "Invalid request", 429: "Too many requests",
    502: "Storage or source refused", 503: "Temporarily unavailable",
}  # fmt: skip
#: Errors that every route can return.
_ANY = (400, 401, 403, 413, 422, 429, 503)


class ApiResponse(JSONResponse):
    """JSON in ASCII, because stored text may contain lone surrogates, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """Encode the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document the errors of a route: those given, and those of every route."""
    return {status: _failure(status) for status in sorted({*statuses, *_ANY})}


def _failure(status: int) -> dict[str, Any]:
    title = _TITLES[status]
    example = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": "job 7: no such job." if status == 404 else f"{title}.",
        "remedy": "`quire jobs` lists them." if status == 404 else "See docs/api.md.",
    }
    return {
        "description": title,
        "content": {PROBLEM: {"schema": _SCHEMA, "example": example}},
    }


class Router(APIRouter):
    """Routes that document what they answer and how they fail."""

    def on(
        self,
        method: str,
        path: str,
        summary: str,
        model: Any,
        *failures: int,
        status: int = 200,
        **more: Any,
    ) -> Callable[[F], F]:
        """Serve a method of a path; without a model the response is empty."""
        responses = problem_responses(*failures)
        if model is not None:
            responses[status] = {"model": model, "description": "Success"}
        return self.api_route(
            path,
            methods=[method],
            summary=summary,
            status_code=status,
            responses=responses,
            response_class=ApiResponse,
            **more,
        )


def with_etag(request: Request, content: Any) -> Response:
    """Respond with an ETag, or with 304 if the client has this version."""
    answer = ApiResponse(content)
    tag = f'"{hashlib.blake2b(bytes(answer.body), digest_size=16).hexdigest()}"'
    if matches_etag(request, tag):
        return not_modified(tag)
    answer.headers["ETag"] = tag
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer


def matches_etag(request: Request, tag: str) -> bool:
    """Tell whether the client has this version (`If-None-Match`)."""
    told = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    return "*" in told or tag in (each.removeprefix("W/") for each in told)


def not_modified(tag: str) -> Response:
    """Respond 304."""
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
