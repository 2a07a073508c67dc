"""Search documents; returns passages, best first."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request, Response

from quire.api.auth.authenticate import CorpusReader
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router
from quire.api.state import app_state_of
from quire.control import queries
from quire.control import search as control
from quire.errors import BadInput
from quire.ingest.resources import embedder_of, reranker_of
from quire.model.pipeline import Pipeline

router = Router(prefix="/api/search", tags=["search"])
Id = Annotated[int, Query(ge=1, le=requests.LARGEST_ID)]
Pair = Annotated[str, Query(max_length=500, pattern=requests.PLAIN)]


@router.on("GET", "", "Search the documents", models.SearchResults, 404)
def search(
    request: Request,
    caller: CorpusReader,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=control.LONGEST,
            description='Words, a question or a topic; "quoted" words must be adjacent; `name:`, '
            "`year:` and `type:` restrict the documents.",
        ),
    ],
    mode: Annotated[
        str, Query(max_length=20, description="hybrid (words and meaning), text or vector.")
    ] = "hybrid",
    corpus: requests.Text = None,
    document: Annotated[list[Id] | None, Query(max_length=100)] = None,
    where: Annotated[list[Pair] | None, Query(max_length=20, description="KEY=VALUE")] = None,
    media_type: requests.Text = None,
    limit: Annotated[int, Query(ge=1, le=control.MOST)] = 10,
    explain: Annotated[
        bool, Query(description="Add `why` to each hit: what each field and word gave.")
    ] = False,
) -> Response:
    """Find passages by words, by meaning, or both."""
    settings = asdict(app_state_of(request).settings)
    found = control.search(
        caller.db,
        caller.tenant,
        q,
        limit=limit,
        mode=mode,
        corpus=queries.corpus_for(caller, corpus),
        documents=document or (),
        where=_pairs(where or []),
        media_type=media_type,
        explain=explain,
        is_closed=caller.corpus is not None,
        embedder=lambda name: embedder_of(settings, Pipeline(embedder=name)),
        reranker=reranker_of(settings),
    )
    if caller.corpus is not None:
        found["items"] = [{**each, "corpora": [caller.corpus.name]} for each in found["items"]]
    return ApiResponse(found)


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"where: {text[:40]!r} is not KEY=VALUE.")
        found[name.strip()] = value
    return found
