"""The vectors of chunks: which models there are, and which vectors are nearest to a query.

A model is a name with a number of dimensions; both are fixed once it is known. PostgreSQL has a
graph per model (see `vector_index`), SQLite compares with every vector (see `vector_scan`). Cosine
on both.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Refused
from quire.model.search import IndexHits, Model
from quire.store.db import dialect
from quire.store.db.schema.documents import models, vectors
from quire.store.search import exact_scan, hnsw
from quire.store.search.chunk_filter import KEEP_JOIN_ORDER, ChunkFilter, SqlType

#: Entries that an index search keeps in sight; more finds more of the true neighbours.
EF_SEARCH = 800
_MAX_EF_SEARCH = 1_000  # that pgvector allows
_USE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{}'"
_background_slots = threading.BoundedSemaphore(3)

Ranked = list[tuple[int, float]]

_NAMED = sa.select(models).where(models.c.name == sa.bindparam("model"))


def register(conn: sa.Connection, name: str, dimensions: int) -> int:
    """Return the id of a model, which is made known and given its index if need be."""
    row = conn.execute(_NAMED, {"model": name}).one_or_none()
    if row is None:
        dialect.upsert(conn, models, {"name": name, "dimensions": dimensions}, ["name"], [])
        row = conn.execute(_NAMED, {"model": name}).one()
    model = Model(*row)
    if model.dimensions != dimensions:
        raise Refused(
            f"embedder {name}: it has {model.dimensions} dimensions here (got {dimensions}). "
            "Vectors of both cannot be compared; give the other model a name of its own."
        )
    if not dialect.is_sqlite(conn):
        hnsw.create_index(conn, model)
    return model.id


def dimensions_of(conn: sa.Connection, name: str) -> int:
    """Return the dimensions of a model, or 0 where nothing is known of it."""
    row = conn.execute(_NAMED, {"model": name}).one_or_none()
    return 0 if row is None else Model(*row).dimensions


def list_models(conn: sa.Connection) -> list[Model]:
    """List the models."""
    return [Model(*row) for row in conn.execute(sa.select(models).order_by(models.c.id))]


def nearest(
    conn: sa.Connection,
    tenant: str,
    model: Model,
    query: bytes,
    limit: int,
    among: ChunkFilter | None = None,
) -> IndexHits:
    """Find the chunks nearest to a query, scored by their cosine; `among` selects ids.

    Without `among`, chunks that are not live or belong to another tenant may be listed too.
    """
    return searcher(conn, tenant, model, query).nearest(limit, among)


def searcher(
    conn: sa.Connection, tenant: str, model: Model, query: bytes
) -> "HnswSearch | ExactSearch":
    """Prepare to look for the nearest chunks several times in one transaction."""
    if dialect.is_sqlite(conn):
        return ExactSearch(exact_scan.Scan(conn, tenant, model, query))
    return HnswSearch(conn, model, query)


class ExactSearch:
    """Compares a query with every vector."""

    def __init__(self, scan: exact_scan.Scan) -> None:
        self._scan = scan

    def begin(self, limit: int, among: ChunkFilter | None = None) -> None:
        """Let vectors be compared while the caller does something else."""
        self._scan.begin()

    def nearest(self, limit: int, among: ChunkFilter | None = None) -> IndexHits:
        """Find the nearest chunks; see `nearest`."""
        ranked = self._scan.nearest(limit, among)
        return IndexHits(ranked, len(ranked) < limit)


class _Begun(NamedTuple):
    """What another session looks for meanwhile."""

    limit: int
    among: ChunkFilter | None
    found: Future[Ranked]


class HnswSearch:
    """Walks along PostgreSQL's graph, or compares with every vector that counts."""

    def __init__(self, conn: sa.Connection, model: Model, query: bytes) -> None:
        self._conn, self._model, self._query = conn, model, query
        self._begun: _Begun | None = None

    def begin(self, limit: int, among: ChunkFilter | None = None) -> None:
        """Let a session of its own look in the same snapshot while the caller does other things."""
        # A few at once: each caller holds a connection, and one has to be left for those who wait.
        if not _background_slots.acquire(blocking=False):
            return
        try:
            found = self._submit(limit, among)
        except BaseException:
            _background_slots.release()
            raise
        found.add_done_callback(lambda _: _background_slots.release())
        self._begun = _Begun(limit, among, found)

    def _submit(self, limit: int, among: ChunkFilter | None) -> Future[Ranked]:
        snapshot = self._conn.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one()
        # A thread for each search: a pool that waits would not outlive a fork.
        pool = ThreadPoolExecutor(1, "vectors")
        try:
            return pool.submit(self._ahead, self._conn.engine, snapshot, limit, among)
        finally:
            pool.shutdown(wait=False)

    def nearest(self, limit: int, among: ChunkFilter | None = None) -> IndexHits:
        """Find the nearest chunks; see `nearest`."""
        # The index may give up before it has seen all: a short list of it need not be all.
        is_all = among is not None
        begun = self._begun
        if begun is not None and begun.among is among and begun.limit >= limit:
            try:
                return IndexHits(begun.found.result()[:limit], is_all)
            except sa.exc.SQLAlchemyError:
                self._begun = None  # its connection was cut; this one may hold
        return IndexHits(self._asked(self._conn, limit, among), is_all)

    def _ahead(
        self, engine: sa.Engine, snapshot: str, limit: int, among: ChunkFilter | None
    ) -> Ranked:
        with engine.connect() as conn, conn.begin():
            conn.exec_driver_sql(_USE_SNAPSHOT.format(snapshot))
            return self._asked(conn, limit, among)

    def _asked(self, conn: sa.Connection, limit: int, among: ChunkFilter | None) -> Ranked:
        _set_search_parameters(conn, limit)
        model = self._model
        statement = _exact(model, among) if among or _is_wide(model) else _nearest(model)
        given = {"query": self._query, "limit": limit} | (among.given if among else {})
        return [(row[0], 1.0 - row[1]) for row in conn.execute(statement, given)]


