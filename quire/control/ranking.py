"""Ranks pages for a query: collects candidates from the indexes, and scores them by `text.rank`.

Candidates are the pages of the best documents, those of the best chunks by words, and those of the
nearest vectors: always as many as the longest answer needs, so that the first hits do not depend on
the number of hits asked for.
"""

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.model.search import Model, QueryTerms, Scope
from quire.store import Connection
from quire.store.search import fulltext, vectors
from quire.store.search import search as store
from quire.store.search.chunk_filter import ChunkFilter
from quire.store.search.search import Place, SearchPlan
from quire.text import fields, rank, words
from quire.text.query import Query
from quire.text.rank import Counts, DocumentScore, DocumentScores, Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

#: Documents whose chunks are all candidates, and the chunks that these have at most.
BEST_DOCUMENTS, BEST_DOCUMENT_CHUNKS = 10, 20_000
#: Candidate chunks by words, over all and of the best documents, and by vectors.
BEST_CHUNKS, BEST_OF_DOCUMENTS, NEAREST = 200, 250, 100
#: A word that this many chunks of the tenant have is not misspelt: to look for others takes longer
#: than the whole search.
SPELT_RIGHT = 20
#: Pages of the longest answer; chunks whose texts are scored, more if they are on fewer pages.
MOST_PAGES, SCORED = 100, 150


class Wanted(NamedTuple):
    """A query prepared for the indexes."""

    scope: Scope
    query: Query
    points: list[tuple[Model, bytes]]  # the query's vector for each model in use


class Parts(NamedTuple):
    """What a page scored by, not yet scaled: by term, and its cosine."""

    chunk: tuple[float, ...]
    heads: tuple[float, ...]
    document: DocumentScore | None
    cosine: float | None

    @property
    def page(self) -> float:
        """The score of the page by its own words."""
        return sum(self.chunk) + rank.HEADS * sum(self.heads)


class RankedPage(NamedTuple):
    """A page with its best chunk, its score, and the shares that page, document and vector have."""

    place: Place
    score: float
    parts: Parts
    shares: tuple[float, float, float]


class Ranking(NamedTuple):
    """Pages, best first."""

    pages: list[RankedPage]
    coverage: float  # share of the query's words in the best chunks
    has_words: bool  # some page has some word
    missing: tuple[int, ...] = ()  # terms of the query that no document in scope has


def rank_pages(conn: Connection, wanted: Wanted, mode: str) -> Ranking:
    """Rank the pages in scope; `mode` is text, vector or hybrid."""
    within = store.plan(conn, wanted.scope)
    near = _Nearness(conn, wanted, within) if mode != "text" else None
    if near is not None:  # vectors are compared while words are looked up
        near.begin()
    found = _Words(conn, wanted, within) if mode != "vector" and wanted.query.terms else None
    ids = found.candidates() if found else []
    ids += near.candidates() if near else []
    places = store.places(conn, wanted.scope, list(dict.fromkeys(ids)))
    if found:
        places = found.prune(places)
    cosines = near.cosines([place.chunk_id for place in places]) if near else {}
    return _score(conn, wanted, places, found, cosines)


