"""The vectors of chunks: which models there are, and which vectors are nearest to a query.

A model is a name with a number of dimensions; both are fixed once it is known. PostgreSQL has an
index per model, SQLite compares with every vector (see `vector_scan`). Cosine on both.
"""

from typing import Any

import sqlalchemy as sa

from quire.errors import Refused
from quire.model.search import Found, Model
from quire.store import dialect, vector_scan
from quire.store.among import Among
from quire.store.document_tables import models, vectors

#: pgvector indexes up to so many dimensions in full, and up to so many at half precision.
_FULL, _HALF = 2_000, 4_000
#: Entries that an index search keeps in sight; more finds more of the true neighbours.
_SIGHT = 200


_NAMED = sa.select(models).where(models.c.name == sa.bindparam("model"))


def register(conn: sa.Connection, name: str, dimensions: int) -> int:
    """Return the id of a model, which is made known and given its index if need be."""
    row = conn.execute(_NAMED, {"model": name}).one_or_none()
    if row is None:
        dialect.upsert(conn, models, {"name": name, "dimensions": dimensions}, ["name"], [])
        row = conn.execute(_NAMED, {"model": name}).one()
    known = Model(*row)
    if known.dimensions != dimensions:
        raise Refused(
            f"embedder {name}: it has {known.dimensions} dimensions here (got {dimensions}). "
            "Vectors of both cannot be compared; give the other model a name of its own."
        )
    if not dialect.is_sqlite(conn):
        create_index(conn, known)
    return known.id


def known(conn: sa.Connection) -> list[Model]:
    """List the models."""
    return [Model(*row) for row in conn.execute(sa.select(models).order_by(models.c.id))]


def scan(conn: sa.Connection, tenant: str, model: Model, query: bytes) -> vector_scan.Scan | None:
    """Prepare a comparison for several calls of `nearest`; None where an index is asked."""
    return vector_scan.Scan(conn, tenant, model, query) if dialect.is_sqlite(conn) else None


def nearest(
    conn: sa.Connection,
    tenant: str,
    model: Model,
    query: bytes,
    limit: int,
    among: Among | None = None,
    prepared: vector_scan.Scan | None = None,
) -> Found:
    """Find the chunks nearest to a query, scored by their cosine; `among` selects ids.

    Without `among`, chunks that are not live or belong to another tenant may be listed too.
    `prepared` is what `scan` gave for the same query in the same transaction.
    """
    scanning = prepared or scan(conn, tenant, model, query)
    if scanning is not None:
        ranked = scanning.nearest(limit, among)
        return Found(ranked, len(ranked) < limit)
    conn.exec_driver_sql(f"SET LOCAL hnsw.ef_search = {min(max(limit, _SIGHT), 1_000)}")
    conn.exec_driver_sql("SET LOCAL hnsw.iterative_scan = strict_order")
    found = conn.execute(
        _nearest(model, among), {"query": query, "limit": limit} | (among.given if among else {})
    )
    ranked = [(row[0], 1.0 - row[1]) for row in found]
    # The index may give up before it has seen all, so a short list does not say that it is all.
    return Found(ranked, among is not None)


def _nearest(model: Model, among: Among | None) -> sa.Select[Any]:
    v = vectors.c
    wanted = sa.bindparam("query", type_=v.vector.type)
    kind = _kind(model.dimensions)
    distance = sa.type_coerce(_as(v.vector, kind).op("<=>")(_as(wanted, kind)), sa.Double).label(
        "distance"
    )
    # A literal: the index is partial, and the planner has to see that its condition holds.
    mine = v.model_id == sa.literal_column(str(model.id))
    statement = sa.select(v.chunk_id, distance).where(mine).limit(sa.bindparam("limit"))
    if among is None:
        return statement.order_by(distance)
    # A sum is not what is indexed. A walk along the index would pass most of it by to find these.
    return statement.where(v.chunk_id.in_(among.select)).order_by(distance + 0.0, v.chunk_id)


def _as(value: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
    return sa.cast(value, _Named(kind))


class _Named(sa.types.UserDefinedType[Any]):
    """A type by its name in SQL."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Name it."""
        return self.name


def _kind(dimensions: int) -> str:
    return f"{'vector' if dimensions <= _FULL else 'halfvec'}({dimensions})"


def create_index(conn: sa.Connection, model: Model) -> None:
    """Create PostgreSQL's index for the vectors of a model, unless it is there."""
    name = f"ix_vectors_model_{model.id}"
    # Asked first: CREATE INDEX IF NOT EXISTS keeps writers out even where the index is there.
    made = conn.exec_driver_sql("SELECT to_regclass(%s)", (name,)).scalar_one()
    if made is not None or model.dimensions > _HALF:
        return
    kind = _kind(model.dimensions)
    conn.exec_driver_sql(
        f"CREATE INDEX IF NOT EXISTS {name} ON vectors USING hnsw "
        f"((CAST(vector AS {kind})) {kind.split('(')[0]}_cosine_ops) WHERE model_id = {model.id}"
    )
