"""Full-text search: FTS5 on SQLite, tsvector on PostgreSQL, ranked by BM25 on both.

Scoring takes microseconds per match, and common words match too many chunks. So with common words
the search proceeds in stages: chunks with all words, then with the rare ones, then with any, until
enough are found; each stage scores a bounded number of matches. FTS5 counts all chunks of every
word before it scores the first match, so on SQLite a narrow stage is first tried without scores.
PostgreSQL keeps no word frequencies: `ts_rank` selects candidates, and the caller scores these by
BM25; see `sampled_gin`. Frequencies are those of the tenant alone: scores would otherwise tell how
often a word stands in the documents of others.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.search import IndexHits, QueryTerms, TermCounts
from quire.store.db import dialect
from quire.store.search import sampled_gin
from quire.store.search.chunk_filter import KEEP_JOIN_ORDER, ChunkFilter

#: A word in more chunks than this is common.
COMMON_CHUNKS = 2_000
#: Maximum number of matches that FTS5 scores.
FTS5_SCORED = 10_000
#: If every word is in over half of the chunks, BM25 gives them no weight and only term frequency
#: distinguishes chunks: score this many words, and this many matches.
MAX_WEIGHTLESS_TERMS, FTS5_SCORED_WEIGHTLESS = 3, 4_000
_query = sa.bindparam("query", type_=sa.Text)
_limit = sa.bindparam("limit", type_=sa.Integer)
_max_scored = sa.bindparam("most", type_=sa.Integer)
#: Scores texts from their term counts, the document frequency of each term, and the total.
Score = Callable[[Sequence[TermCounts], Sequence[int], int], Sequence[float]]
Ranked = list[tuple[int, float]]


class _Stage(NamedTuple):
    """One index query; the last stage matches any word."""

    query: str
    most: int = FTS5_SCORED  # maximum number of scored matches
    weighed: str | None = None  # what FTS5 scores by, if not the whole query
    is_last: bool = False


class _Term(NamedTuple):
    """A query term in the index's syntax."""

    query: str
    number: int  # of chunks with the term, up to a limit
    share: float = 0.0  # of chunks with the term, estimated

    @property
    def is_weightless(self) -> bool:
        """Tell whether the term is in so many chunks that BM25 gives it no weight."""
        return self.number > COMMON_CHUNKS and self.share > 0.5


class _Fts5Search:
    """Runs the stages of one search on FTS5, each once."""

    def __init__(
        self,
        conn: sa.Connection,
        tenant: str,
        words: QueryTerms,
        limit: int,
        within: ChunkFilter | None,
        score: Score,
    ) -> None:
        self._conn, self._within, self._score = conn, within, score
        self._tenant, self._index = tenant, dialect.words_table(tenant)
        self._given = {"tenant": tenant, "limit": limit, **(within.given if within else {})}
        self._results: dict[str, Ranked] = {}
        self.terms = self._count_terms(words)

    def ranked(self, stage: _Stage) -> Ranked:
        """Return the best matches with their scores."""
        if stage.query not in self._results:
            self._results[stage.query] = self._run(stage)
        return self._results[stage.query]

    def some(self, stage: _Stage, enough: int) -> set[int]:
        """Return `enough` of the matches, or all of them, unscored."""
        among, ids = "", tuple[str, ...]()
        if self._within is not None:
            among = "AND +rowid IN (SELECT value FROM json_each(?))"
            ids = (self._within.given["of_chunks"],)
        index = self._index
        query = f"SELECT rowid FROM {index} WHERE {index} MATCH ? {among} LIMIT ?"  # noqa: S608
        found = self._conn.exec_driver_sql(query, (stage.query, *ids, enough))
        return {chunk for (chunk,) in found}

    def _count_terms(self, words: QueryTerms) -> Sequence[_Term]:
        if not dialect.has_words_table(self._conn, self._tenant):
            return [_Term(term, 0) for term in words.fts5]
        found = self._conn.exec_driver_sql(
            _count_statement(self._index), (dialect.encode_rows(words.fts5),)
        )
        counted = [json.loads(counts) for (counts,) in found]
        return [
            _Term(term, count, self._share(count, first, last))
            for term, (count, first, last) in zip(words.fts5, counted, strict=True)
        ]

    def _share(self, count: int, first: int, last: int) -> float:
        """Estimate the share of chunks with a common word: its first matches show it."""
        if count <= COMMON_CHUNKS:
            return 0.0
        counted = self._conn.exec_driver_sql(
            f"SELECT count(*) FROM (SELECT 1 FROM {self._index}_docsize "  # noqa: S608
            f"WHERE id BETWEEN ? AND ? LIMIT {8 * COMMON_CHUNKS})",
            (first, last),
        )
        return count / float(counted.scalar_one())

    def _run(self, stage: _Stage) -> Ranked:
        given = {**self._given, "query": stage.query, "most": stage.most}
        query = _best_of_fts5(self._conn, self._index, self._within is not None)
        if stage.weighed is not None and self._within is None:
            query = _weighing(self._conn, self._index)
            given |= {"query": stage.weighed, "every": stage.query}
        return [(chunk, -rank) for chunk, rank in self._conn.execute(query, given).all()]


