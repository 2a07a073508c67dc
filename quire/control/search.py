"""Search by words, by meaning, or both; each hit names its document and page.

The query is embedded between two transactions, as an endpoint may take its time; everything that
is found comes from the second, so that all hits of a document belong to one generation.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from quire.control import corpora
from quire.errors import BadInput, QuireError
from quire.model.search import ChunkLocation, IndexHits, Model, QueryTerms, Scope, TermCounts
from quire.parse import word_boxes as boxing
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.search import fulltext, vectors
from quire.store.search import search as store
from quire.text import rank, snippets, words
from quire.text.embed.embedder import Embedder, open_embedder

MODES = ("hybrid", "text", "vector")
MOST = 100
#: Maximum characters of a query.
LONGEST = 2_000
#: Characters of the snippet of a hit.
WIDTH = 240

NO_WORDS = "No document contains these words. These are the closest by meaning."

Ranked = list[tuple[int, float]]
Open = Callable[[str], Embedder]


class Wanted(NamedTuple):
    """A query prepared for the indexes."""

    scope: Scope
    terms: list[list[str]]  # for FTS5
    simple: list[list[str]]  # for PostgreSQL
    points: list[tuple[Model, bytes]]  # the query's vector for each model in use
    note: str | None


def search(
    db: Database,
    tenant: str,
    query: str,
    *,
    limit: int = 10,
    mode: str = "hybrid",
    corpus: str | None = None,
    documents: Sequence[int] = (),
    where: Mapping[str, str] | None = None,
    media_type: str | None = None,
    embedder: Open = open_embedder,
) -> dict[str, Any]:
    """Search a tenant's live documents; returns the hits, best first."""
    began = time.perf_counter()
    text = _checked(query, limit, mode)
    filters = Scope(tenant, None, tuple(documents), tuple((where or {}).items()), media_type)
    wanted = _prepared(db, filters, corpus, text, mode, embedder)
    used = mode if wanted.points or mode == "text" else "text"
    with db.read() as conn:
        ranked, remark = _ranked(conn, wanted, used, limit)
        scores = dict(ranked[:limit])
        places = store.locate(conn, wanted.scope, list(scores), limit)
    items = [_hit(place, scores[place.chunk_id], wanted.terms) for place in places]
    took = round((time.perf_counter() - began) * 1000, 1)
    answer = {"items": items, "mode": used, "took_ms": took}
    note = " ".join(filter(None, (wanted.note, remark)))
    return {**answer, "note": note} if note else answer


def _checked(query: str, limit: int, mode: str) -> str:
    text = query.replace("\0", " ").strip()[:LONGEST]
    if not text:
        raise BadInput("search: the query is empty. Enter some words.")
    if mode == "fused":
        raise BadInput("search: mode 'fused' was renamed to 'hybrid'. Use that instead.")
    if mode not in MODES:
        raise BadInput(f"search: mode {mode!r} is not one of {', '.join(MODES)}.")
    if not 1 <= limit <= MOST:
        raise BadInput(f"search: limit {limit} is not between 1 and {MOST}.")
    return text


def _prepared(
    db: Database, filters: Scope, corpus: str | None, text: str, mode: str, embedder: Open
) -> Wanted:
    with db.read() as conn:
        corpus_id = None if corpus is None else corpora.find(conn, filters.tenant, corpus).id
        scope = filters._replace(corpus_id=corpus_id)
        used = [] if mode == "text" else store.models_in_use(conn, filters.tenant)
        spoken = store.languages(conn, filters.tenant)
    terms = words.query_terms(text, spoken)
    simple = [f for f in words.query_terms(text, spoken, simple=True) if words.tsquery([f])]
    points, notes = [], []
    for model, settings in used:
        try:
            points.append((model, _point(model, settings, text, embedder)))
        except QuireError as error:
            notes.append(f"{error} Documents embedded with {model.name} were searched by words.")
    if mode != "text" and spoken and not used:
        notes.append("No document has embeddings, so the search was by words only.")
    return Wanted(scope, terms, simple, points, " ".join(notes) or None)


def _point(model: Model, settings: str, text: str, embedder: Open) -> bytes:
    opened = embedder(json.loads(settings).get("embedder", "wordllama"))
    if opened.name != model.name:
        raise BadInput(
            f"embedding model mismatch: documents use {model.name}, this process {opened.name}. "
            "Re-index the documents."
        )
    [point] = opened.embed([text])
    if len(point) != model.dimensions:
        raise BadInput(
            f"embedder {model.name}: it returns {len(point)} dimensions, but the documents have "
            f"{model.dimensions}. Re-index them under another model name."
        )
    found: bytes = point.tobytes()
    return found