class _Words:
    """What words find: documents, and the chunks that have terms."""

    def __init__(self, conn: Connection, wanted: Wanted, within: SearchPlan) -> None:
        self._conn, self._wanted, self._within = conn, wanted, within
        terms = wanted.query.terms
        self.factors = [term.weight for term in terms]
        asked = QueryTerms(
            tuple(words.fts5_query([term.fts5]) for term in terms),
            tuple(words.tsquery([term.forms]) for term in terms),
        )
        self._index = fulltext.open_index(conn, wanted.scope.tenant, asked)
        #: Chunks of each document.
        self._sizes: dict[int, int] = {}
        self.documents = self._rank_documents()
        self._totals = self.documents.totals()
        #: Chunks in scope with each term, as far as the index knows them.
        self._chunks_with: Sequence[int] = [0] * len(terms)
        self.presence, self.weights = self._look_up()

    def _rank_documents(self) -> DocumentScores:
        """Score the documents in scope by their names and words."""
        if self._within.documents == 1 and not self._wanted.query.names:
            return DocumentScores.none(len(self.factors))
        terms = _document_terms(self._wanted.query)
        forms = [each for each, _ in terms]
        joined = set(self._wanted.query.joined)
        entries = {fields.NAME + form for some in forms for form in some}
        for form in {form for some in forms for form in some} - joined:
            entries.update(fields.text_entries(form))
        matched = store.match_documents(self._conn, self._within, sorted(entries))
        ids, chunks = matched.documents[:, 0], matched.documents[:, 3]
        self._sizes = dict(zip(ids.tolist(), chunks.tolist(), strict=True))
        return rank.score_documents(
            matched.found, forms, [each for _, each in terms], matched.documents,
            matched.total, matched.average,
        )  # fmt: skip

    def _look_up(self) -> tuple[fulltext.Presence, Weights]:
        index, few = self._index, self._within.few
        if few is not None:
            ids = few.ids()
            found = index.within(ids)
            self._chunks_with = found.frequencies(len(self.factors))
            return found, Weights.of(self._chunks_with, len(ids), self.factors)
        if self._within.scope == Scope(self._wanted.scope.tenant):
            self._chunks_with = index.frequencies
        weights = Weights.of(index.frequencies, index.total, self.factors)

        def weigh(frequencies: Sequence[int], total: int) -> Sequence[float]:
            return Weights.of(frequencies, total, self.factors).by_term

        return index.anywhere(weigh, BEST_CHUNKS), weights

    def missing(self, scored: Sequence[Counts]) -> tuple[int, ...]:
        """Return the terms that nothing in scope has, and that may be misspelt.

        A few chunks outside of the scope do not make a word right; and of a closed scope, what is
        out of it must not matter.
        """
        is_closed = self._within.scope.is_closed
        return tuple(
            at
            for at, chunks in enumerate(self._chunks_with)
            if not chunks
            and (is_closed or self._index.frequencies[at] < SPELT_RIGHT)
            and not self.documents.has_term(at)
            and not any(each.times[at] for each in scored)
        )

    def best_documents(self) -> list[int]:
        """Return the best documents, as many as have not too many chunks."""
        found, room = list[int](), BEST_DOCUMENT_CHUNKS
        order = [(-total, document) for document, total in self._totals.items()]
        for _, document in heapq.nsmallest(BEST_DOCUMENTS, order):
            room -= self._sizes[document]
            if room < 0 and found:
                break
            found.append(document)
        return found

    def candidates(self) -> list[int]:
        """Return the ids of the chunks that may be on the best pages."""
        weights = self.weights.by_term
        if self._within.few is not None:
            self.presence = self.presence.best(weights, BEST_CHUNKS + BEST_OF_DOCUMENTS)
        else:
            self.presence = self.presence.best(weights, BEST_CHUNKS)
            self._add_best_documents()
        return [*self.presence.ids.tolist(), *self._first_chunks()]

    def _add_best_documents(self) -> None:
        if not (best := self.best_documents()):
            return
        scope = Scope(self._wanted.scope.tenant, documents=tuple(best))
        ids = store.scope_chunks(self._conn, scope)
        own = self._index.within(ids)
        # What tells documents apart does not tell their pages apart.
        inner = Weights.of(own.frequencies(len(self.factors)), len(ids), self.factors)
        self.weights = self.weights.mean(inner)
        own = own.best(self.weights.by_term, BEST_OF_DOCUMENTS)
        self.presence = fulltext.join_presence(self.presence, own)

    def _first_chunks(self) -> list[int]:
        """Return the first chunks of the best documents that are named by the query."""
        named = [each for each in self.best_documents() if any(self.documents[each].name)]
        return store.first_chunks(self._conn, named)

    def prune(self, places: Sequence[Place]) -> list[Place]:
        """Return the places whose texts are worth scoring."""
        if len(places) <= SCORED:
            return list(places)
        scores = self.presence.score_of(self.weights.by_term)
        by_chunk = [scores.get(place.chunk_id, 0.0) for place in places]
        by_document = [self._totals.get(place.document_id, 0.0) for place in places]
        guessed = [
            page + rank.DOCUMENT * document
            for page, document in zip(rank.scaled(by_chunk), rank.scaled(by_document), strict=True)
        ]
        found, pages = list[int](), set[tuple[int, int]]()
        for at in sorted(range(len(places)), key=lambda at: -guessed[at]):
            if len(found) >= SCORED and len(pages) >= MOST_PAGES:
                break
            found.append(at)
            pages.add((places[at].document_id, places[at].page))
        return [places[at] for at in sorted(found)]


def _document_terms(query: Query) -> list[tuple[list[str], float]]:
    """Return the forms and the weights of what is asked of documents: no phrases or prefixes.

    The terms of the query come first, those without such forms too, in its order.
    """
    found = [
        ([form for form in term.forms if not form.endswith("*") and " " not in form], term.weight)
        for term in query.terms
    ]
    return found + [([each], 1.0) for each in query.joined]