class _PostgresSearch(_Fts5Search):
    """Runs the stages of one search on PostgreSQL."""

    def _count_terms(self, words: QueryTerms) -> Sequence[_Term]:
        # The planner ignores the cost of decompressing tsvectors and would scan the whole table.
        chosen = {"enable_seqscan": "off", "enable_bitmapscan": "on", "work_mem": "32MB"}
        dialect.set_local(self._conn, chosen | KEEP_JOIN_ORDER)
        self._total = sampled_gin.estimate_chunks_of(self._conn, self._tenant)
        # The first stage's query (all words) is counted in the same round trip.
        every = _join_terms([_Term(query, 1) for query in words.tsquery], "&")
        self._sample = sampled_gin.Sample(
            self._conn,
            self._tenant,
            sampled_gin.estimate_chunks(self._conn),
            [*words.tsquery, every],
        )
        counts = self._sample.counts(words.tsquery, 2 * COMMON_CHUNKS)
        return [_Term(*each) for each in zip(words.tsquery, counts, strict=True)]

    def some(self, stage: _Stage, enough: int) -> set[int]:
        """Return the best matches: as fast as any matches."""
        return {i for i, _ in self.ranked(stage)}

    def _run(self, stage: _Stage) -> Ranked:
        known = [term for term in self.terms if term.number]
        given = {**self._given, "query": stage.query, "weighed": _join_terms(known, "|")}
        if self._within is not None:
            query = sampled_gin.filtered_ranking_statement(self._conn, self._within)
        else:
            scanned = 0 if stage.is_last else min(term.number for term in known)
            query = sampled_gin.ranking_statement(
                self._conn, self._sample.level(stage.query, scanned)
            )
        rows = self._conn.execute(query, given).all()
        if not rows:
            return []
        texts = [sampled_gin.TsVector(row.words) for row in rows]
        scores = self._score(texts, [term.number for term in self.terms], self._total)
        ids = [row.id for row in rows]
        return sorted(zip(ids, scores, strict=True), key=lambda item: (-item[1], item[0]))


def matches(
    conn: sa.Connection,
    tenant: str,
    words: QueryTerms,
    limit: int,
    within: ChunkFilter | None,
    *,
    enough: int,
    score: Score,
) -> IndexHits:
    """Find chunks that match the query; `within` restricts them.

    Common words alone are searched only if the other stages find fewer than `enough`.
    """
    index = _Fts5Search if dialect.is_sqlite(conn) else _PostgresSearch
    asking = index(conn, tenant, words, limit, within, score)
    narrow, few = None, set[int]()
    for stage in _stages(conn, asking.terms):
        if stage.is_last:
            found = asking.ranked(stage)
            if narrow and not few <= {i for i, _ in found}:
                # Not all of the many matches were scored: add those with the rare words.
                found = _merge(found, asking.ranked(narrow))[:limit]
            return IndexHits(found, len(found) < limit)
        narrow, few = stage, asking.some(stage, enough)
        if len(few) >= enough:
            return IndexHits(asking.ranked(stage), False)
    return IndexHits([], True)


