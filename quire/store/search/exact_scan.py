"""Exact vector search on SQLite: compares the query with all vectors, cached in memory.

A search in a few chunks reads only their vectors. For others, each process caches the vectors by
engine, model and tenant, from a file if there is one (`vector_file`). Before a search it checks
whether the database changed and reads only added rows. Vectors never change and chunk ids are
never reused, so extra vectors in the cache do no harm: the caller filters live chunks. Missing ones
would, so the cache is compared with the count and the sum of ids in the database.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from quire import log
from quire.model.search import IndexHits, Model
from quire.store.db import dialect
from quire.store.db.schema.documents import chunks, vectors
from quire.store.search import vector_file
from quire.store.search.chunk_filter import ChunkFilter
from quire.store.search.vector_file import rowid

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Matrix = npt.NDArray[np.float32]

#: Above this number of vectors an exact scan is noticeably slow.
WARN_VECTORS = 500_000
#: From this number of vectors on, a comparison takes longer than starting a thread.
THREAD_MIN_VECTORS = 5_000
#: A process without a cache reads up to this many vectors of a filter from the database.
MAX_READ = 30_000
_BATCH = 10_000


class Scan:
    """Compares a query with a tenant's vectors, as of the given transaction."""

    def __init__(self, conn: sa.Connection, tenant: str, model: Model, query: bytes) -> None:
        import numpy as np

        self._conn, self._tenant, self._model = conn, tenant, model
        self._cache = _cache_of(conn, model)
        self._point = _normalize(np.frombuffer(query, np.float32).reshape(1, -1))[0]
        self._scores: Future[Matrix] | None = None

    def begin(self, limit: int, within: ChunkFilter | None = None) -> None:
        """Start the comparison in a thread while the caller does other work."""
        if within is not None or self._scores is not None:
            return
        if len(self._all[0]) >= THREAD_MIN_VECTORS:
            # A new pool per search: an idle pool's threads would not survive a fork.
            pool = ThreadPoolExecutor(1, "vectors")
            self._scores = pool.submit(_cosines, self._all[1], self._point)
            pool.shutdown(wait=False)

    def nearest(self, limit: int, within: ChunkFilter | None = None) -> IndexHits:
        """Find the chunks nearest to the query, scored by cosine; `within` restricts them."""
        import numpy as np

        if within is None:
            ids, scores = self._all[0], self._all_scores()
        else:
            ids, scores = self._filtered(within)
        if len(ids) > limit:
            top = np.argpartition(scores, -limit)[-limit:]
            ids, scores = ids[top], scores[top]
        order = np.lexsort((ids, -scores))
        ranked = list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))
        return IndexHits(ranked, len(ranked) < limit)

    @cached_property
    def _all(self) -> tuple["Ids", "Matrix"]:
        return self._cache.view(self._conn, self._tenant)

    def _all_scores(self) -> "Matrix":
        if self._scores is None:
            self._scores = Future()
            self._scores.set_result(_cosines(self._all[1], self._point))
        return self._scores.result()

    def _filtered(self, within: ChunkFilter) -> tuple["Ids", "Matrix"]:
        import numpy as np

        allowed = np.array(json.loads(within.given["of_chunks"]), np.int64)
        if not self._cache.tenants and len(allowed) <= MAX_READ:
            ids, matrix = self._read(within)
            return ids, _cosines(matrix, self._point)
        ids, matrix = self._all
        picked = np.flatnonzero(np.isin(ids, allowed))
        # Copying rows costs more than multiplying them, so it pays only for few.
        few = self._scores is None and len(picked) * 8 < len(ids)
        scores = _cosines(matrix[picked], self._point) if few else self._all_scores()[picked]
        return ids[picked], scores

    def _read(self, within: ChunkFilter) -> tuple["Ids", "Matrix"]:
        """Read the vectors of the allowed chunks, without caching any."""
        v = vectors.c
        mine = v.model_id == self._model.id
        query = sa.select(v.chunk_id, v.vector).where(mine, within.has(self._conn, v.chunk_id))
        rows = VectorRows(self._model.dimensions)
        rows.append(*_decode(self._conn.execute(query, within.given).all(), self._model))
        return rows.view()


