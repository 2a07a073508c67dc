"""Asks the full-text index: FTS5 on SQLite, a tsvector on PostgreSQL, ranked by BM25 on both.

PostgreSQL keeps no document frequencies. Its own rank picks the best few hundred, and these are
ranked again from the counts that BM25 needs, so that the cost is bounded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from quire.model.search import Words
from quire.store import dialect
from quire.store.document_tables import chunks

#: Chunks with a word are counted up to here: what is more frequent says little.
_COUNTED = 10_000
_words: sa.ColumnElement[Any] = sa.literal_column("chunks.words", postgresql.TSVECTOR)


class Counts(NamedTuple):
    """What BM25 is made of, for some chunks that match."""

    total: int  # chunks in the index
    frequencies: Mapping[str, int]  # chunks that have a word
    lengths: Mapping[int, int]  # of the chunks, in tokens
    occurrences: Mapping[int, Mapping[str, int]]  # of each word in a chunk


Score = Callable[[Counts], Mapping[int, float]]


def matches(
    conn: sa.Connection,
    tenant: str,
    words: Words,
    limit: int,
    among: sa.Select[Any] | None,
    score: Score,
) -> list[tuple[int, float]]:
    """List chunks that have the words, best first; `among` selects the ids that count."""
    if dialect.is_sqlite(conn):
        found = conn.execute(_matching(among), {"query": words.fts5, "limit": limit})
        return [(row[0], -row[1]) for row in found]
    given = {"query": words.tsquery, "tenant": tenant, "limit": limit}
    ids = list(conn.scalars(_ranking(among), given))
    ranked = score(_counts(conn, ids, words.stems)) if ids else {}
    return sorted(ranked.items(), key=lambda item: (-item[1], item[0]))


def _matching(among: sa.Select[Any] | None) -> sa.Select[Any]:
    rowid, rank = sa.column("rowid", sa.BigInteger), sa.column("rank", sa.Double)
    index = sa.table("chunk_words", rowid, rank)
    asked = sa.literal_column("chunk_words").op("MATCH")(sa.bindparam("query", type_=sa.Text))
    query = sa.select(index.c.rowid, index.c.rank).where(asked)
    if among is not None:
        # The plus makes it a check of each match; else the index is asked anew for every id.
        query = query.where(sa.literal_column("+chunk_words.rowid").in_(among))
    return query.order_by(index.c.rank).limit(sa.bindparam("limit"))


def _ranking(among: sa.Select[Any] | None) -> sa.Select[Any]:
    asked = sa.func.to_tsquery(sa.literal_column("'simple'"), sa.bindparam("query", type_=sa.Text))
    query = sa.select(chunks.c.id).where(
        chunks.c.tenant == sa.bindparam("tenant"), _words.op("@@")(asked)
    )
    if among is not None:
        query = query.where(chunks.c.id.in_(among))
    rank = sa.func.ts_rank_cd(_words, asked)
    return query.order_by(rank.desc(), chunks.c.id).limit(sa.bindparam("limit"))


def _counts(conn: sa.Connection, ids: Sequence[int], stems: Sequence[str]) -> Counts:
    given = {"ids": list(ids), "stems": list(stems)}
    rows = conn.exec_driver_sql(
        "SELECT chunks.id, tokens, lexeme, cardinality(positions) FROM chunks "
        "LEFT JOIN LATERAL unnest(words) ON lexeme = ANY(%(stems)s) WHERE chunks.id = ANY(%(ids)s)",
        given,
    )
    lengths: dict[int, int] = {}
    occurrences: dict[int, dict[str, int]] = {i: {} for i in ids}
    for chunk_id, tokens, stem, count in rows:
        lengths[chunk_id] = tokens
        if stem is not None:
            occurrences[chunk_id][stem] = count
    return Counts(_total(conn), _frequencies(conn, stems), lengths, occurrences)


def _frequencies(conn: sa.Connection, stems: Sequence[str]) -> dict[str, int]:
    rows = conn.exec_driver_sql(
        "SELECT stem, (SELECT count(*) FROM (SELECT FROM chunks WHERE words @@ "
        "CAST(quote_literal(stem) AS tsquery) LIMIT %(most)s) AS some) "
        "FROM unnest(CAST(%(stems)s AS text[])) AS stem",
        {"stems": list(stems), "most": _COUNTED},
    )
    return {row[0]: row[1] for row in rows}


def _total(conn: sa.Connection) -> int:
    guess: float = conn.exec_driver_sql(
        "SELECT reltuples FROM pg_class WHERE oid = 'chunks'::regclass"
    ).scalar_one()
    if guess > _COUNTED:
        return int(guess)
    # Statistics of a small table may be missing or far off.
    counted = sa.select(chunks.c.id).limit(_COUNTED).subquery()
    return conn.scalar(sa.select(sa.func.count()).select_from(counted)) or 0
