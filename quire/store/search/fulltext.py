"""Finds the chunks that have words of a query: FTS5 on SQLite, tsvector on PostgreSQL.

The indexes only tell which chunks have which words. A chunk's *presence* is a number with a bit for
each term; the caller weighs the terms, and scores the best chunks by their texts, so that both
databases rank alike.

A rare word is looked up everywhere. A common one has too many chunks: it is looked up among the
chunks with rarer words, as long as these outweigh all chunks that have common words only. Where
they do not, chunks are looked up in a sample, spread over all of them. Frequencies are those of the
tenant alone: scores would otherwise tell how often a word stands in the documents of others.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from quire.model.search import QueryTerms
from quire.store.db import dialect
from quire.store.search import sampled_gin
from quire.store.search.chunk_filter import KEEP_JOIN_ORDER, numbers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

#: FTS5: a word in more chunks than this is common; listing that many takes 2 ms.
COMMON_CHUNKS = 40_000
#: Blocks of consecutive ids that are the sample, and ids in each of them.
SAMPLE_BLOCKS, SAMPLE_BLOCK = 16, 512
#: Ids at most this far apart are looked up in one range, which takes as long as to list this many
#: chunks.
_GAP, _RANGE_COST = 256, 1_500
#: Returns the weight of each term, given the number of chunks that have it, and of all chunks.
Weigh = Callable[[Sequence[int], int], Sequence[float]]


class Presence(NamedTuple):
    """Chunks in order of their ids, each with the bits of the terms that it has."""

    ids: "Ids"
    bits: "Ids"

    def frequencies(self, terms: int) -> list[int]:
        """Count the chunks that have each term."""
        return [int(((self.bits >> at) & 1).sum()) for at in range(terms)]

    def best(self, weights: Sequence[float], most: int) -> "Presence":
        """Return the chunks with the heaviest terms; of equal ones, the first."""
        import numpy as np

        scores = self.scores(weights)
        likely = np.flatnonzero(scores >= max(_kth(scores, most), np.finfo(float).tiny))
        order = np.lexsort((likely, -scores[likely]))[:most]
        chosen = np.sort(likely[order])
        return Presence(self.ids[chosen], self.bits[chosen])

    def scores(self, weights: Sequence[float]) -> "npt.NDArray[np.float64]":
        """Return the sum of the weights of the terms that each chunk has."""
        import numpy as np

        found = np.zeros(len(self.ids))
        each = np.arange(256)
        for start in range(0, len(weights), 8):  # a table is faster than each bit
            table = np.zeros(256)
            for at, weight in enumerate(weights[start : start + 8]):
                table += (each >> at & 1) * weight
            found += table[self.bits >> start & 255]
        return found

    def score_of(self, weights: Sequence[float]) -> dict[int, float]:
        """Return the score of each chunk by its id."""
        return dict(zip(self.ids.tolist(), self.scores(weights).tolist(), strict=True))


class ChunkIndex:
    """Looks up the terms of one query in the chunks of a tenant."""

    #: Number of chunks that have each term, some of them estimated; number of all chunks.
    frequencies: Sequence[int]
    total: int

    def within(self, ids: "Ids") -> Presence:
        """Look up some chunks, given by their ids in order."""
        raise NotImplementedError

    def anywhere(self, weigh: Weigh, most: int) -> Presence:
        """Look up all chunks that may be among the `most` with the heaviest terms."""
        raise NotImplementedError


def open_index(conn: sa.Connection, tenant: str, terms: QueryTerms) -> ChunkIndex:
    """Count the chunks that have each term."""
    if dialect.is_sqlite(conn):
        return _Fts5Index(conn, tenant, terms.fts5)
    return _PostgresIndex(conn, tenant, terms.tsquery)


def _merge(found: Sequence[tuple[int, "Ids"]]) -> Presence:
    """Return the union of the chunks of each term."""
    import numpy as np

    if not (some := [(at, ids) for at, ids in found if len(ids)]):
        return Presence(np.empty(0, np.int64), np.empty(0, np.int64))
    first = min(int(ids.min()) for _, ids in some)
    last = max(int(ids.max()) for _, ids in some)
    bits = np.zeros(last - first + 1, np.uint32)  # faster than to sort, if SQLite has the chunks
    for at, ids in some:
        bits[ids - first] |= np.uint32(1 << at)
    there = np.flatnonzero(bits)
    return Presence(there + first, bits[there].astype(np.int64))


def join_presence(first: Presence, second: Presence) -> Presence:
    """Return the chunks of both, with the bits of both."""
    import numpy as np

    union = np.union1d(first.ids, second.ids)
    bits = np.zeros(len(union), np.int64)
    for each in (first, second):
        bits[np.searchsorted(union, each.ids)] |= each.bits
    return Presence(union, bits)


def _rarest_first(frequencies: Sequence[int]) -> list[int]:
    """Return the terms that some chunk has, rarest first."""
    known = [at for at, count in enumerate(frequencies) if count]
    return sorted(known, key=lambda at: (frequencies[at], at))


def _kth(scores: "npt.NDArray[np.float64]", most: int) -> float:
    """Return the score that a chunk must exceed to be among the best, or 0."""
    import numpy as np

    return float(np.partition(scores, -most)[-most]) if len(scores) >= most else 0.0


class _Fts5Index(ChunkIndex):
    def __init__(self, conn: sa.Connection, tenant: str, terms: Sequence[str]) -> None:
        self._conn, self._terms = conn, terms
        self._index = dialect.words_table(tenant)
        self._is_there = dialect.has_words_table(conn, tenant)
        self.total = self._count_chunks() if self._is_there else 0
        listed = self._listed()
        #: Chunks of the terms that are not common.
        self._lists = {at: ids for at, ids in enumerate(listed) if len(ids) <= COMMON_CHUNKS}
        self.frequencies = [
            len(ids) if at in self._lists else self._estimate(ids) for at, ids in enumerate(listed)
        ]

    def within(self, ids: "Ids") -> Presence:
        import numpy as np

        bits = np.zeros(len(ids), np.int64)
        for at in _rarest_first(self.frequencies):
            known = self._lists[at] if at in self._lists else self._in(at, ids)
            bits |= np.isin(ids, known, assume_unique=True).astype(np.int64) << at
        return Presence(ids[bits > 0], bits[bits > 0])

    def anywhere(self, weigh: Weigh, most: int) -> Presence:
        weights = weigh(self.frequencies, self.total)
        order = _rarest_first(self.frequencies)
        common = [at for at in order if at not in self._lists]
        found = self._with_common(common)
        left = sum(weights[at] for at in common)
        if not common or _kth(found.scores(weights), most) >= left:
            return found
        return join_presence(found, self._sampled(order))

    def _with_common(self, common: Sequence[int]) -> Presence:
        """Return the chunks of the terms that are not common, also with the bits of the others."""
        import numpy as np

        found = [(at, ids) for at, ids in self._lists.items() if len(ids)]
        if not found:
            return _merge([])
        rare = " OR ".join(f"({self._terms[at]})" for at, _ in found)
        for at in common:
            query = f"({self._terms[at]}) AND ({rare})"
            [ids] = self._rows(
                f"SELECT rowid FROM {self._index} WHERE {self._index} MATCH ?",  # noqa: S608
                query,
            )
            found.append((at, np.asarray(ids)))
        return _merge(found)

    def _sampled(self, order: Sequence[int]) -> Presence:
        blocks = self._blocks
        return _merge([(at, self._in_ranges(at, blocks)) for at in order])

    @functools.cached_property
    def _ends(self) -> tuple[int, int]:
        """Return the first and the last id of the index."""
        first, last = self._conn.exec_driver_sql(
            f"SELECT (SELECT min(id) FROM {self._index}_docsize), "  # noqa: S608
            f"(SELECT max(id) FROM {self._index}_docsize)"
        ).one()
        return first, last

    @functools.cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """Return ranges of ids that are spread evenly over the index."""
        first, last = self._ends
        step = max(1, (last - first + 1) // SAMPLE_BLOCKS)
        size = min(step, SAMPLE_BLOCK)
        return [(at, at + size - 1) for at in range(first, last + 1, step)]

    def _count_chunks(self) -> int:
        """Return the number of indexed chunks, the first number of FTS5's averages record."""
        block: bytes | None = self._conn.exec_driver_sql(
            f"SELECT block FROM {self._index}_data WHERE id = 1"  # noqa: S608
        ).scalar_one_or_none()
        return _varint(block) if block else 0

    def _listed(self) -> list["Ids"]:
        """Return the chunks of each term, up to one more than the limit."""
        if not self._is_there:
            import numpy as np

            return [np.empty(0, np.int64) for _ in self._terms]
        one = f"SELECT rowid FROM {self._index} WHERE {self._index} MATCH value LIMIT ?"  # noqa: S608
        found = self._conn.exec_driver_sql(
            f"SELECT (SELECT json_group_array(rowid) FROM ({one})) FROM json_each(?)",  # noqa: S608
            (COMMON_CHUNKS + 1, dialect.encode_rows(self._terms)),
        )
        return [numbers(ids) for (ids,) in found]

    def _rows(self, query: str, *given: Any) -> list["Ids"]:
        found = self._conn.exec_driver_sql(
            f"SELECT json_group_array(rowid) FROM ({query})",  # noqa: S608
            given,
        )
        return [numbers(ids) for (ids,) in found]

    def _in(self, at: int, ids: "Ids") -> "Ids":
        """Return at least those of the chunks that have a term."""
        import numpy as np

        if not len(ids):
            return ids
        ends = np.flatnonzero(np.diff(ids) > _GAP)
        firsts, lasts = ids[np.r_[0, ends + 1]], ids[np.r_[ends, len(ids) - 1]]
        if len(firsts) * _RANGE_COST < self.frequencies[at]:
            return self._in_ranges(at, list(zip(firsts.tolist(), lasts.tolist(), strict=True)))
        # The plus makes it a filter on matches; otherwise FTS5 is queried once per id.
        query = (
            f"SELECT rowid FROM {self._index} WHERE {self._index} MATCH ? "  # noqa: S608
            "AND +rowid IN (SELECT value FROM json_each(?))"
        )
        return self._rows(query, self._terms[at], dialect.encode_rows(ids.tolist()))[0]

    def _in_ranges(self, at: int, ranges: Sequence[tuple[int, int]]) -> "Ids":
        # CROSS JOIN keeps the order: FTS5 skips to the start of each range.
        query = (
            f"SELECT {self._index}.rowid FROM json_each(?) span CROSS JOIN {self._index} "  # noqa: S608
            f"WHERE {self._index} MATCH ? AND {self._index}.rowid "
            "BETWEEN span.value ->> 0 AND span.value ->> 1"
        )
        return self._rows(query, dialect.encode_rows(ranges), self._terms[at])[0]

    def _estimate(self, listed: "Ids") -> int:
        """Estimate how many chunks have a common term from the first ones that have it."""
        first, last = self._ends
        share = (last - first + 1) / (int(listed.max()) - first + 1)
        return max(COMMON_CHUNKS + 1, min(self.total, round(share * len(listed))))