class VectorRows:
    """Vectors with their chunk ids; earlier views stay valid after `append` and `keep`."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self.count = 0
        self.ids: Ids = np.empty(0, np.int64)
        self.matrix: Matrix = np.empty((0, dimensions), np.float32)

    def append(self, ids: "Ids", matrix: "Matrix") -> None:
        """Append rows."""
        import numpy as np

        end = self.count + len(ids)
        if not self.count:
            self.ids, self.matrix = ids, matrix  # as they are, also if they are a mapped file
            self.count = end
            return
        if end > len(self.ids):
            room = max(end, len(self.ids) * 3 // 2)
            held = self.ids[: self.count], self.matrix[: self.count]
            self.ids = np.empty(room, np.int64)
            self.matrix = np.empty((room, self.matrix.shape[1]), np.float32)
            self.ids[: self.count], self.matrix[: self.count] = held
        self.ids[self.count : end], self.matrix[self.count : end] = ids, matrix
        self.count = end

    def view(self) -> tuple["Ids", "Matrix"]:
        """Return the current ids and vectors."""
        return self.ids[: self.count], self.matrix[: self.count]

    def keep(self, wanted: "npt.NDArray[np.bool_]") -> None:
        """Drop the other rows."""
        ids, matrix = self.view()
        self.ids, self.matrix = ids[wanted], matrix[wanted]
        self.count = len(self.ids)


class ModelCache:
    """The vectors of one model and one database cached by this process."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tenants: dict[str, VectorRows] = {}
        self.lock = threading.Lock()
        self.version = 0  # grows with each change
        self.in_file = 0  # vectors in the file that was read or written last
        self.seen = (0, 0, 0)  # number of vectors, sum of their chunks' ids, last row
        self.has_warned = False

    def view(self, conn: sa.Connection, tenant: str) -> tuple["Ids", "Matrix"]:
        """Return a tenant's ids and vectors, refreshed."""
        with self.lock:
            if not self.version and (stored := vector_file.load(conn, self.model)):
                self._rows(stored.tenant).append(stored.ids, stored.matrix)
                self.seen, self.version, self.in_file = stored.seen, 1, len(stored.ids)
            self._refresh(conn)
            return self.tenants.get(tenant, VectorRows(self.model.dimensions)).view()

    def _refresh(self, conn: sa.Connection) -> None:
        notes = conn.connection.info
        key = "vectors", self.model.id
        counters = _change_counters(conn)
        if notes.get(key) == (counters, self.version):
            return
        found = self._in_database(conn)
        if found != self.seen:
            self._read(conn, rowid > self.seen[2])
            if self._in_memory() != found[:2]:
                self._reconcile(conn)
            self.seen = found
            self.version += 1
            self._warn(found[0])
            self._save(conn)
        notes[key] = counters, self.version

    def _in_database(self, conn: sa.Connection) -> tuple[int, int, int]:
        # Only this index has what is asked for; the table would be read with all its vectors.
        count, total, last = conn.exec_driver_sql(
            "SELECT count(*), sum(chunk_id), max(rowid) FROM vectors "
            "INDEXED BY sqlite_autoindex_vectors_1 WHERE model_id = ?",
            (self.model.id,),
        ).one()
        return count, total or 0, last or 0

    def _in_memory(self) -> tuple[int, int]:
        held = [rows.view()[0] for rows in self.tenants.values()]
        return sum(map(len, held)), sum(int(ids.sum()) for ids in held)

    def _read(self, conn: sa.Connection, which: sa.ColumnElement[bool], **given: Any) -> None:
        v = vectors.c
        # The plus disables the index on model_id: for the last few rows SQLite must use rowid.
        mine = sa.literal_column("+vectors.model_id") == self.model.id
        # Rows of `chunks` are wide: join them only if there are several tenants.
        if (only := _only_tenant(conn)) is not None:
            query = sa.select(v.chunk_id, v.vector, sa.literal(only))
        else:
            c = chunks.c
            query = sa.select(v.chunk_id, v.vector, c.tenant).join(chunks, c.id == v.chunk_id)
        for batch in conn.execute(query.where(mine, which), given).partitions(_BATCH):
            for tenant in {tenant for _, _, tenant in batch}:
                rows = [(chunk, vector) for chunk, vector, whose in batch if whose == tenant]
                self._rows(tenant).append(*_decode(rows, self.model))

    def _rows(self, tenant: str) -> VectorRows:
        return self.tenants.setdefault(tenant, VectorRows(self.model.dimensions))

    def _reconcile(self, conn: sa.Connection) -> None:
        """Drop deleted vectors, and read those that reused a deleted rowid."""
        import numpy as np

        v = vectors.c
        query = sa.select(v.chunk_id).where(v.model_id == self.model.id)
        there = np.fromiter(conn.scalars(query), np.int64)
        for rows in self.tenants.values():
            ids = rows.view()[0]
            first = np.zeros(len(ids), np.bool_)
            first[np.unique(ids, return_index=True)[1]] = True
            rows.keep(first & np.isin(ids, there))
        held = [rows.view()[0] for rows in self.tenants.values()]
        missing = np.setdiff1d(there, np.concatenate(held)) if held else there
        for batch in _batches(missing.tolist()):
            which = dialect.id_in(conn, v.chunk_id, "ids")
            self._read(conn, which, ids=dialect.encode_ids(conn, batch))

    def _save(self, conn: sa.Connection) -> None:
        """Write the file again when a tenth of the vectors is missing from it."""
        count = self.seen[0]
        if count < vector_file.MIN_VECTORS or abs(count - self.in_file) * 10 < count:
            return
        if len(self.tenants) == 1:
            [(tenant, rows)] = self.tenants.items()
            stored = vector_file.StoredVectors(tenant, *rows.view(), self.seen)
            vector_file.save(conn, self.model, stored)
        self.in_file = count

    def _warn(self, count: int) -> None:
        if count > WARN_VECTORS and not self.has_warned:
            self.has_warned = True
            log.event(
                "search.many_vectors",
                level="warning",
                vectors=count,
                why=f"exact search over more than {WARN_VECTORS:,} vectors is slow",
                remedy="transfer to PostgreSQL with `quire transfer`",
            )