class _Nearness:
    """What vectors find."""

    def __init__(self, conn: Connection, wanted: Wanted, within: SearchPlan) -> None:
        self._conn, self._within = conn, within
        self._near = [
            (model, vectors.searcher(conn, within.scope.tenant, model, point))
            for model, point in wanted.points
        ]

    def begin(self) -> None:
        """Start the comparison in other threads or sessions."""
        for _, each in self._near:
            if self._within.few is not None:
                each.begin(NEAREST, self._within.few)
            elif not self._within.scope.documents:
                each.begin(store.candidate_count(NEAREST))

    def candidates(self) -> list[int]:
        """Return the nearest chunks; those of several models in turns."""
        lists = []
        for model, each in self._near:
            near = store.nearest_chunks(self._conn, self._within, each.nearest, NEAREST, model)
            # Whoever chose a few documents wants the best of them.
            is_chosen = self._within.few is not None
            is_meaningful = is_chosen or (bool(near) and near[0][1] >= rank.MIN_BEST_COSINE)
            least = 0.0 if is_chosen else rank.MIN_COSINE
            lists.append([c for c, cosine in near if is_meaningful and cosine > least])
        turns = sorted(
            (position, at, chunk)
            for at, some in enumerate(lists)
            for position, chunk in enumerate(some)
        )
        return [chunk for _, _, chunk in turns]

    def cosines(self, ids: Sequence[int]) -> dict[int, float]:
        """Return the cosines of chunks; the better one of several models."""
        found: dict[int, float] = {}
        few = ChunkFilter.of(self._conn, sorted(set(ids)))
        for _, each in self._near:
            for chunk_id, cosine in each.nearest(len(ids), few).ranked if ids else ():
                found[chunk_id] = max(cosine, found.get(chunk_id, -1.0))
        return found


def _score(
    conn: Connection,
    wanted: Wanted,
    places: Sequence[Place],
    found: _Words | None,
    cosines: dict[int, float],
) -> Ranking:
    """Score the best chunk of each page, and order the pages."""
    terms = wanted.query.terms if found else ()
    weights = found.weights if found else Weights(())
    counter = rank.TermCounter([term.forms for term in terms])
    texts = store.texts(conn, places) if found else []
    asked = [at for at, term in enumerate(terms) if term.weight == 1.0]
    own = [counter.in_text(each.text, each.language) for each in texts]
    by_chunk = rank.bm25(own, weights) if found else [()] * len(places)
    headed = [counter.in_entries(each.heads) for each in texts]
    by_heads = rank.bm25_of_heads(headed, weights) if found else [()] * len(places)
    listed = dict.fromkeys(place.document_id for place in places)
    documents = {each: found.documents.get(each) for each in listed} if found else {}
    known = [documents.get(place.document_id) for place in places]
    names = [each.name if each else () for each in known]
    by_chunk, by_heads = (
        [rank.discount(each, name) for each, name in zip(some, names, strict=True)]
        for some in (by_chunk, by_heads)
    )
    best: dict[tuple[int, int], tuple[float, float, int]] = {}
    for at, place in enumerate(places):
        worth = sum(by_chunk[at]), cosines.get(place.chunk_id, -1.0)
        key = place.document_id, place.page
        if key not in best or (*worth, -at) > best[key]:
            best[key] = (*worth, -at)
    chosen = [-at for _, _, at in best.values()]
    parts = [
        Parts(
            by_chunk[at], by_heads[at], documents.get(places[at].document_id),
            cosines.get(places[at].chunk_id),
        )
        for at in chosen
    ]  # fmt: skip
    has_words = any(part.page > 0 or part.document for part in parts)
    best_counts = sorted(own, key=lambda each: -sum(map(bool, each.times)))[:1]
    covered, share = rank.coverage(
        [Counts(each.length, tuple(each.times[at] for at in asked)) for each in best_counts],
        len(asked),
    )
    shortfall = rank.shortfall(covered, share)
    pages = _ordered([places[at] for at in chosen], parts, shortfall, bool(terms))
    return Ranking(pages, share, has_words, found.missing([*own, *headed]) if found else ())


def _ordered(
    places: Sequence[Place], parts: Sequence[Parts], shortfall: float, has_terms: bool
) -> list[RankedPage]:
    pages = rank.scaled([each.page for each in parts])
    documents = rank.scaled([each.document.total if each.document else 0.0 for each in parts])
    near = rank.spread([max(each.cosine or 0.0, 0.0) for each in parts])
    words = rank.scaled(
        [one + rank.DOCUMENT * two for one, two in zip(pages, documents, strict=True)]
    )
    has_documents = any(documents)
    ranked = []
    for at, place in enumerate(places):
        of_document = documents[at] if has_documents else 1.0
        weight = rank.vector_weight(shortfall, words[at], of_document) if has_terms else 1.0
        vector = weight * near[at] if parts[at].cosine is not None else 0.0
        shares = pages[at], rank.DOCUMENT * documents[at], vector
        ranked.append(RankedPage(place, sum(shares), parts[at], shares))
    # Break ties by id: the order must not depend on the database.
    return sorted(ranked, key=lambda each: (-each.score, each.place.document_id, each.place.page))
