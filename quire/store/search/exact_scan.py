"""Vectors of the embedded database, compared one and all: exact, and fast as they stay in memory.

Each process keeps the vectors that it has read, by engine, model and tenant. Before a search it
asks whether the database changed, and then reads only what was added. Vectors of a chunk never
change and a chunk's id is never used again, so one too many in memory is no fault: whoever asks
looks up which chunks are live. One too few would be, so what is there is counted and compared.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from quire import log
from quire.model.search import Model
from quire.store.db import dialect
from quire.store.db.schema.documents import chunks, vectors
from quire.store.search.chunk_filter import ChunkFilter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Matrix = npt.NDArray[np.float32]

#: Above so many vectors a scan of all of them is slower than people like to wait.
WARN_VECTORS = 500_000
#: So many vectors take longer to compare with than a thread takes to begin.
THREAD_MIN_VECTORS = 5_000
_BATCH = 10_000
_rowid: sa.ColumnElement[int] = sa.literal_column("vectors.rowid", sa.BigInteger)


class Scan:
    """Compares a query with the vectors of a tenant, as they are in the transaction given."""

    def __init__(self, conn: sa.Connection, tenant: str, model: Model, query: bytes) -> None:
        import numpy as np

        self._conn = conn
        self._ids, self._matrix = _cache_of(conn, model).view(conn, tenant)
        self._point = _normal(np.frombuffer(query, np.float32).reshape(1, -1))[0]
        self._begun: Future[Matrix] | None = None

    def begin(self) -> None:
        """Compare with all vectors in a thread, while the caller does something else."""
        if self._begun is None and len(self._ids) >= THREAD_MIN_VECTORS:
            # One that is begun for each search: a pool that waits would not outlive a fork.
            pool = ThreadPoolExecutor(1, "vectors")
            self._begun = pool.submit(_cosines, self._matrix, self._point)
            pool.shutdown(wait=False)

    def nearest(self, limit: int, among: ChunkFilter | None = None) -> list[tuple[int, float]]:
        """List the chunks whose vectors are nearest to the query, with their cosine."""
        import numpy as np

        ids, scores = (self._ids, self._all()) if among is None else self._some(among)
        if len(ids) > limit:
            top = np.argpartition(scores, -limit)[-limit:]
            ids, scores = ids[top], scores[top]
        order = np.lexsort((ids, -scores))
        return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))

    def _all(self) -> "Matrix":
        if self._begun is None:
            self._begun = Future()
            self._begun.set_result(_cosines(self._matrix, self._point))
        return self._begun.result()

    def _some(self, among: ChunkFilter) -> tuple["Ids", "Matrix"]:
        import numpy as np

        allowed = np.array(self._conn.scalars(among.select, among.given).all(), np.int64)
        picked = np.flatnonzero(np.isin(self._ids, allowed))
        # To copy rows costs more than to multiply them: only worth it for a few.
        few = self._begun is None and len(picked) * 8 < len(self._ids)
        scores = _cosines(self._matrix[picked], self._point) if few else self._all()[picked]
        return self._ids[picked], scores


class VectorRows:
    """Vectors with the ids of their chunks; what `view` gave stays as it was."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self.count = 0
        self.ids: Ids = np.empty(0, np.int64)
        self.matrix: Matrix = np.empty((0, dimensions), np.float32)

    def append(self, ids: "Ids", matrix: "Matrix") -> None:
        """Add rows behind the others."""
        import numpy as np

        end = self.count + len(ids)
        if end > len(self.ids):
            room = max(end, len(self.ids) * 3 // 2)
            held = self.ids[: self.count], self.matrix[: self.count]
            self.ids = np.empty(room, np.int64)
            self.matrix = np.empty((room, self.matrix.shape[1]), np.float32)
            self.ids[: self.count], self.matrix[: self.count] = held
        self.ids[self.count : end], self.matrix[self.count : end] = ids, matrix
        self.count = end

    def view(self) -> tuple["Ids", "Matrix"]:
        """Return what is there now."""
        return self.ids[: self.count], self.matrix[: self.count]

    def keep(self, wanted: "npt.NDArray[np.bool_]") -> None:
        """Drop the other rows."""
        ids, matrix = self.view()
        self.ids, self.matrix = ids[wanted], matrix[wanted]
        self.count = len(self.ids)


class ModelCache:
    """What this process holds of one model of one database."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tenants: dict[str, VectorRows] = {}
        self.lock = threading.Lock()
        self.version = 0  # grows with each change
        self.seen = (0, 0, 0)  # number of vectors, sum of their chunks' ids, last row
        self.has_warned = False

    def view(self, conn: sa.Connection, tenant: str) -> tuple["Ids", "Matrix"]:
        """Return the ids and vectors of a tenant, brought up to date."""
        with self.lock:
            self._follow(conn)
            return self.tenants.get(tenant, VectorRows(self.model.dimensions)).view()

    def _follow(self, conn: sa.Connection) -> None:
        notes = conn.connection.info
        key = "vectors", self.model.id
        counters = _change_counters(conn)
        if notes.get(key) == (counters, self.version):
            return
        found = self._in_database(conn)
        if found != self.seen:
            self._read(conn, _rowid > self.seen[2])
            if self._in_memory() != found[:2]:
                self._compare(conn)
            self.seen = found
            self.version += 1
            self._warn(found[0])
        notes[key] = counters, self.version

    def _in_database(self, conn: sa.Connection) -> tuple[int, int, int]:
        v = vectors.c
        row = conn.execute(
            sa.select(sa.func.count(), sa.func.sum(v.chunk_id), sa.func.max(_rowid)).where(
                v.model_id == self.model.id
            )
        ).one()
        return row[0], row[1] or 0, row[2] or 0

    def _in_memory(self) -> tuple[int, int]:
        held = [rows.view()[0] for rows in self.tenants.values()]
        return sum(map(len, held)), sum(int(ids.sum()) for ids in held)

    def _read(self, conn: sa.Connection, which: sa.ColumnElement[bool], **given: Any) -> None:
        v = vectors.c
        whose = _only_tenant(conn)
        # The plus keeps SQLite from reading the whole model by its key for the last few rows.
        mine = sa.literal_column("+vectors.model_id") == self.model.id
        # Rows of `chunks` are wide: they are read only where tenants have to be told apart.
        query = (
            sa.select(v.chunk_id, v.vector)
            if whose is not None
            else sa.select(v.chunk_id, v.vector, chunks.c.tenant).join(
                chunks, chunks.c.id == v.chunk_id
            )
        )
        for batch in conn.execute(query.where(mine, which), given).partitions(_BATCH):
            ids, blobs, *rest = zip(*batch, strict=True)
            self._add(ids, blobs, rest[0] if rest else None, whose)

    def _add(
        self,
        ids: Sequence[int],
        blobs: Sequence[bytes],
        tenants: Sequence[str] | None,
        whose: str | None,
    ) -> None:
        import numpy as np

        numbers = np.array(ids, np.int64)
        flat = np.frombuffer(b"".join(blobs), np.float32)
        matrix = _normal(flat.reshape(len(ids), self.model.dimensions))
        if tenants is None:
            self._rows(whose or "").append(numbers, matrix)
            return
        for tenant in set(tenants):
            mine = np.array([each == tenant for each in tenants])
            self._rows(tenant).append(numbers[mine], matrix[mine])

    def _rows(self, tenant: str) -> VectorRows:
        return self.tenants.setdefault(tenant, VectorRows(self.model.dimensions))

    def _compare(self, conn: sa.Connection) -> None:
        """Drop what was deleted, and read what got the row of a deleted one."""
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
    """Return what changes with every commit: of others, and of this connection itself."""
    driver: Any = conn.connection.driver_connection
    others: int = conn.exec_driver_sql("PRAGMA data_version").scalar_one()
    return others, driver.total_changes


def _only_tenant(conn: sa.Connection) -> str | None:
    """Return the tenant that all chunks belong to, or None where there are more."""
    first = sa.select(sa.func.min(chunks.c.tenant)).scalar_subquery()
    last = sa.select(sa.func.max(chunks.c.tenant)).scalar_subquery()
    names: tuple[str | None, str | None] = tuple(conn.execute(sa.select(first, last)).one())
    return names[0] if names[0] == names[1] else None


def _cosines(matrix: "Matrix", point: "Matrix") -> "Matrix":
    import numpy as np

    # Row by row it runs in one thread. A product of matrices starts one on each core, and on a
    # busy machine these wait for each other.
    found: Matrix = np.vecdot(matrix, point)
    return found


def _normal(matrix: "Matrix") -> "Matrix":
    import numpy as np

    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Matrix = matrix / np.maximum(length, np.finfo(np.float32).tiny)
    return scaled


def _batches(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH))
