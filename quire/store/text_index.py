"""Asks the full-text index: FTS5 on SQLite, a tsvector on PostgreSQL, ranked by BM25 on both.

To score a match costs microseconds, and a common word has many. So where words are common, the
index is asked for chunks that have all of them, then for the rare ones, then for any, until
enough is found; and each time a bounded number of matches is scored. PostgreSQL keeps no
frequencies of words: its own rank picks the best, and the caller scores these by their texts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from quire.model.search import Found, Words
from quire.store import dialect
from quire.store.among import Among
from quire.store.document_tables import chunks

#: A word that more chunks have is common.
COMMON = 2_000
#: Matches that are scored. PostgreSQL has to unpack all words of a chunk for it.
SCORED_BY_FTS5, SCORED_BY_POSTGRES = 10_000, 2_000
_words: sa.ColumnElement[Any] = sa.literal_column("chunks.words", postgresql.TSVECTOR)
_query = sa.bindparam("query", type_=sa.Text)
_limit = sa.bindparam("limit", type_=sa.Integer)

#: Scores texts, given with their languages: how many chunks have each term, how many there are.
Score = Callable[[Sequence[tuple[str, str]], Sequence[int], int], Sequence[float]]


def matches(
    conn: sa.Connection,
    tenant: str,
    words: Words,
    limit: int,
    among: Among | None,
    *,
    enough: int,
    score: Score,
) -> Found:
    """Find chunks that have words of the query; `among` selects the ids that count.

    Common words alone are looked for only where the others find less than `enough`.
    """
    if not dialect.is_sqlite(conn):
        # The planner does not know what it costs to unpack words, and reads the whole table.
        conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
    counts = _frequencies(conn, words)
    found: list[tuple[int, float]] = []
    for query, is_all in _queries(conn, words, counts):
        given = {"query": query, "limit": limit, **(among.given if among else {})}
        if dialect.is_sqlite(conn):
            rows = conn.execute(_matching(among), given).all()
            found = [(row[0], -row[1]) for row in rows]
        else:
            rows = conn.execute(_ranking(among), {**given, "tenant": tenant}).all()
            found = _scored(conn, rows, counts, score)
        if len(found) >= (limit if is_all else enough):
            return Found(found, False)
    return Found(found, True)


def _queries(
    conn: sa.Connection, words: Words, counts: Sequence[int]
) -> Iterator[tuple[str, bool]]:
    """Yield what to ask for, narrow first, and whether it is all that was asked for."""
    terms = words.fts5 if dialect.is_sqlite(conn) else words.tsquery
    either, both = ("OR", "AND") if dialect.is_sqlite(conn) else ("|", "&")
    whole = _joined(terms, either)
    rare = [term for term, count in zip(terms, counts, strict=True) if count <= COMMON]
    if len(terms) > 1 and sum(counts) > COMMON:
        yield _joined(terms, both), False
        if rare and len(rare) < len(terms):
            # The common words are named too, because they count for the score.
            yield _joined([_joined(rare, either), whole], both), False
    yield whole, True


def _joined(parts: Sequence[str], word: str) -> str:
    return f" {word} ".join(f"({part})" for part in parts)


def _matching(among: Among | None) -> sa.Select[Any]:
    """Select matches from FTS5; the latest, where there are more than can be scored."""
    rowid: sa.ColumnElement[int] = sa.literal_column("chunk_words.rowid", sa.BigInteger)
    score: sa.ColumnElement[float] = sa.literal_column("bm25(chunk_words)", sa.Double)
    asked = sa.literal_column("chunk_words").op("MATCH")(_query)
    inner = sa.select(rowid.label("id"), score.label("score")).select_from(sa.table("chunk_words"))
    if among is not None:
        # The plus makes it a check of each match; else the index is asked anew for every id.
        inner = inner.where(sa.literal_column("+chunk_words.rowid").in_(among.select))
    found = inner.where(asked).order_by(rowid.desc()).limit(SCORED_BY_FTS5).subquery("found")
    return sa.select(found.c.id, found.c.score).order_by(found.c.score, found.c.id).limit(_limit)


def _ranking(among: Among | None) -> sa.Select[Any]:
    asked = sa.func.to_tsquery(sa.literal_column("'simple'"), _query)
    c = chunks.c
    inner = sa.select(c.id, sa.func.ts_rank_cd(_words, asked).label("rank"))
    if among is not None:
        inner = inner.where(c.id.in_(among.select))
    mine = c.tenant == sa.bindparam("tenant", type_=sa.Text)
    inner = inner.where(mine, _words.op("@@")(asked)).limit(SCORED_BY_POSTGRES)
    ranked = inner.subquery("ranked")
    best = sa.select(ranked).order_by(ranked.c.rank.desc(), ranked.c.id).limit(_limit)
    found = best.subquery("found")
    return sa.select(c.id, c.text, c.language).join(found, found.c.id == c.id)


def _scored(
    conn: sa.Connection, rows: Sequence[Any], counts: Sequence[int], score: Score
) -> list[tuple[int, float]]:
    if not rows:
        return []
    scores = score([(row.text, row.language) for row in rows], counts, _total(conn))
    ids = [row.id for row in rows]
    return sorted(zip(ids, scores, strict=True), key=lambda item: (-item[1], item[0]))


def _frequencies(conn: sa.Connection, words: Words) -> list[int]:
    """Count the chunks that have each term, up to a few more than is common."""
    if dialect.is_sqlite(conn):
        terms = words.fts5
        some = "SELECT 1 FROM chunk_words WHERE chunk_words MATCH value"
        source = "json_each(?)"
    else:
        terms = words.tsquery
        some = "SELECT FROM chunks WHERE words @@ to_tsquery('simple', value)"
        source = "jsonb_array_elements_text(CAST(%s AS jsonb)) value"
    counted = f"SELECT count(*) FROM ({some} LIMIT {2 * COMMON}) AS counted"  # noqa: S608
    rows = conn.exec_driver_sql(
        f"SELECT ({counted}) FROM {source}",  # noqa: S608
        (dialect.packed(terms),),
    )
    return [row[0] for row in rows]


def _total(conn: sa.Connection) -> int:
    """Count all chunks, roughly where they are many."""
    guess: float = conn.exec_driver_sql(
        "SELECT reltuples FROM pg_class WHERE oid = CAST('chunks' AS regclass)"
    ).scalar_one()
    if guess > 2 * COMMON:
        return int(guess)
    # Of a small table the statistics may be missing, or far off.
    some = sa.select(chunks.c.id).limit(2 * COMMON).subquery()
    return conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0