def exact_cosines(conn: sa.Connection, model: Model, query: bytes, limit: int) -> list[float]:
    """Return the cosines of the vectors nearest to a query, each of a model's compared with it."""
    dialect.lift_timeouts(conn)
    found = conn.execute(_exact(model, None), {"query": query, "limit": limit})
    return [1.0 - row.distance for row in found]


def _set_search_parameters(conn: sa.Connection, limit: int) -> None:
    chosen = {
        "hnsw.ef_search": str(min(max(limit, EF_SEARCH), _MAX_EF_SEARCH)),
        "hnsw.iterative_scan": "relaxed_order",
        # The planner does not know what it costs to compare vectors. And of entries that are over
        # in the index of fresh ones only a plain scan takes note, so that the next passes them by.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        **KEEP_JOIN_ORDER,
    }
    dialect.set_local(conn, chosen)


def _is_wide(model: Model) -> bool:
    return model.dimensions > hnsw.MAX_DIMENSIONS


def _nearest(model: Model) -> sa.Select[Any]:
    """Select the nearest of the graph and of the fresh vectors, by their full precision."""
    v = vectors.c
    wanted = sa.bindparam("query", type_=v.vector.type)
    half = f"halfvec({model.dimensions})"
    mine = _mine(model)
    limit: sa.BindParameter[int] = sa.bindparam("limit", type_=sa.Integer)
    is_fresh: sa.ColumnElement[bool] = sa.literal_column("vectors.is_fresh", sa.Boolean)
    near = (
        sa.select(v.chunk_id, v.vector)
        .where(mine, sa.not_(is_fresh))
        # Cast twice: a parameter is of the type that its first cast says, everywhere.
        .order_by(_as(v.vector, half).op("<=>")(_as(_as(wanted, "vector"), half)))
        .limit(limit)
        .subquery("near")
    )
    fresh = sa.select(v.chunk_id, _distance(v.vector)).where(mine, is_fresh)
    both = sa.union_all(
        sa.select(near.c.chunk_id, _distance(near.c.vector)),
        sa.select(fresh.order_by(sa.text("distance")).limit(limit).subquery("fresh")),
    ).subquery("both")
    return sa.select(both).order_by(both.c.distance, both.c.chunk_id).limit(limit)


def _exact(model: Model, among: ChunkFilter | None) -> sa.Select[Any]:
    """Select the nearest of those that count, or of all, each compared with the query."""
    v = vectors.c
    # A sum is not what is indexed. A walk along the graph would pass most of it by to find these.
    distance = _distance(v.vector)
    statement = sa.select(v.chunk_id, distance).where(_mine(model))
    if among is not None:
        statement = statement.where(among.has(v.chunk_id))
    return statement.order_by(distance + 0.0, v.chunk_id).limit(sa.bindparam("limit"))


def _mine(model: Model) -> sa.ColumnElement[bool]:
    # A literal: the index is partial, and the planner has to see that its condition holds.
    return vectors.c.model_id == sa.literal_column(str(model.id))


def _distance(value: sa.ColumnElement[Any]) -> sa.Label[float]:
    wanted = sa.bindparam("query", type_=vectors.c.vector.type)
    return sa.type_coerce(value.op("<=>")(_as(wanted, "vector")), sa.Double).label("distance")


def _as(value: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
    return sa.cast(value, SqlType(kind))
