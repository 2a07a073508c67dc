"""The style sheet and scripts: their address has their digest, so they never go stale."""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from quire.errors import NotFound

router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
         "svg": "image/svg+xml"}  # fmt: skip
YEAR = 31_536_000


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    digest: str
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Read every file of the package's static folder."""
    found = {}
    for each in resources.files("quire.web").joinpath("static").iterdir():
        suffix = each.name.rpartition(".")[2]
        if suffix in TYPES:
            body = each.read_bytes()
            digest = hashlib.blake2b(body, digest_size=8).hexdigest()
            found[each.name] = Asset(body, digest, TYPES[suffix])
    return found


def address(name: str) -> str:
    """Return where a file is, with its digest."""
    return f"/static/{name}?v={assets()[name].digest}"


@router.get("/static/{name}")
def asset(request: Request, name: str, v: str = "") -> Response:
    """Send a file; for ever where its address has its digest, else with a check each time."""
    found = assets().get(name)
    if found is None:
        raise NotFound(f"file {name[:80]}: no such file. Nothing was sent.")
    tag = f'"{found.digest}"'
    is_named = v == found.digest
    kept = f"public, max-age={YEAR}, immutable" if is_named else "no-cache"
    headers = {"ETag": tag, "Cache-Control": kept}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)