def _merge(found: Ranked, others: Ranked) -> Ranked:
    scores = dict(found) | dict(others)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def _stages(conn: sa.Connection, terms: Sequence[_Term]) -> Iterator[_Stage]:
    """Yield the stages, narrow first; none if no chunk has any of the words."""
    either, both = ("OR", "AND") if dialect.is_sqlite(conn) else ("|", "&")
    # Ignore words that no chunk has: with them, no chunk has all words.
    known = [term for term in terms if term.number]
    if not known:
        return
    whole = _join_terms(known, either)
    if len(known) > 1 and sum(term.number for term in known) > COMMON_CHUNKS:
        every = _join_terms(known, both)
        weighed = _weighed(known)
        most = FTS5_SCORED_WEIGHTLESS if weighed[0].is_weightless else FTS5_SCORED
        is_part = len(weighed) < len(known)
        yield _Stage(every, most, _join_terms(weighed, both) if is_part else None)
        rare = [term for term in known if term.number <= COMMON_CHUNKS]
        if rare and len(rare) < len(known):
            # Include the common words too, because they contribute to the score.
            yield _Stage(f"({_join_terms(rare, either)}) {both} ({whole})")
    yield _Stage(whole, is_last=True)


def _weighed(terms: Sequence[_Term]) -> Sequence[_Term]:
    """Return the terms that determine scores: counting the chunks of the others is slowest."""
    weighty = [term for term in terms if not term.is_weightless]
    return weighty or sorted(terms, key=lambda term: term.share)[:MAX_WEIGHTLESS_TERMS]


def _join_terms(terms: Sequence[_Term], word: str) -> str:
    return f" {word} ".join(f"({term.query})" for term in terms)


@functools.cache
def _count_statement(index: str) -> str:
    # FTS5 counts exact frequencies for its scores; here it only matters whether a word is common.
    return f"""
SELECT (
    SELECT json_array(count(*), min(rowid), max(rowid)) FROM (
        SELECT rowid FROM {index} WHERE {index} MATCH value LIMIT {COMMON_CHUNKS + 1}
    )
) FROM json_each(?)
"""  # noqa: S608


def _rowid(index: str, *, is_filter: bool = False) -> sa.ColumnElement[int]:
    # The plus makes a condition a filter on matches; otherwise FTS5 is queried once per id.
    return sa.literal_column(f"{'+' if is_filter else ''}{index}.rowid", sa.BigInteger)


@dialect.statement
def _best_of_fts5(conn: sa.Connection, index: str, is_filtered: bool) -> sa.Select[Any]:
    """Select matches from FTS5; the latest ones if there are more than can be scored."""
    rowid = _rowid(index, is_filter=True)
    return _scored(index, dialect.id_in(conn, rowid, "of_chunks") if is_filtered else None)


@dialect.statement
def _weighing(_: sa.Connection, index: str) -> sa.Select[Any]:
    """Select matches of `query` from FTS5 among the latest that match `every`."""
    every = sa.bindparam("every", type_=sa.Text)
    asked = sa.literal_column(index).op("MATCH")(every)
    found = sa.select(_rowid(index)).select_from(sa.table(index)).where(asked)
    latest = found.order_by(_rowid(index).desc()).limit(_max_scored).correlate(None)
    return _scored(index, _rowid(index, is_filter=True).in_(latest))


def _scored(index: str, among: sa.ColumnElement[bool] | None) -> sa.Select[Any]:
    score: sa.ColumnElement[float] = sa.literal_column(f"bm25({index})", sa.Double)
    asked = sa.literal_column(index).op("MATCH")(_query)
    inner = sa.select(_rowid(index).label("id"), score.label("score"))
    inner = inner.select_from(sa.table(index)).where(asked)
    if among is not None:
        inner = inner.where(among)
    found = inner.order_by(_rowid(index).desc()).limit(_max_scored).subquery("found")
    return sa.select(found.c.id, found.c.score).order_by(found.c.score, found.c.id).limit(_limit)
