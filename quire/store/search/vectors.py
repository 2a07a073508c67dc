"""Embedding models and nearest-neighbour search by cosine similarity.

A model is a name with a fixed number of dimensions. PostgreSQL has an HNSW index per model (see
`hnsw`), SQLite compares all vectors (see `exact_scan`).
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

#: `hnsw.ef_search`, the size of the candidate list: more gives better recall.
EF_SEARCH = 800
_MAX_EF_SEARCH = 1_000  # pgvector's limit
_USE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{}'"
_background_slots = threading.BoundedSemaphore(3)

Ranked = list[tuple[int, float]]

_NAMED = sa.select(models).where(models.c.name == sa.bindparam("model"))


def register(conn: sa.Connection, name: str, dimensions: int) -> int:
    """Return the id of a model; registers it and creates its index if necessary."""
    row = conn.execute(_NAMED, {"model": name}).one_or_none()
    if row is None:
        dialect.upsert(conn, models, {"name": name, "dimensions": dimensions}, ["name"], [])
        row = conn.execute(_NAMED, {"model": name}).one()
    model = Model(*row)
    if model.dimensions != dimensions:
        raise Refused(
            f"embedder {name}: dimensions differ from the stored model (expected "
            f"{model.dimensions}, got {dimensions}). Use another name for the other model."
        )
    if not dialect.is_sqlite(conn):
        hnsw.create_index(conn, model)
    return model.id


def dimensions_of(conn: sa.Connection, name: str) -> int:
    """Return the dimensions of a model, or 0 if it is unknown."""
    row = conn.execute(_NAMED, {"model": name}).one_or_none()
    return 0 if row is None else Model(*row).dimensions


def list_models(conn: sa.Connection) -> list[Model]:
    """List the models."""
    return [Model(*row) for row in conn.execute(sa.select(models).order_by(models.c.id))]


def searcher(
    conn: sa.Connection, tenant: str, model: Model, query: bytes
) -> "HnswSearch | exact_scan.Scan":
    """Return a searcher for several searches in one transaction."""
    if dialect.is_sqlite(conn):
        return exact_scan.Scan(conn, tenant, model, query)
    return HnswSearch(conn, model, query)


class _BackgroundSearch(NamedTuple):
    """A search running in another session."""

    limit: int
    within: ChunkFilter | None
    found: Future[Ranked]


class HnswSearch:
    """Searches the HNSW index, or compares every vector of a filter."""

    def __init__(self, conn: sa.Connection, model: Model, query: bytes) -> None:
        self._conn, self._model, self._query = conn, model, query
        self._background: _BackgroundSearch | None = None

    def begin(self, limit: int, within: ChunkFilter | None = None) -> None:
        """Start the search in another session with the same snapshot."""
        # Limited: each caller already holds a connection, and the pool must not run empty.
        if not _background_slots.acquire(blocking=False):
            return
        try:
            found = self._submit(limit, within)
        except BaseException:
            _background_slots.release()
            raise
        found.add_done_callback(lambda _: _background_slots.release())
        self._background = _BackgroundSearch(limit, within, found)

    def _submit(self, limit: int, within: ChunkFilter | None) -> Future[Ranked]:
        snapshot = self._conn.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one()
        engine = self._conn.engine

        def run() -> Ranked:
            with engine.connect() as conn, conn.begin():
                conn.exec_driver_sql(_USE_SNAPSHOT.format(snapshot))
                return self._run(conn, limit, within)

        # A new pool per search: an idle pool's threads would not survive a fork.
        pool = ThreadPoolExecutor(1, "vectors")
        try:
            return pool.submit(run)
        finally:
            pool.shutdown(wait=False)

    def nearest(self, limit: int, within: ChunkFilter | None = None) -> IndexHits:
        """Find the chunks nearest to the query, scored by cosine; `within` restricts them.

        Without `within`, the result may contain chunks that are not live or of another tenant.
        """
        # HNSW is approximate: a short result need not be complete.
        is_complete = within is not None
        running = self._background
        if running is not None and running.within is within and running.limit >= limit:
            try:
                return IndexHits(running.found.result()[:limit], is_complete)
            except sa.exc.SQLAlchemyError:
                self._background = None  # its connection was lost; retry on this one
        return IndexHits(self._run(self._conn, limit, within), is_complete)

    def _run(self, conn: sa.Connection, limit: int, within: ChunkFilter | None) -> Ranked:
        _set_search_parameters(conn, limit)
        model = self._model
        has_index = model.dimensions <= hnsw.MAX_DIMENSIONS
        statement = _nearest(model) if has_index and not within else _exact(conn, model, within)
        given = {"query": self._query, "limit": limit} | (within.given if within else {})
        return [(chunk, 1.0 - distance) for chunk, distance in conn.execute(statement, given)]


def _set_search_parameters(conn: sa.Connection, limit: int) -> None:
    chosen = {
        "hnsw.ef_search": str(min(max(limit, EF_SEARCH), _MAX_EF_SEARCH)),
        "hnsw.iterative_scan": "relaxed_order",
        # The planner underestimates the cost of comparing vectors. And only a plain index scan
        # marks dead entries of the fresh index, so that the next scan skips them.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        **KEEP_JOIN_ORDER,
    }
    dialect.set_local(conn, chosen)


def _nearest(model: Model) -> sa.Select[Any]:
    """Select the nearest indexed and fresh vectors, ordered by full-precision distance."""
    v = vectors.c
    wanted = sa.bindparam("query", type_=v.vector.type)
    half = f"halfvec({model.dimensions})"
    mine = _of_model(model)
    limit: sa.BindParameter[int] = sa.bindparam("limit", type_=sa.Integer)
    is_fresh: sa.ColumnElement[bool] = sa.literal_column("vectors.is_fresh", sa.Boolean)
    near = (
        sa.select(v.chunk_id, v.vector)
        .where(mine, sa.not_(is_fresh))
        # Cast twice: the first cast fixes the parameter's type in the whole statement.
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


def _exact(conn: sa.Connection, model: Model, within: ChunkFilter | None) -> sa.Select[Any]:
    """Select the nearest of the allowed vectors, or of all, by an exact scan."""
    v = vectors.c
    # `+ 0.0` keeps the planner off the HNSW index, which would discard most of what it finds.
    distance = _distance(v.vector)
    statement = sa.select(v.chunk_id, distance).where(_of_model(model))
    if within is not None:
        statement = statement.where(within.has(conn, v.chunk_id))
    return statement.order_by(distance + 0.0, v.chunk_id).limit(sa.bindparam("limit"))


def _of_model(model: Model) -> sa.ColumnElement[bool]:
    # A literal: the planner must see that the condition of the partial index holds.
    return vectors.c.model_id == sa.literal_column(str(model.id))


def _distance(value: sa.ColumnElement[Any]) -> sa.Label[float]:
    wanted = sa.bindparam("query", type_=vectors.c.vector.type)
    return sa.type_coerce(value.op("<=>")(_as(wanted, "vector")), sa.Double).label("distance")


def _as(value: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
    return sa.cast(value, SqlType(kind))
