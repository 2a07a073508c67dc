"""The verb search: by words, by meaning, or both fused; each hit says where to look.

The query is embedded between two transactions, as an endpoint may take its time; everything that
is found comes from the second, so that all hits of a document belong to one generation.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from quire.errors import BadInput, NotFound, QuireError
from quire.model.search import Model, Place, Scope, Words
from quire.parse import words as boxing
from quire.store import search as store
from quire.store import text_index, vectors
from quire.store.engine import Database
from quire.text import embed, ranking, snippets, words

MODES = ("fused", "text", "vector")
MOST = 100
#: Characters of a query; what is more is not read.
LONGEST = 2_000
#: Words of a query that are looked up.
MOST_TERMS = 32
#: Chunks that each index gives to be fused, at least.
DEPTH = 50
#: Characters of the text shown with a hit.
WIDTH = 240

Open = Callable[[str], embed.Embedder]


class Wanted(NamedTuple):
    """A query made ready for the indexes."""

    scope: Scope
    terms: list[list[str]]
    points: list[tuple[Model, bytes]]  # the query's vector by each model in use
    note: str | None


def search(
    db: Database,
    tenant: str,
    query: str,
    *,
    limit: int = 10,
    mode: str = "fused",
    corpus: str | None = None,
    documents: Sequence[int] = (),
    where: Mapping[str, str] | None = None,
    media_type: str | None = None,
    embedder: Open = embed.open_embedder,
) -> dict[str, Any]:
    """Search a tenant's live documents; returns the hits, best first."""
    began = time.perf_counter()
    text = _checked(query, limit, mode)
    filters = Scope(tenant, None, tuple(documents), tuple((where or {}).items()), media_type)
    wanted = _prepared(db, filters, corpus, text, mode, embedder)
    used = mode if wanted.points or mode == "text" else "text"
    with db.read() as conn:
        ranked = _ranked(conn, wanted, used, max(DEPTH, 2 * limit))
        scores = dict(ranked[:limit])
        places = store.places(conn, wanted.scope, list(scores), limit)
    items = [_hit(place, scores[place.chunk_id], wanted.terms) for place in places]
    took = round((time.perf_counter() - began) * 1000, 1)
    answer = {"items": items, "mode": used, "took_ms": took}
    return answer if wanted.note is None else {**answer, "note": wanted.note}


def _checked(query: str, limit: int, mode: str) -> str:
    text = query.replace("\0", " ").strip()[:LONGEST]
    if not text:
        raise BadInput("search: the query is empty. Give some words to look for.")
    if mode not in MODES:
        raise BadInput(f"search: mode {mode!r} is not one of {', '.join(MODES)}.")
    if not 1 <= limit <= MOST:
        raise BadInput(f"search: limit {limit} is not between 1 and {MOST}.")
    return text


def _prepared(
    db: Database, filters: Scope, corpus: str | None, text: str, mode: str, embedder: Open
) -> Wanted:
    with db.read() as conn:
        scope = filters._replace(corpus_id=_corpus(conn, filters.tenant, corpus))
        used = [] if mode == "text" else store.models_in_use(conn, filters.tenant)
        spoken = store.languages(conn, filters.tenant)
    terms = words.query_terms(text, spoken)[:MOST_TERMS]
    points, notes = [], []
    for model, settings in used:
        try:
            points.append((model, _point(model, settings, text, embedder)))
        except QuireError as error:
            notes.append(f"{error} Documents embedded with {model.name} were searched by words.")
    if mode != "text" and spoken and not used:
        notes.append("No document has vectors; searched by words.")
    return Wanted(scope, terms, points, " ".join(notes) or None)


def _corpus(conn: Any, tenant: str, name: str | None) -> int | None:
    if name is None:
        return None
    found = store.corpus_named(conn, tenant, name)
    if found is None:
        known = ", ".join(store.corpus_names(conn, tenant)[:20]) or "none"
        raise NotFound(f"corpus {name!r}: no such corpus. Known: {known}.")
    return found


def _point(model: Model, settings: str, text: str, embedder: Open) -> bytes:
    opened = embedder(json.loads(settings).get("embedder", "wordllama"))
    if opened.name != model.name:
        raise BadInput(
            f"embedder: the documents were embedded with {model.name}, and here is {opened.name}. "
            "Re-index them to compare both."
        )
    return opened.embed([text])[0].tobytes()


def _ranked(conn: Any, wanted: Wanted, mode: str, depth: int) -> store.Ranked:
    by_words: store.Ranked = []
    if mode != "vector" and wanted.terms:
        find = partial(_matches, conn, wanted)
        by_words = store.best(conn, wanted.scope, find, depth)
    if mode == "text":
        return by_words
    by_vector = _interleaved([_near(conn, wanted.scope, *at, depth) for at in wanted.points])
    return by_vector if mode == "vector" else ranking.fuse(by_words, by_vector)


def _matches(conn: Any, wanted: Wanted, limit: int, among: Any) -> store.Ranked:
    asked = Words(
        words.fts5(wanted.terms),
        words.tsquery(wanted.terms),
        tuple(dict.fromkeys(stem for term in wanted.terms for stem in term)),
    )
    return text_index.matches(conn, wanted.scope.tenant, asked, limit, among, ranking.bm25)


def _near(conn: Any, scope: Scope, model: Model, point: bytes, depth: int) -> store.Ranked:
    def find(limit: int, among: Any) -> store.Ranked:
        return vectors.nearest(conn, scope.tenant, model, point, limit, among)

    # At a right angle or more it has nothing to do with the query.
    return [at for at in store.best(conn, scope, find, depth, model) if at[1] > 0]


def _interleaved(lists: Sequence[store.Ranked]) -> store.Ranked:
    """Merge by rank: cosines of different models cannot be compared."""
    if len(lists) == 1:
        return lists[0]
    merged: dict[int, float] = {}
    for _, _, (chunk_id, score) in sorted(
        (rank, at, item) for at, each in enumerate(lists) for rank, item in enumerate(each)
    ):
        merged.setdefault(chunk_id, score)
    return list(merged.items())


def _hit(place: Place, score: float, terms: list[list[str]]) -> dict[str, Any]:
    text, ranges = snippets.snippet(place.text, terms, WIDTH)
    return {
        "document_id": place.document_id,
        "name": place.name,
        "page": place.page,
        "label": place.label,
        "score": round(score, 6),
        "text": text,
        "highlights": [list(each) for each in ranges],
        "boxes": _boxes(place, terms),
        "uri": place.uri,
        "corpora": list(place.corpora),
    }


def _boxes(place: Place, terms: list[list[str]]) -> list[list[float]]:
    """Return the boxes of the words found, else those of the whole chunk."""
    if not place.words or place.page_text is None:
        return []
    end = place.start + len(place.text)
    found = snippets.found(place.text, terms) if place.text else []
    spans = [(place.start + a, place.start + b) for a, b in found] or [(place.start, end)]
    return [
        list(box)
        for start, stop in spans
        for box in boxing.boxes(place.words, place.page_text, start, stop)
    ]
