"""Asks the full-text index: FTS5 on SQLite, a tsvector on PostgreSQL, ranked by BM25 on both.

To score a match costs microseconds, and a common word has many. So where words are common, the
index is asked for chunks that have all of them, then for the rare ones, then for any, until
enough is found; and each time a bounded number of matches is scored. Before it scores the first
match, FTS5 counts every chunk that has each of the words, so on SQLite a narrow question is first
tried without scores. PostgreSQL keeps no frequencies of words: its own rank picks the best, and
the caller scores these by their words; see `text_levels`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.search import IndexHits, QueryTerms, TermCounts
from quire.store.db import dialect
from quire.store.search import fulltext_levels
from quire.store.search.chunk_filter import KEEP_JOIN_ORDER, ChunkFilter

#: A word that more chunks have is common.
COMMON_CHUNKS = 2_000
#: Matches that are scored.
FTS5_SCORED = 10_000
#: Words that are scored where FTS5 gives no weight to any, as half of the chunks have each; and
#: the matches that are. How often such a word is there is all that tells chunks apart.
MAX_WEIGHTLESS_TERMS, FTS5_SCORED_WEIGHTLESS = 3, 4_000
_query = sa.bindparam("query", type_=sa.Text)
_limit = sa.bindparam("limit", type_=sa.Integer)
_max_scored = sa.bindparam("most", type_=sa.Integer)
_rowid: sa.ColumnElement[int] = sa.literal_column("chunk_words.rowid", sa.BigInteger)

#: Scores texts, given by their counts: how many chunks have each term, how many there are.
Score = Callable[[Sequence[TermCounts], Sequence[int], int], Sequence[float]]
Ranked = list[tuple[int, float]]


class _Stage(NamedTuple):
    """A question to the index; the last one asks for all that was asked for."""

    query: str
    most: int = FTS5_SCORED  # matches that FTS5 scores
    weighed: str | None = None  # what FTS5 scores them by, if not by the whole query
    is_last: bool = False


class _Term(NamedTuple):
    """A term of a query as the index takes it."""

    query: str
    number: int  # of the chunks that have it, up to some limit
    share: float = 0.0  # of the chunks that have it, as far as it is known

    @property
    def is_weightless(self) -> bool:
        """Tell whether FTS5 finds it in too many chunks to count for anything."""
        return self.number > COMMON_CHUNKS and self.share > 0.5


class _Fts5Search:
    """Puts the questions of one search to the index, none of them twice."""

    def __init__(
        self, conn: sa.Connection, tenant: str, limit: int, among: ChunkFilter | None
    ) -> None:
        self._conn, self._among = conn, among
        self._given = {"tenant": tenant, "limit": limit, **(among.given if among else {})}
        self._answers: dict[str, Ranked] = {}

    def ranked(self, stage: _Stage) -> Ranked:
        """Return the best matches with their scores."""
        if stage.query not in self._answers:
            self._answers[stage.query] = self._asked(stage)
        return self._answers[stage.query]

    def some(self, stage: _Stage, enough: int) -> set[int]:
        """Return `enough` of the matches, or all."""
        # Without scores only where that is cheap: to select the ids that count may take longer.
        if self._among is not None:
            return {i for i, _ in self.ranked(stage)}
        query = "SELECT rowid FROM chunk_words WHERE chunk_words MATCH ? LIMIT ?"
        return {row[0] for row in self._conn.exec_driver_sql(query, (stage.query, enough))}

    def _asked(self, stage: _Stage) -> Ranked:
        given = {**self._given, "query": stage.query, "most": stage.most}
        query = _matching(self._conn, self._among)
        if stage.weighed is not None and self._among is None:
            query = _weighing(self._conn)
            given |= {"query": stage.weighed, "every": stage.query}
        return [(row[0], -row[1]) for row in self._conn.execute(query, given).all()]


class _PostgresSearch(_Fts5Search):
    """The same on PostgreSQL."""

    def __init__(
        self,
        conn: sa.Connection,
        tenant: str,
        limit: int,
        among: ChunkFilter | None,
        *,
        words: QueryTerms,
        score: Score,
    ) -> None:
        super().__init__(conn, tenant, limit, among)
        self._total = fulltext_levels.estimate_chunks(conn)
        # What is asked for first, if chunks have all of the words, is looked up with these.
        every = _joined([_Term(query, 1) for query in words.tsquery], "&")
        self._sample = fulltext_levels.Sample(conn, self._total, [*words.tsquery, every])
        counts = self._sample.counts(words.tsquery, 2 * COMMON_CHUNKS)
        self.terms = [_Term(*each) for each in zip(words.tsquery, counts, strict=True)]
        self._score = score

    def some(self, stage: _Stage, enough: int) -> set[int]:
        """Return the best, which takes no longer than to find some."""
        return {i for i, _ in self.ranked(stage)}

    def _asked(self, stage: _Stage) -> Ranked:
        known = [term for term in self.terms if term.number]
        given = {**self._given, "query": stage.query, "weighed": _joined(known, "|")}
        if self._among is not None:
            query = fulltext_levels.ranking_among(self._among)
        else:
            passed = 0 if stage.is_last else min(term.number for term in known)
            query = fulltext_levels.ranking(self._conn, self._sample.level(stage.query, passed))
        rows = self._conn.execute(query, given).all()
        if not rows:
            return []
        texts = [fulltext_levels.TsVector(row.words) for row in rows]
        scores = self._score(texts, [term.number for term in self.terms], self._total)
        ids = [row.id for row in rows]
        return sorted(zip(ids, scores, strict=True), key=lambda item: (-item[1], item[0]))


def matches(
    conn: sa.Connection,
    tenant: str,
    words: QueryTerms,
    limit: int,
    among: ChunkFilter | None,
    *,
    enough: int,
    score: Score,
) -> IndexHits:
    """Find chunks that have words of the query; `among` selects the ids that count.

    Common words alone are looked for only where the others find less than `enough`.
    """
    asking, terms = _start(conn, tenant, words, limit, among, score)
    narrow, few = None, set[int]()
    for stage in _stages(conn, terms):
        if stage.is_last:
            found = asking.ranked(stage)
            if narrow and not few <= {i for i, _ in found}:
                # Of very many matches not all were scored: those with the rare words are missing.
                found = _merged(found, asking.ranked(narrow))[:limit]
            return IndexHits(found, len(found) < limit)
        narrow, few = stage, asking.some(stage, enough)
        if len(few) >= enough:
            return IndexHits(asking.ranked(stage), False)
    return IndexHits([], True)


def _start(
    conn: sa.Connection,
    tenant: str,
    words: QueryTerms,
    limit: int,
    among: ChunkFilter | None,
    score: Score,
) -> tuple[_Fts5Search, Sequence[_Term]]:
    if dialect.is_sqlite(conn):
        return _Fts5Search(conn, tenant, limit, among), _frequencies_in_fts5(conn, words.fts5)
    # The planner does not know what it costs to unpack words, and reads the whole table.
    chosen = {"enable_seqscan": "off", "enable_bitmapscan": "on", "work_mem": "32MB"}
    dialect.set_local(conn, chosen | KEEP_JOIN_ORDER)
    levelled = _PostgresSearch(conn, tenant, limit, among, words=words, score=score)
    return levelled, levelled.terms


def _merged(found: Ranked, others: Ranked) -> Ranked:
    scores = dict(found) | dict(others)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _stages(conn: sa.Connection, terms: Sequence[_Term]) -> Iterator[_Stage]:
    """Yield what to ask for, narrow first; nothing where no chunk has any of the words."""
    either, both = ("OR", "AND") if dialect.is_sqlite(conn) else ("|", "&")
    # A word that no chunk has would leave no chunk that has all of them.
    known = [term for term in terms if term.number]
    if not known:
        return
    whole = _joined(known, either)
    if len(known) > 1 and sum(term.number for term in known) > COMMON_CHUNKS:
        every = _joined(known, both)
        weighed = _weighed(known)
        most = FTS5_SCORED_WEIGHTLESS if weighed[0].is_weightless else FTS5_SCORED
        is_part = len(weighed) < len(known)
        yield _Stage(every, most, _joined(weighed, both) if is_part else None)
        rare = [term for term in known if term.number <= COMMON_CHUNKS]
        if rare and len(rare) < len(known):
            # The common words are named too, because they count for the score.
            yield _Stage(f"({_joined(rare, either)}) {both} ({whole})")
    yield _Stage(whole, is_last=True)


def _weighed(terms: Sequence[_Term]) -> Sequence[_Term]:
    """Return the terms that scores depend on: to count the chunks of the others takes longest."""
    weighty = [term for term in terms if not term.is_weightless]
    return weighty or sorted(terms, key=lambda term: term.share)[:MAX_WEIGHTLESS_TERMS]


def _joined(terms: Sequence[_Term], word: str) -> str:
    return f" {word} ".join(f"({term.query})" for term in terms)


def _matching(conn: sa.Connection, among: ChunkFilter | None) -> sa.Select[Any]:
    """Select matches from FTS5; the latest, where there are more than can be scored."""
    if among is None:
        return dialect.cached(conn, "matching", lambda: _best_of_fts5(None))
    return _best_of_fts5(among)


def _weighing(conn: sa.Connection) -> sa.Select[Any]:
    """Select matches of `query` from FTS5 among the latest that match `every`."""
    return dialect.cached(conn, "weighing", lambda: _best_of_fts5(ChunkFilter(_latest(), {})))


def _latest() -> sa.Select[Any]:
    every = sa.bindparam("every", type_=sa.Text)
    asked = sa.literal_column("chunk_words").op("MATCH")(every)
    found = sa.select(_rowid).select_from(sa.table("chunk_words")).where(asked)
    return found.order_by(_rowid.desc()).limit(_max_scored).correlate(None)


def _best_of_fts5(among: ChunkFilter | None) -> sa.Select[Any]:
    score: sa.ColumnElement[float] = sa.literal_column("bm25(chunk_words)", sa.Double)
    asked = sa.literal_column("chunk_words").op("MATCH")(_query)
    inner = sa.select(_rowid.label("id"), score.label("score"))
    inner = inner.select_from(sa.table("chunk_words")).where(asked)
    if among is not None:
        # The plus makes it a check of each match; else the index is asked anew for every id.
        inner = inner.where(sa.literal_column("+chunk_words.rowid").in_(among.select))
    found = inner.order_by(_rowid.desc()).limit(_max_scored).subquery("found")
    return sa.select(found.c.id, found.c.score).order_by(found.c.score, found.c.id).limit(_limit)


def _frequencies_in_fts5(conn: sa.Connection, terms: Sequence[str]) -> list[_Term]:
    # FTS5 itself counts what its scores need, so here it is enough to know that a word is common.
    some = f"SELECT rowid FROM chunk_words WHERE chunk_words MATCH value LIMIT {COMMON_CHUNKS + 1}"  # noqa: S608
    counted = f"SELECT json_array(count(*), max(rowid) - min(rowid)) FROM ({some})"  # noqa: S608
    query = f"SELECT ({counted}) FROM json_each(?)"  # noqa: S608
    found = [
        json.loads(row[0]) for row in conn.exec_driver_sql(query, (dialect.encode_rows(terms),))
    ]
    # Matches come in the order of their ids, and most ids are in use: among the first, the share
    # of chunks that have the word shows.
    return [
        _Term(term, count, count / (span + 1) if count else 0.0)
        for term, (count, span) in zip(terms, found, strict=True)
    ]
