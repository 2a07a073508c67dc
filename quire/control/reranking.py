"""Orders the best hits of a search by a reranker, and keeps their order if that fails."""

from collections.abc import Sequence
from typing import NamedTuple

from quire import log
from quire.control.ranking import RankedPage
from quire.errors import QuireError
from quire.model.search import ChunkLocation
from quire.text.rerank.reranker import Reranker

NOT_RERANKED = "The reranker failed, so the hits keep the order of the search. The log says why."


class Hit(NamedTuple):
    """A page that was found, its score, and what a reranker made of it."""

    page: RankedPage
    place: ChunkLocation
    score: float
    text: str  # for the reranker
    relevance: float | None = None
    rank_before: int = 0


def depth(limit: int, reranker: Reranker | None) -> int:
    """Return how many hits to find: always as many as are reranked, whatever is asked for."""
    return max(limit, reranker.most) if reranker else limit


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit]) -> tuple[list[Hit], str]:
    """Order the first hits by their relevance; returns a note for the user if that failed."""
    best, others = hits[: reranker.most], hits[reranker.most :]
    if not best or not query:
        return list(hits), ""
    try:
        scores = reranker.scores(query, [hit.text for hit in best])
    except QuireError as error:
        log.event("search.not_reranked", level="warning", error=error)
        return list(hits), NOT_RERANKED  # the error may quote what the operator's server said
    scored = [
        hit._replace(score=score, relevance=score, rank_before=rank)
        for rank, (hit, score) in enumerate(zip(best, scores, strict=True), start=1)
    ]
    scored.sort(key=lambda hit: -hit.score)  # stable: ties keep their order
    least = scored[-1].score
    return [*scored, *(hit._replace(score=min(hit.score, least)) for hit in others)], ""
