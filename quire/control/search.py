"""Search by words, by meaning, or both; each hit names its document and page.

The query is embedded between two transactions, as an endpoint may take its time; everything that
is found comes from the second, so that all hits of a document belong to one generation.
"""

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from quire.control import corpora, ranking, reranking, spelling
from quire.control.ranking import Ranking, Wanted
from quire.control.reranking import Hit
from quire.errors import BadInput, QuireError
from quire.model.search import ChunkLocation, Model, Scope
from quire.parse import file_type
from quire.parse import word_boxes as boxing
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.documents import corpora as corpus_rows
from quire.store.search import search as store
from quire.text import fields, query, rank, snippets, synonyms, words
from quire.text.embed.embedder import Embedder, open_embedder
from quire.text.query import Query
from quire.text.rerank.reranker import Reranker

MODES = ("hybrid", "text", "vector")
MOST = ranking.MOST_PAGES
#: Maximum characters of a query.
LONGEST = query.MAX_CHARS
#: Characters of the snippet of a hit.
WIDTH = 240

NO_WORDS = "No document contains these words. These are the closest by meaning."
NOTHING = "No document contains these words, and none is close in meaning."
NOT_ONE = "No document contains these words."
EMPTY = "The query has no words."
CUT = f"Only the first {query.MAX_TERMS} words of the query were used."
_TYPES = {
    "csv": "text/csv", "docx": file_type.DOCX, "eml": "message/rfc822", "html": "text/html",
    "jpg": "image/jpeg", "jpeg": "image/jpeg", "md": "text/markdown", "pdf": file_type.PDF,
    "png": "image/png", "pptx": file_type.PPTX, "tiff": "image/tiff", "txt": "text/plain",
    "xlsx": file_type.XLSX,
}  # fmt: skip

Open = Callable[[str], Embedder]


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
    explain: bool = False,
    is_closed: bool = False,
    embedder: Open = open_embedder,
    reranker: Reranker | None = None,
) -> dict[str, Any]:
    """Search a tenant's live documents; returns the best pages, each with its best passage.

    If the corpus is closed, no score, note or correction depends on what is outside of it.
    """
    began = time.perf_counter()
    text = _checked(query, limit, mode)
    filters = Scope(
        tenant, None, tuple(documents), tuple((where or {}).items()), media_type, is_closed
    )
    asked = _prepared(db, filters, corpus, text, mode, embedder)
    notes = asked.notes
    used = mode if asked.wanted.points or mode == "text" else "text"
    with db.read() as conn:
        wanted, found, corrected = _ranked(conn, asked, used)
        hits = _located(conn, found, used, reranking.depth(limit, reranker), bool(reranker))
    reranked = {}
    if reranker:
        hits, failure = reranking.rerank(reranker, wanted.query.plain, hits)
        notes.append(failure)
        reranked["reranked"] = not failure
    items = [
        _hit(hit, wanted.query) | (_explained(hit, wanted.query) if explain else {})
        for hit in hits[:limit]
    ]
    if used != "vector":
        notes.append(_note_of_words(wanted, found, used))
    corrected = {word: _as_written(better, items) for word, better in corrected.items()}
    for word, better in corrected.items():
        notes.append(
            f"No document contains {word!r}; {better!r} was searched for instead. "
            "Put a word in quotes to search for it as it is."
        )
    took = round((time.perf_counter() - began) * 1000, 1)
    answer = {"items": items, "mode": used, "took_ms": took, **reranked}
    if corrected:
        answer["did_you_mean"] = corrected
    note = " ".join(filter(None, notes))
    return {**answer, "note": note} if note else answer


def _checked(text: str, limit: int, mode: str) -> str:
    text = text.replace("\0", " ").strip()
    if not text:
        raise BadInput("search: the query is empty. Enter some words.")
    if mode == "fused":
        raise BadInput("search: mode 'fused' was renamed to 'hybrid'. Use that instead.")
    if mode not in MODES:
        raise BadInput(f"search: mode {mode!r} is not one of {', '.join(MODES)}.")
    if not 1 <= limit <= MOST:
        raise BadInput(f"search: limit {limit} is not between 1 and {MOST}.")
    return text


class _Asked(NamedTuple):
    wanted: Wanted
    languages: list[str]
    parse: Callable[..., Query]  # again, with other words for some
    notes: list[str]  # for the user


def _prepared(
    db: Database, filters: Scope, corpus: str | None, text: str, mode: str, embedder: Open
) -> _Asked:
    """Parse and embed the query."""
    with db.read() as conn:
        found = None if corpus is None else corpora.find(conn, filters.tenant, corpus)
        scope = filters._replace(corpus_id=found.id if found else None)
        of_corpus = scope.corpus_id if scope.is_closed else None
        used = [] if mode == "text" else store.models_in_use(conn, scope.tenant, of_corpus)
        spoken = _languages(conn, scope)
        lists = corpus_rows.synonyms(conn, scope.tenant, scope.corpus_id)
    parse = functools.partial(query.parse, text, spoken, list(map(synonyms.indexed, lists)))
    parsed = parse()
    scope = scope._replace(media_type=_media_type(parsed.media_types, filters.media_type))
    points, notes = [], [CUT] if parsed.is_cut else []
    for model, settings in used if parsed.plain else []:
        try:
            points.append((model, _point(model, settings, parsed.plain, embedder)))
        except QuireError as error:
            notes.append(f"{error} Documents embedded with {model.name} were searched by words.")
    if mode != "text" and spoken and not used:
        notes.append("No document has embeddings, so the search was by words only.")
    return _Asked(Wanted(scope, parsed, points), spoken, parse, notes)


