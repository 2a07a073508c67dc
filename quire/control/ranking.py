"""Ranks pages for a query: collects candidates from the indexes, and scores them by `text.rank`.

Candidates are the pages of the best documents, those of the best chunks by words, and those of the
nearest vectors: always as many as the longest answer needs, so that the first hits do not depend on
the number of hits asked for.
"""

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
from quire.text.rank import Counts, DocumentScore, Weights

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

#: Documents whose chunks are all candidates, and the chunks that these have at most.
BEST_DOCUMENTS, BEST_DOCUMENT_CHUNKS = 10, 20_000
#: Candidate chunks by words, over all and of the best documents, and by vectors.
BEST_CHUNKS, BEST_OF_DOCUMENTS, NEAREST = 300, 400, 100
#: Chunks whose texts are scored.
SCORED = 300


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
        self.documents, self._chunks = self._rank_documents()
        #: Chunks in scope with each term, as far as the index knows them.
        self._chunks_with: Sequence[int] = [0] * len(terms)
        self.presence, self.weights = self._look_up()

    def _rank_documents(self) -> tuple[dict[int, DocumentScore], dict[int, int]]:
        """Score the documents in scope by their names and words."""
        if self._within.documents == 1 and not self._wanted.query.names:
            return {}, {}
        terms = _document_terms(self._wanted.query)
        forms = [each for each, _ in terms]
        entries = {e for some in forms for form in some for e in fields.text_entries(form)}
        entries |= {fields.NAME + form for some in forms for form in some}
        matched = store.match_documents(self._conn, self._within, sorted(entries))
        scores = rank.score_documents(
            matched.found, forms, [each for _, each in terms], matched.lengths,
            matched.total, matched.average,
        )  # fmt: skip
        return scores, matched.chunks

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
        """Return the terms that nothing in scope has; what is out of scope must not matter."""
        return tuple(
            at
            for at, chunks in enumerate(self._chunks_with)
            if not chunks
            and not any(each.name[at] or each.text[at] for each in self.documents.values())
            and not any(each.times[at] for each in scored)
        )

    def best_documents(self) -> list[int]:
        """Return the best documents, as many as have not too many chunks."""
        order = sorted(self.documents, key=lambda each: (-self.documents[each].total, each))
        found, room = list[int](), BEST_DOCUMENT_CHUNKS
        for document in order[:BEST_DOCUMENTS]:
            room -= self._chunks[document]
            if room < 0 and found:
                break
            found.append(document)
        return found

    def candidates(self) -> list[int]:
        """Return the ids of the chunks that may be on the best pages."""
        weights = self.weights.by_term
        if self._within.few is not None:
            found = self.presence.best(weights, BEST_CHUNKS + BEST_OF_DOCUMENTS)
            return found + self._first_chunks()
        best = self.best_documents()
        found = list[int]()
        if best:
            scope = Scope(self._wanted.scope.tenant, documents=tuple(best))
            own_ids = store.scope_chunks(self._conn, scope)
            own = self._index.within(own_ids)
            # What tells documents apart does not tell their pages apart.
            inner = Weights.of(own.frequencies(len(self.factors)), len(own_ids), self.factors)
            self.weights = self.weights.mean(inner)
            found = own.best(self.weights.by_term, BEST_OF_DOCUMENTS)
            self.presence = fulltext.join_presence(self.presence, own)
        found += self.presence.best(weights, BEST_CHUNKS)
        return found + self._first_chunks()

    def _first_chunks(self) -> list[int]:
        """Return the first chunks of the best documents that are named by the query."""
        named = [each for each in self.best_documents() if any(self.documents[each].name)]
        return store.first_chunks(self._conn, named)

    def prune(self, places: Sequence[Place]) -> list[Place]:
        """Return the places whose texts are worth scoring."""
        if len(places) <= SCORED:
            return list(places)
        scores = dict(
            zip(
                self.presence.ids.tolist(), self.presence.scores(self.weights.by_term).tolist(),
                strict=True,
            )
        )  # fmt: skip
        by_chunk = [scores.get(place.chunk_id, 0.0) for place in places]
        by_document = [
            self.documents[place.document_id].total if place.document_id in self.documents else 0.0
            for place in places
        ]
        guessed = [
            page + rank.DOCUMENT * document
            for page, document in zip(rank.scaled(by_chunk), rank.scaled(by_document), strict=True)
        ]
        order = sorted(range(len(places)), key=lambda at: -guessed[at])
        return [places[at] for at in sorted(order[:SCORED])]


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
    contents = store.chunk_contents(conn, [place.chunk_id for place in places]) if found else {}
    counts = {
        each: counter.in_text(content.text, content.language) for each, content in contents.items()
    }
    asked = [at for at, term in enumerate(terms) if term.weight == 1.0]
    own = [counts.get(place.chunk_id, Counts(0, ())) for place in places]
    by_chunk = rank.bm25(own, weights) if found else [()] * len(places)
    headed = [counter.in_entries(place.heads or "") for place in places]
    by_heads = rank.bm25_of_heads(headed, weights) if found else [()] * len(places)
    documents = found.documents if found else {}
    names = [
        documents[place.document_id].name if place.document_id in documents else ()
        for place in places
    ]
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
