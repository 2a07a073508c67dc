"""Corpora: named sets of documents with pipeline settings."""

from dataclasses import asdict
from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Request, Response

from quire.api.auth.authenticate import CorpusReader, Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router, with_etag
from quire.api.state import app_state_of
from quire.control import corpora as verbs
from quire.control import corpus_reindex

router = Router(prefix="/api/corpora", tags=["corpora"])
Name = Annotated[str, Path(max_length=100, pattern=requests.PLAIN, description="Name of a corpus.")]


@router.on("GET", "", "List corpora", models.ListOf[models.Corpus])
def listing(caller: CorpusReader) -> Response:
    """List the tenant's corpora with the number of their documents."""
    return ApiResponse({"items": verbs.listed(caller), "next": None})


@router.on("POST", "", "Create a corpus", models.CorpusDetails, 409, status=201)
def create(caller: Writer, body: requests.NewCorpus) -> Response:
    """Create a corpus with settings."""
    verbs.create(caller, body.name, body.settings)
    place = f"/api/corpora/{quote(body.name, safe='')}"
    return ApiResponse(verbs.shown(caller, body.name), 201, headers={"Location": place})


@router.on("GET", "/{name:path}", "Show a corpus", models.CorpusDetails, 404)
def show(request: Request, caller: CorpusReader, name: Name) -> Response:
    """Show a corpus with every setting of its pipeline."""
    return with_etag(request, verbs.shown(caller, name))


@router.on("PATCH", "/{name:path}", "Change a corpus", models.CorpusChanged, 404)
def change(caller: Writer, name: Name, body: requests.CorpusChange) -> Response:
    """Change settings of a corpus; its documents change at their next ingest."""
    changed = verbs.change(caller, name, body.settings)
    consequence = verbs.consequence(changed)
    return ApiResponse(
        {**verbs.shown(caller, name), "changed": changed, "consequence": consequence}
    )


@router.on(
    "POST", "/{name:path}/reindex", "Index what is outdated again", models.CorpusReindex, 404,
    status=201,
)  # fmt: skip
def reindex(
    request: Request, caller: Writer, name: Name, body: requests.CorpusReindex | None = None
) -> Response:
    """Index the documents again that today's settings and parsers would index differently.

    With `dry_run`, only say what that costs.
    """
    settings = asdict(app_state_of(request).settings)
    plan = corpus_reindex.plan(caller, name, settings)._asdict()
    if body is not None and body.dry_run:
        return ApiResponse({"id": None, **plan})
    job_id = corpus_reindex.start(caller, name)
    place = {"Location": f"/api/jobs/{job_id}"}
    return ApiResponse({"id": job_id, **plan}, 201, headers=place)


@router.on("DELETE", "/{name:path}", "Delete a corpus", None, 404, status=204)
def delete(caller: Writer, name: Name) -> Response:
    """Delete a corpus; its documents are kept."""
    verbs.delete(caller, name)
    return Response(status_code=204)