def _ranked(conn: Connection, asked: _Asked, mode: str) -> tuple[Wanted, Ranking, dict[str, str]]:
    """Rank the pages; returns also what was searched for instead of words that are not there."""
    scope = _named(conn, asked.wanted)
    if scope is None:
        return asked.wanted, Ranking([], 0.0, False), {}
    wanted = asked.wanted._replace(scope=scope)
    found = ranking.rank_pages(conn, wanted, mode)
    missing = [wanted.query.terms[at] for at in found.missing]
    asked_words = [term for term in missing if not term.synonym_of]
    # Where meaning counts too, several missing words are other words, not misspelt ones.
    is_reworded = mode == "hybrid" and len(asked_words) > 1
    instead = {} if is_reworded else spelling.corrections(conn, scope, missing, asked.languages)
    if instead:
        wanted = wanted._replace(query=asked.parse(instead=instead))
        found = ranking.rank_pages(conn, wanted, mode)
    return wanted, found, instead


def _languages(conn: Connection, scope: Scope) -> list[str]:
    """List the languages that words may be of: those of the tenant, or of a closed corpus."""
    if not scope.is_closed:
        return store.languages(conn, scope.tenant)
    return store.languages_of(conn, Scope(scope.tenant, scope.corpus_id))


def _media_type(given: Sequence[str], other: str | None) -> str | None:
    """Return the media type that `type:` names."""
    for name in given:
        if (found := name if "/" in name else _TYPES.get(name.lower())) is None:
            known = ", ".join(sorted(_TYPES))
            raise BadInput(f"search: type:{name[:20]} is not a media type or one of {known}.")
        if other not in (None, found):
            raise BadInput(f"search: a file has one type, but {other} and {found} are asked for.")
        other = found
    return other


def _named(conn: Connection, wanted: Wanted) -> Scope | None:
    """Restrict the scope to documents with the words of `name:` and `year:`; None if none has."""
    scope, names = wanted.scope, wanted.query.names
    if not names:
        return scope
    entries = [fields.NAME + word for word in names]
    ids = store.documents_named(conn, scope, entries)
    if len(ids) > store.MAX_NAMED:
        raise BadInput(
            f"search: more than {store.MAX_NAMED:,} documents have {', '.join(names)} in their "
            "name. Nothing was searched. Add a word to name: or year:."
        )
    if scope.documents:
        ids = [each for each in ids if each in set(scope.documents)]
    return scope._replace(documents=tuple(ids)) if ids else None


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


def _located(
    conn: Connection, found: Ranking, mode: str, depth: int, with_texts: bool
) -> list[Hit]:
    """Return what a result shows of the best pages, and the texts that a reranker reads."""
    pages = found.pages[:depth]
    at = [page.place for page in pages]
    texts = [each.text for each in store.texts(conn, at)] if with_texts else [""] * len(at)
    return [
        Hit(page, place, score, f"{place.name}\n{text}" if with_texts else "")
        for page, place, score, text in zip(
            pages, store.locate(conn, at), _scores(found, mode), texts, strict=False
        )
    ]


def _scores(found: Ranking, mode: str) -> list[float]:
    """Scale scores so that the first one tells how good the best page is."""
    best = max((page.parts.cosine or 0.0 for page in found.pages), default=0.0)
    if mode != "vector":
        best = max(found.coverage, best if mode == "hybrid" else 0.0)
    return rank.scale_scores([page.score for page in found.pages], best)


def _explained(hit: Hit, asked: Query) -> dict[str, Any]:
    """Say what each field, each word, the vector and the reranker gave."""
    page, parts, document = hit.page, hit.page.parts, hit.page.parts.document
    name = tuple(rank.NAME * each for each in document.name) if document else ()
    by_field: dict[str, tuple[float, ...]] = {
        "text": parts.chunk, "heads": tuple(rank.HEADS * each for each in parts.heads),
        "name": name, "all_pages": document.text if document else (),
    }  # fmt: skip
    found = []
    for at, term in enumerate(asked.terms):
        given = {field: round(some[at], 3) for field, some in by_field.items() if some and some[at]}
        if given:
            of = {"synonym_of": term.synonym_of} if term.synonym_of else {}
            found.append({"word": term.word, **of, **given})
    why: dict[str, Any] = {
        "page": round(page.shares[0], 3),
        "document": round(page.shares[1], 3),
        "vector": round(page.shares[2], 3),
        "words": found,
        "name": round(sum(name), 3),
        "all_pages": round(sum(by_field["all_pages"]), 3),
        "cosine": None if parts.cosine is None else round(parts.cosine, 3),
    }
    if hit.relevance is not None:
        why["rerank"] = {"score": round(hit.relevance, 3), "before": hit.rank_before}
    return {"why": why}


def _note_of_words(wanted: Wanted, found: Ranking, mode: str) -> str:
    """Say what words found if it was nothing."""
    if not wanted.query.terms:
        return EMPTY
    if found.has_words:
        return ""
    if mode == "text":
        return NOT_ONE
    return NO_WORDS if found.pages else NOTHING


def _as_written(better: str, items: Sequence[Mapping[str, Any]]) -> str:
    """Return a word as the hits have it: a guess may only have the same stem."""
    stem = words.stem([better], "")
    marked = [hit["text"][start:stop].lower() for hit in items for start, stop in hit["highlights"]]
    shown = [each for each in marked if words.stem([each], "") == stem]
    return better if better in shown else next(iter(shown), better)


def _hit(found: Hit, asked: Query) -> dict[str, Any]:
    place = found.place
    terms = [list(term.fts5) for term in asked.terms]
    text, marks = snippets.snippet(place.text, terms, WIDTH)
    return {
        "document_id": place.document_id,
        "name": place.name,
        "page": place.page,
        "label": place.label,
        "score": round(found.score, 6),
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
