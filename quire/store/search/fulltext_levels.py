"""PostgreSQL's full-text index in levels: all chunks, an eighth of them, and an eighth of that.

A common word is in hundreds of thousands of chunks, and the index gives all of them before the
first can be scored. So such words are looked for in a level that has as many as can be scored.
A level has whole runs of ids: their rows lie together, and every large document has a share in it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from quire.store.db import dialect
from quire.store.db.schema.documents import chunks
from quire.store.search.chunk_filter import ChunkFilter

#: Of how many runs of ids a level has one; the first has all.
SAMPLING = (1, 8, 64)
#: From so many chunks on, levels are worth a look at the smallest of them.
SAMPLE_MIN_CHUNKS = 50_000
#: Matches that are ranked, and that a look at the smallest level counts.
MAX_RANKED, SAMPLE_COUNT_LIMIT = 1_500, 500
#: To find the chunks that have all words, the index passes by all that have the rarest: so many
#: take some milliseconds. A smaller level has less of them, and has to have some that match.
MAX_SCANNED, MIN_SAMPLE_MATCHES = 12_000, 64
_RUN_BITS = 7
#: KB of rows that wait to be merged into the index: each search reads all of them.
_PENDING = 256
_words: sa.ColumnElement[Any] = sa.literal_column("chunks.words", postgresql.TSVECTOR)


def condition(level: int) -> str:
    """Say in SQL which chunks a level has."""
    return "true" if level == 1 else f"((chunks.id >> {_RUN_BITS}) & {level - 1}) = 0"


def prepare(conn: sa.Connection) -> None:
    """Add the smaller levels, and let words lie beside their text."""
    if dialect.is_sqlite(conn):
        return
    # To fetch words from elsewhere and to unpack them takes longer than to rank them.
    conn.exec_driver_sql("ALTER TABLE chunks SET (toast_tuple_target = 8160)")
    conn.exec_driver_sql("DROP INDEX IF EXISTS ix_chunks_words")
    create(conn)


def create(conn: sa.Connection) -> None:
    """Create the indexes of all levels that are not there."""
    for level in SAMPLING:
        name, which = "ix_chunks_words", ""
        if level > 1:
            name, which = f"{name}_{level}", f"WHERE {condition(level)}"
        conn.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS {name} ON chunks USING gin (words) "
            f"WITH (gin_pending_list_limit = {_PENDING}) {which}"
        )


def estimate_chunks(conn: sa.Connection) -> int:
    """Count all chunks, roughly where they are many."""
    guess: float = conn.exec_driver_sql(
        "SELECT reltuples FROM pg_class WHERE oid = CAST('chunks' AS regclass)"
    ).scalar_one()
    if guess > 2 * MAX_RANKED:
        return int(guess)
    # Of a small table the statistics may be missing, or far off.
    some = sa.select(chunks.c.id).limit(2 * MAX_RANKED).subquery()
    return conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0


class Sample:
    """Counts of the smallest level, each asked for once; in a small database there is none."""

    def __init__(self, conn: sa.Connection, total: int, queries: Sequence[str]) -> None:
        self._conn = conn
        self._total = total
        self._found: dict[str, int] = {}
        if total >= SAMPLE_MIN_CHUNKS:
            self._look(queries)

    def counts(self, queries: Sequence[str], most: int) -> list[int]:
        """Count the chunks that match each query, up to `most`; common ones roughly."""
        if self._total < SAMPLE_MIN_CHUNKS:
            return _counted(self._conn, queries, 1, most)
        found = [self._sampled(query) * SAMPLING[-1] for query in queries]
        # Few of a sample may be chance, and so few are counted quickly.
        rare = [at for at, n in enumerate(found) if n <= most]
        exact = _counted(self._conn, [queries[at] for at in rare], 1, most)
        for at, n in zip(rare, exact, strict=True):
            found[at] = n
        return found

    def level(self, query: str, passed: int = 0) -> int:
        """Choose the largest level that has not many more matches than can be scored.

        `passed` is how many chunks of all the index has to pass by to find these.
        """
        if self._total < SAMPLE_MIN_CHUNKS:
            return 1
        found = self._sampled(query) * SAMPLING[-1]
        fits = [level for level in SAMPLING if found // level <= 2 * MAX_RANKED] or [SAMPLING[-1]]
        quick = [
            level
            for level in fits
            if passed // level <= MAX_SCANNED and found // level >= MIN_SAMPLE_MATCHES
        ]
        return next(iter(quick or fits))

    def _sampled(self, query: str) -> int:
        if query not in self._found:
            self._look([query])
        return self._found[query]

    def _look(self, queries: Sequence[str]) -> None:
        found = _counted(self._conn, queries, SAMPLING[-1], SAMPLE_COUNT_LIMIT)
        self._found |= zip(queries, found, strict=True)


def _counted(conn: sa.Connection, queries: Sequence[str], level: int, most: int) -> list[int]:
    if not queries:
        return []
    some = (
        f"SELECT FROM chunks WHERE {condition(level)} "
        f"AND words @@ to_tsquery('simple', value) LIMIT {most}"
    )
    rows = conn.exec_driver_sql(
        f"SELECT (SELECT count(*) FROM ({some}) AS counted) "  # noqa: S608
        "FROM jsonb_array_elements_text(CAST(%s AS jsonb)) value",
        (dialect.encode_rows(queries),),
    )
    return [row[0] for row in rows]


def ranking(conn: sa.Connection, level: int) -> sa.Select[Any]:
    """Select the best of `query` in a level, ranked by the words of `weighed`."""
    return dialect.cached(conn, ("ranking", level), lambda: _best(_matching(level)))


def ranking_among(among: ChunkFilter) -> sa.Select[Any]:
    """Select the best of `query` among the chunks that count."""
    return _best(_matching(1).where(among.has(chunks.c.id)))


def _query(name: str) -> sa.ColumnElement[Any]:
    return sa.func.to_tsquery(sa.literal_column("'simple'"), sa.bindparam(name, type_=sa.Text))


def _matching(level: int) -> sa.Select[Any]:
    c = chunks.c
    mine = c.tenant == sa.bindparam("tenant", type_=sa.Text)
    rank = sa.func.ts_rank(_words, _query("weighed")).label("rank")
    return (
        sa.select(c.id, rank)
        .where(mine, _words.op("@@")(_query("query")), sa.text(condition(level)))
        .limit(MAX_RANKED)
    )


def _best(matching: sa.Select[Any]) -> sa.Select[Any]:
    c = chunks.c
    ranked = matching.subquery("ranked")
    limit = sa.bindparam("limit", type_=sa.Integer)
    best = sa.select(ranked).order_by(ranked.c.rank.desc(), ranked.c.id).limit(limit)
    found = best.subquery("found")
    return sa.select(c.id, sa.cast(_words, sa.Text).label("words")).join(found, found.c.id == c.id)


class TsVector:
    """The words of a tsvector given as text: where each stands, read when it is asked for."""

    def __init__(self, words: str) -> None:
        self._words = words
        self.length = words.count(",") + words.count("':")

    def times(self, form: str) -> int:
        """Count a word, a prefix (`word*`) or a phrase."""
        if form.endswith("*"):
            begin = f"'{form[:-1]}"
            return sum(len(_places(found)) for found in self._entries(begin, whole=False))
        first, *rest = form.split()
        if not rest:
            return next((some.count(",") + 1 for some in self._entries(f"'{first}':")), 0)
        found = self._at(first)
        for number, word in enumerate(rest, start=1):
            found &= {place - number for place in self._at(word)}
        return len(found)

    def _at(self, word: str) -> set[int]:
        return {place for some in self._entries(f"'{word}':") for place in _places(some)}

    def _entries(self, begin: str, *, whole: bool = True) -> Iterator[str]:
        """Yield the places of entries that begin so, as text."""
        words, at = self._words, 0
        while (at := words.find(begin, at)) >= 0:
            stop = words.find(" ", at)
            entry = words[at : stop if stop >= 0 else None]
            if at == 0 or words[at - 1] == " ":
                yield entry.rpartition(":")[2]
                if whole:
                    return
            at += len(begin)


def _places(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]