def _ranked(conn: Connection, wanted: Wanted, mode: str, limit: int) -> tuple[Ranked, str | None]:
    """Return chunks with scores from 0 to 1, best first, and notes for the user."""
    within = store.plan(conn, wanted.scope)
    if mode == "text":
        found = _by_words(conn, wanted, within, limit)
        return rank.scale_scores(found, _covered(conn, wanted, found).share), None
    depth = max(rank.CANDIDATES, limit)
    near = [
        (model, vectors.searcher(conn, within.scope.tenant, model, point))
        for model, point in wanted.points
    ]

    def nearest() -> Ranked:
        found = [
            store.best_chunks(conn, within, each.nearest, depth, enough=limit, model=model)
            for model, each in near
        ]
        # A cosine of 0 or less means unrelated.
        return _interleaved([[at for at in some if at[1] > 0] for some in found])

    if mode == "vector":
        by_vector = nearest()
        return rank.scale_scores(by_vector, _best(by_vector)), None
    for _, each in near:  # vectors are compared while words are looked up
        if within.few is not None:
            each.begin(depth, within.few)
        elif not within.scope.documents:
            each.begin(store.candidate_count(depth))
    by_words = _by_words(conn, wanted, within, limit)
    by_vector = nearest()
    covered = _covered(conn, wanted, by_words)
    fused = rank.fuse(by_words, by_vector, covered)
    is_guess = bool(fused and wanted.terms) and not by_words
    best = max(covered.share, _best(by_vector))
    return rank.scale_scores(fused, best), NO_WORDS if is_guess else None


def _best(by_vector: Ranked) -> float:
    return max((cosine for _, cosine in by_vector), default=0.0)


def _covered(conn: Connection, wanted: Wanted, by_words: Ranked) -> rank.Coverage:
    best = [chunk_id for chunk_id, _ in by_words[: rank.COVERAGE_TEXTS]]
    return rank.measure_coverage(store.chunk_texts(conn, best), wanted.terms)


def _by_words(conn: Connection, wanted: Wanted, within: store.SearchPlan, limit: int) -> Ranked:
    if not wanted.terms:
        return []
    asked = QueryTerms(
        tuple(words.fts5_query([forms]) for forms in wanted.terms),
        tuple(words.tsquery([forms]) for forms in wanted.simple),
    )

    def score(
        texts: Sequence[TermCounts], frequencies: Sequence[int], total: int
    ) -> Sequence[float]:
        return rank.bm25_scores(texts, wanted.simple, frequencies, total)

    def find(count: int, within: Any) -> IndexHits:
        tenant = wanted.scope.tenant
        return fulltext.matches(conn, tenant, asked, count, within, enough=limit, score=score)

    return store.best_chunks(conn, within, find, max(rank.CANDIDATES, limit), enough=limit)


def _interleaved(lists: Sequence[Ranked]) -> Ranked:
    """Merge by rank, because cosines of different models are not comparable."""
    if len(lists) < 2:
        return lists[0] if lists else []
    merged: dict[int, float] = {}
    for _, _, (chunk_id, score) in sorted(
        (position, at, item) for at, each in enumerate(lists) for position, item in enumerate(each)
    ):
        merged.setdefault(chunk_id, score)
    return list(merged.items())


def _hit(place: ChunkLocation, score: float, terms: list[list[str]]) -> dict[str, Any]:
    text, marks = snippets.snippet(place.text, terms, WIDTH)
    return {
        "document_id": place.document_id,
        "name": place.name,
        "page": place.page,
        "label": place.label,
        "score": round(score, 6),
        "text": text,
        "highlights": [list(mark) for mark in marks],
        "boxes": _boxes(place, text, marks),
        "uri": place.uri,
        "corpora": list(place.corpora),
    }


def _boxes(place: ChunkLocation, shown: str, marks: Sequence[tuple[int, int]]) -> list[list[float]]:
    """Return the boxes of the highlighted words, or of the whole chunk."""
    if not place.words or place.page_text is None:
        return []
    # Snippets have a space for any white space.
    plain = snippets.flatten_whitespace(place.text)
    at = place.start + max(plain.find(shown), 0)
    spans = [(at + start, at + stop) for start, stop in marks]
    return [
        list(box)
        for span in spans or [(place.start, place.start + len(place.text))]
        for box in boxing.boxes(place.words, place.page_text, *span)
    ]
