"""Synonyms: words that mean the same, a list a corpus."""

from fastapi import Response

from quire.api.auth.authenticate import CorpusReader, Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router
from quire.api.routes.corpora import Name
from quire.control import synonyms as verbs

router = Router(prefix="/api/synonyms", tags=["corpora"])


@router.on("GET", "/{name:path}", "Show synonyms", models.Synonyms, 404)
def show(caller: CorpusReader, name: Name) -> Response:
    """Show the synonyms of a corpus."""
    return ApiResponse(verbs.shown(caller, name))


@router.on("PUT", "/{name:path}", "Replace synonyms", models.Synonyms, 404)
def replace(caller: Writer, name: Name, body: requests.Synonyms) -> Response:
    """Replace the synonyms of a corpus; searches use them at once."""
    return ApiResponse(verbs.replace(caller, name, verbs.content(body.csv, body.list)))


@router.on("DELETE", "/{name:path}", "Remove synonyms", None, 404, status=204)
def remove(caller: Writer, name: Name) -> Response:
    """Remove the synonyms of a corpus."""
    verbs.remove(caller, name)
    return Response(status_code=204)
