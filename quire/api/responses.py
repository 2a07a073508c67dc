"""Answers of the API: JSON that any client can read, ETags, and how failures are documented."""

import hashlib
import json
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

PROBLEM = "application/problem+json"
_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "description": "What kind of failure it is."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened."},
        "remedy": {"type": "string", "description": "What happens next, or what to do."},
        "errors": {
            "type": "array",
            "description": "Of a request that is not accepted: each place that is wrong.",
            "items": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "wrong": {"type": "string"}},
            },
        },
    },
}
_TITLES = {
    400: "Not readable", 401: "Not signed in", 403: "Not allowed", 404: "Not found",
    409: "Conflict", 410: "Gone", 413: "Too large", 416: "Range not satisfiable",
    422: "Not accepted", 429: "Too many requests",
    502: "A store or source refuses", 503: "Not available now",
}  # fmt: skip
#: What every route may answer.
_ANY = (400, 401, 403, 413, 422, 429, 503)


class Answer(JSONResponse):
    """JSON in ASCII: half a surrogate pair in a stored text cannot be sent in any other way."""

    def render(self, content: Any) -> bytes:
        """Write the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def failing(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document the failures of a route: those named, and those that every route has."""
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


def giving(model: Any, *failures: int, status: int = 200, why: str = "") -> dict[str, Any]:
    """Document what a route gives, as arguments of its decorator."""
    good = {"model": model, "description": why or "Done"}
    return {
        "status_code": status,
        "responses": {status: good, **failing(*failures)},
        "response_class": Answer,
    }


def tagged(request: Request, content: Any) -> Response:
    """Answer with an ETag, or with 304 where the requester has the same already."""
    answer = Answer(content)
    tag = f'"{hashlib.blake2b(bytes(answer.body), digest_size=16).hexdigest()}"'
    if is_known(request, tag):
        return unchanged(tag)
    answer.headers["ETag"] = tag
    answer.headers["Cache-Control"] = "private, no-cache"
    return answer


def is_known(request: Request, tag: str) -> bool:
    """Tell whether the requester says that it has this version."""
    told = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    return "*" in told or tag in (each.removeprefix("W/") for each in told)


def unchanged(tag: str) -> Response:
    """Answer that nothing has changed."""
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
