"""Full-text search on PostgreSQL with sampled GIN indexes: over all chunks, 1/8 and 1/64 of them.

A common word is in hundreds of thousands of chunks, and a GIN index returns all matches before the
first is ranked. So common words are searched in the sample that has as many matches as can be
ranked. A sample consists of blocks of consecutive ids: their rows are stored together, and every
large document is represented.
"""

import functools
import time
from collections.abc import Sequence

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import chunks, documents

#: An index over one of this many id blocks; the first covers all.
SAMPLE_RATES = (1, 8, 64)
#: From this number of chunks on, samples are used and the smallest one estimates frequencies.
SAMPLE_MIN_CHUNKS = 50_000
#: Maximum number of matches that are ranked, and that are counted in the smallest sample.
MAX_RANKED, SAMPLE_COUNT_LIMIT = 1_500, 500
#: To find chunks with all words, the index scans all chunks with the rarest one; this many take
#: some milliseconds. A smaller sample scans fewer, but must contain some matches.
MAX_SCANNED, MIN_SAMPLE_MATCHES = 12_000, 64
_BLOCK_BITS = 7
#: `gin_pending_list_limit` in KB: every search reads the whole pending list.
_PENDING_LIST_KB = 256
#: A tenant's chunks are counted up to this many; numbers that took long are kept for this time.
_MAX_COUNTED, _KEEP_TOTAL = 100_000, 60.0
_totals: dict[tuple[str, str], tuple[float, int]] = {}


def sample_condition(level: int) -> str:
    """Return the SQL condition of a sample."""
    return "true" if level == 1 else f"((chunks.id >> {_BLOCK_BITS}) & {level - 1}) = 0"


def add_samples(conn: sa.Connection) -> None:
    """Create the sampled indexes, and store tsvectors inline instead of in TOAST."""
    if dialect.is_sqlite(conn):
        return
    # Fetching and decompressing TOASTed tsvectors takes longer than ranking them.
    conn.exec_driver_sql("ALTER TABLE chunks SET (toast_tuple_target = 8160)")
    conn.exec_driver_sql("DROP INDEX IF EXISTS ix_chunks_words")
    create_indexes(conn)


def create_indexes(conn: sa.Connection) -> None:
    """Create the missing indexes of all samples."""
    for level in SAMPLE_RATES:
        name, which = "ix_chunks_words", ""
        if level > 1:
            name, which = f"{name}_{level}", f"WHERE {sample_condition(level)}"
        conn.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS {name} ON chunks USING gin (words) "
            f"WITH (gin_pending_list_limit = {_PENDING_LIST_KB}) {which}"
        )


def estimate_chunks(conn: sa.Connection) -> int:
    """Return the number of chunks, estimated from statistics if they are many."""
    guess: float = conn.exec_driver_sql(
        "SELECT reltuples FROM pg_class WHERE oid = CAST('chunks' AS regclass)"
    ).scalar_one()
    if guess > 2 * MAX_RANKED:
        return int(guess)
    # For a small table the statistics may be missing or far off.
    some = sa.select(chunks.c.id).limit(2 * MAX_RANKED).subquery()
    return conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0


def estimate_chunks_of(conn: sa.Connection, tenant: str) -> int:
    """Return the number of a tenant's chunks; a large one is kept for a minute.

    That of very many chunks is what its documents tell.
    """
    key = (str(conn.engine.url), tenant)
    until, known = _totals.get(key, (0.0, 0))
    if time.monotonic() < until:
        return known
    some = sa.select(chunks.c.id).where(chunks.c.tenant == tenant).limit(_MAX_COUNTED).subquery()
    known = conn.scalar(sa.select(sa.func.count()).select_from(some)) or 0
    if known == _MAX_COUNTED:
        told = sa.select(sa.func.sum(documents.c.chunks)).where(documents.c.tenant == tenant)
        known = max(int(conn.scalar(told) or 0), known)
    if known > SAMPLE_MIN_CHUNKS // 10:
        _totals[key] = (time.monotonic() + _KEEP_TOTAL, known)
    return known


