"""Swagger UI from an installed package, so that no request leaves the origin."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

router = APIRouter(prefix="/api/docs", include_in_schema=False)
_FILES = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}


@router.get("")
def page() -> Response:
    """Return the page."""
    return Response(_read("quire", "api/pages/docs.html"), media_type="text/html")


@router.get("/start.js")
def start() -> Response:
    """Return the start script; the CSP forbids inline scripts."""
    return Response(_read("quire", "api/pages/docs.js"), media_type="text/javascript")


@router.get("/{name}")
def file(name: str) -> Response:
    """Return a file of Swagger UI."""
    if name not in _FILES:
        raise HTTPException(404)
    body = _read("fastapi_swagger", f"resources/{name}")
    headers = {"Cache-Control": "public, max-age=86400"}
    return Response(body, media_type=_FILES[name], headers=headers)


@cache
def _read(package: str, path: str) -> bytes:
    return files(package).joinpath(path).read_bytes()
