"""The search page: passages with highlighted words, each linked to its page."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from quire.api.auth.authenticate import Reader
from quire.api.state import app_state_of
from quire.control import corpora
from quire.control import search as searching
from quire.web.rendering import PageRoute, page

router = APIRouter(route_class=PageRoute, include_in_schema=False)
HITS = 20


@router.get("/search")
def search(
    request: Request,
    viewer: Reader,
    q: Annotated[str, Query(max_length=searching.LONGEST)] = "",
    corpus: Annotated[str, Query(max_length=200)] = "",
    mode: Annotated[str, Query(max_length=20)] = "hybrid",
) -> Response:
    """Search the tenant's documents."""
    app_state = app_state_of(request)
    found: dict[str, Any] | None = None
    query = q.replace("\0", " ").strip()
    if query:
        found = {"note": None} | searching.search(
            app_state.db, viewer.tenant, query, limit=HITS, mode=mode,
            corpus=corpus.replace("\0", "") or None,
        )  # fmt: skip
    return page(
        request, viewer, "search.html", found=found,
        corpora=corpora.listed(app_state.caller(viewer)),
        kept={"q": query, "corpus": corpus, "mode": mode},
    )  # fmt: skip