def _varint(block: bytes) -> int:
    """Decode SQLite's variable-length integer at the start of a block."""
    value = 0
    for byte in block[:8]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    return value << 8 | block[8]


class _PostgresIndex(ChunkIndex):
    def __init__(self, conn: sa.Connection, tenant: str, terms: Sequence[str]) -> None:
        self._conn, self._tenant, self._terms = conn, tenant, terms
        # The planner ignores the cost of decompressing tsvectors and would scan the whole table.
        chosen = {"enable_seqscan": "off", "enable_bitmapscan": "on", "work_mem": "32MB"}
        dialect.set_local(conn, chosen | KEEP_JOIN_ORDER)
        self.total = sampled_gin.estimate_chunks_of(conn, tenant)
        self._all = _joined(terms, "&")
        self._sample = sampled_gin.Sample(
            conn, tenant, sampled_gin.estimate_chunks(conn), [*terms, self._all]
        )
        self.frequencies = self._sample.counts(terms, sampled_gin.MAX_RANKED)

    def within(self, ids: "Ids") -> Presence:
        order = _rarest_first(self.frequencies)
        if not order or not len(ids):
            return _merge([])
        given = {"of_chunks": dialect.encode_ids(self._conn, ids.tolist())}
        return self._run(order, sampled_gin.presence_within(len(order)), given)

    def anywhere(self, weigh: Weigh, most: int) -> Presence:
        weights = weigh(self.frequencies, self.total)
        order = _rarest_first(self.frequencies)
        if not order:
            return _merge([])
        rare, room = [], sampled_gin.MAX_RANKED
        for at in order:
            room -= self.frequencies[at]
            if room < 0:
                break
            rare.append(at)
        found = (
            self._look_up(order, _joined([self._terms[at] for at in rare], "|"))
            if rare
            else (_merge([]))
        )
        left = sum(weights[at] for at in order if at not in rare)
        if not left or _kth(found.scores(weights), most) >= left:
            return found
        if not rare and len(order) > 1:
            found = self._look_up(order, _joined([self._terms[at] for at in order], "&"))
            if _kth(found.scores(weights), most) >= left:
                return found
        whole = self._look_up(order, _joined([self._terms[at] for at in order], "|"))
        return join_presence(found, whole)

    def _look_up(self, order: Sequence[int], query: str) -> Presence:
        """Look up the chunks that match, in the largest sample in which they are few enough."""
        level = self._sample.level(query, min(self.frequencies[at] for at in order))
        given = {"query": query, "tenant": self._tenant}
        return self._run(order, sampled_gin.presence_in_sample(len(order), level), given)

    def _run(self, order: Sequence[int], statement: str, given: dict[str, Any]) -> Presence:
        import numpy as np

        terms = {f"term_{n}": self._terms[at] for n, at in enumerate(order)}
        terms["any"] = _joined([self._terms[at] for at in order], "|")
        rows = self._conn.execute(sa.text(statement), given | terms).all()
        ids = np.array([row[0] for row in rows], np.int64)
        packed = np.array([row[1] for row in rows], np.int64)
        bits = np.zeros(len(rows), np.int64)
        for n, at in enumerate(order):
            bits |= ((packed >> n) & 1) << at
        by_id = np.argsort(ids)
        return Presence(ids[by_id], bits[by_id])


def _joined(terms: Sequence[str], word: str) -> str:
    return f" {word} ".join(f"({term})" for term in terms)
