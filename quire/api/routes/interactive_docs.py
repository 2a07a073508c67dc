"""Swagger UI from an installed package, so that no request leaves the origin."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

router = APIRouter(prefix="/api/docs", include_in_schema=False)
_FILES = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Quire API</title>
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
<link rel="icon" href="/api/docs/favicon-32x32.png">
</head>
<body>
<div id="docs"></div>
<noscript><p>This page needs JavaScript. The API description is at
<a href="/api/openapi.json">/api/openapi.json</a>.</p></noscript>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
});
"""


@router.get("")
def page() -> Response:
    """Return the page."""
    return HTMLResponse(_PAGE)


@router.get("/start.js")
def start() -> Response:
    """Return the start script; the CSP forbids inline scripts."""
    return Response(_START, media_type="text/javascript")


@router.get("/{name}")
def file(name: str) -> Response:
    """Return a file of Swagger UI."""
    if name not in _FILES:
        raise HTTPException(404)
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(_read(name), media_type=_FILES[name], headers=headers)


@cache
def _read(name: str) -> bytes:
    return (files("fastapi_swagger") / "resources" / name).read_bytes()