_engines: "WeakKeyDictionary[sa.Engine, dict[int, ModelCache]]" = WeakKeyDictionary()
_lock = threading.Lock()


def _cache_of(conn: sa.Connection, model: Model) -> ModelCache:
    with _lock:
        models = _engines.setdefault(conn.engine, {})
        return models.setdefault(model.id, ModelCache(model))


def _change_counters(conn: sa.Connection) -> tuple[int, int]:
    """Return counters that change with every commit: by others, and by this connection."""
    driver: Any = conn.connection.driver_connection
    others: int = conn.exec_driver_sql("PRAGMA data_version").scalar_one()
    return others, driver.total_changes


def _only_tenant(conn: sa.Connection) -> str | None:
    """Return the tenant of all chunks, or None if there are several."""
    first = sa.select(sa.func.min(chunks.c.tenant)).scalar_subquery()
    last = sa.select(sa.func.max(chunks.c.tenant)).scalar_subquery()
    names: tuple[str | None, str | None] = tuple(conn.execute(sa.select(first, last)).one())
    return names[0] if names[0] == names[1] else None


def _cosines(matrix: "Matrix", point: "Matrix") -> "Matrix":
    import numpy as np

    # vecdot runs in one thread. A matrix product starts one per core, and on a busy machine these
    # wait for each other.
    found: Matrix = np.vecdot(matrix, point)
    return found


def _normalize(matrix: "Matrix") -> "Matrix":
    import numpy as np

    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Matrix = matrix / np.maximum(length, np.finfo(np.float32).tiny)
    return scaled


def _decode(rows: Sequence[Any], model: Model) -> tuple["Ids", "Matrix"]:
    """Return the ids and unit vectors of rows of chunk id and vector."""
    import numpy as np

    flat = np.frombuffer(b"".join(blob for _, blob in rows), np.float32)
    ids = np.fromiter((chunk_id for chunk_id, _ in rows), np.int64, len(rows))
    return ids, _normalize(flat.reshape(len(rows), model.dimensions))


def _batches(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH))