class Sample:
    """A tenant's match counts in the smallest sample, by query; unused in a small database."""

    def __init__(
        self, conn: sa.Connection, tenant: str, total: int, queries: Sequence[str]
    ) -> None:
        self._conn = conn
        self._tenant = tenant
        self._total = total  # of all tenants: it decides what a scan costs
        self._found: dict[str, int] = {}
        if total >= SAMPLE_MIN_CHUNKS:
            self._count(queries)

    def counts(self, queries: Sequence[str], most: int) -> list[int]:
        """Count the matches of each query, up to `most`; estimated for common queries."""
        if self._total < SAMPLE_MIN_CHUNKS:
            return _count_matches(self._conn, self._tenant, queries, 1, most)
        found = [self._sample_count(query) * SAMPLE_RATES[-1] for query in queries]
        # Small sample counts are unreliable, and counting that few exactly is fast.
        rare = [at for at, n in enumerate(found) if n <= most]
        few = [queries[at] for at in rare]
        exact = _count_matches(self._conn, self._tenant, few, 1, most)
        for at, n in zip(rare, exact, strict=True):
            found[at] = n
        return found

    def level(self, query: str, scanned: int = 0) -> int:
        """Choose the largest sample with not many more matches than can be ranked.

        `scanned` is how many chunks the full index has to scan to find these.
        """
        if self._total < SAMPLE_MIN_CHUNKS:
            return 1
        found = self._sample_count(query) * SAMPLE_RATES[-1]
        fits = [level for level in SAMPLE_RATES if found // level <= 2 * MAX_RANKED] or [
            SAMPLE_RATES[-1]
        ]
        quick = [
            level
            for level in fits
            if scanned // level <= MAX_SCANNED and found // level >= MIN_SAMPLE_MATCHES
        ]
        return next(iter(quick or fits))

    def _sample_count(self, query: str) -> int:
        if query not in self._found:
            self._count([query])
        return self._found[query]

    def _count(self, queries: Sequence[str]) -> None:
        found = _count_matches(
            self._conn, self._tenant, queries, SAMPLE_RATES[-1], SAMPLE_COUNT_LIMIT
        )
        self._found |= zip(queries, found, strict=True)


def _count_matches(
    conn: sa.Connection, tenant: str, queries: Sequence[str], level: int, most: int
) -> list[int]:
    if not queries:
        return []
    some = (
        f"SELECT FROM chunks WHERE {sample_condition(level)} "
        f"AND tenant = %s AND words @@ to_tsquery('simple', value) LIMIT {most}"
    )
    rows = conn.exec_driver_sql(
        f"SELECT (SELECT count(*) FROM ({some}) AS counted) "  # noqa: S608
        "FROM jsonb_array_elements_text(CAST(%s AS jsonb)) value",
        (tenant, dialect.encode_rows(queries)),
    )
    return [count for (count,) in rows]


def presence_in_sample(terms: int, level: int) -> str:
    """Return the SQL that finds the matches of `query` in a sample, and which terms they have."""
    return (
        f"SELECT id, {_bits(terms)} FROM chunks WHERE tenant = :tenant "  # noqa: S608
        f"AND words @@ to_tsquery('simple', :query) AND {sample_condition(level)} "
        f"LIMIT {2 * MAX_RANKED}"
    )


@functools.cache
def presence_within(terms: int) -> str:
    """Return the SQL that finds which terms the chunks of an array have."""
    return (
        f"SELECT id, {_bits(terms)} FROM chunks "  # noqa: S608
        "WHERE id = ANY(CAST(:of_chunks AS bigint[])) AND words @@ to_tsquery('simple', :any)"
    )


def _bits(terms: int) -> str:
    parts = [
        f"(CAST(CAST(words @@ to_tsquery('simple', :term_{at}) AS int) AS bigint) << {at})"
        for at in range(terms)
    ]
    return " | ".join(parts)
