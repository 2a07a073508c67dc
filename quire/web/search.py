"""The search page: passages with highlighted words, each linked to its page."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from quire.api.auth.authenticate import Reader
from quire.api.state import app_state_of
from quire.control import corpora
from quire.control import search as searching
from quire.ingest.resources import embedder_of, reranker_of
from quire.model.pipeline import Pipeline
from quire.web.rendering import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
HITS = 20


@router.get("/search")
def search(
    request: Request,
    caller: Reader,
    q: Annotated[str, Query(max_length=searching.LONGEST)] = "",
    corpus: Annotated[str, Query(max_length=200)] = "",
    mode: Annotated[str, Query(max_length=20)] = "hybrid",
) -> Response:
    """Search the tenant's documents."""
    found: dict[str, Any] | None = None
    settings = asdict(app_state_of(request).settings)
    query = q.replace("\0", " ").strip()
    if query:
        found = {"note": None} | searching.search(
            caller.db, caller.tenant, query, limit=HITS, mode=mode,
            corpus=corpus.replace("\0", "") or None, explain=True,
            embedder=lambda name: embedder_of(settings, Pipeline(embedder=name)),
            reranker=reranker_of(settings),
        )  # fmt: skip
    return page(
        request, "search.html", found=found,
        corpora=corpora.listed(caller),
        kept={"q": query, "corpus": corpus, "mode": mode},
    )  # fmt: skip
