"""PostgreSQL's graphs of vectors (HNSW), one for each model, filled behind the commits.

To find a vector's place in the graph takes longer than all else that is written for its chunk. So
vectors are written *fresh*: searches compare each of these with the query, and the scheduler puts
them into the graph, a few in each transaction. A vector is in sight from its commit on, either way.
"""

import time
from typing import Any

import sqlalchemy as sa

from quire.model.search import Model
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.schema.documents import models

#: pgvector indexes up to so many dimensions, at half precision.
MAX_DIMENSIONS = 4_000
#: Vectors that one transaction puts into a graph: some milliseconds each, and locks are held.
BATCH_VECTORS = 64
#: Seconds of one round; what is left waits for the next.
ROUND_SECONDS = 2.0

VectorKey = tuple[int, int]
_FIRST_KEY: VectorKey = (0, 0)
_INDEX_BATCH = """
WITH chosen AS MATERIALIZED (
    SELECT model_id, chunk_id FROM vectors WHERE is_fresh AND (model_id, chunk_id) > (%s, %s)
    ORDER BY model_id, chunk_id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE vectors SET is_fresh = false FROM chosen
WHERE vectors.model_id = chosen.model_id AND vectors.chunk_id = chosen.chunk_id
RETURNING vectors.model_id, vectors.chunk_id
"""


def prepare(conn: sa.Connection) -> None:
    """Let vectors be written apart from their graphs; graphs that hold all are made anew."""
    if dialect.is_sqlite(conn):
        return
    dialect.lift_timeouts(conn, "0")
    # Those that are there already are in the graph, which is built over all of them at once.
    conn.exec_driver_sql(
        "ALTER TABLE vectors ADD COLUMN IF NOT EXISTS is_fresh boolean NOT NULL DEFAULT false"
    )
    conn.exec_driver_sql("ALTER TABLE vectors ALTER COLUMN is_fresh SET DEFAULT true")
    conn.exec_driver_sql(
        "CREATE INDEX IF NOT EXISTS ix_vectors_fresh ON vectors (model_id, chunk_id) WHERE is_fresh"
    )
    for row in conn.execute(sa.select(models).order_by(models.c.id)).all():
        conn.exec_driver_sql(f"DROP INDEX IF EXISTS {index_name(row.id)}")
        create_index(conn, Model(*row))


def create_index(conn: sa.Connection, model: Model) -> None:
    """Create the graph of a model, unless it is there."""
    # Asked first: CREATE INDEX IF NOT EXISTS keeps writers out even where the index is there.
    made = conn.exec_driver_sql("SELECT to_regclass(%s)", (index_name(model.id),)).scalar_one()
    if made is not None or model.dimensions > MAX_DIMENSIONS:
        return
    # Half of the precision halves the memory that a search has to pass through.
    conn.exec_driver_sql(
        f"CREATE INDEX IF NOT EXISTS {index_name(model.id)} ON vectors USING hnsw "
        f"((CAST(vector AS halfvec({model.dimensions}))) halfvec_cosine_ops) "
        f"WITH (m = 16, ef_construction = 400) WHERE model_id = {model.id} AND NOT is_fresh"
    )


def index_name(model_id: int) -> str:
    return f"ix_vectors_model_{model_id}"


class HnswIndexer:
    """Puts fresh vectors into their graphs; several may do so at once."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.has_more = False  # the last round ended before the vectors did
        # Continue after the last key: a rescan would pass its dead index entries again.
        self._last = _FIRST_KEY

    def round(self, patience: float = ROUND_SECONDS) -> int:
        """Settle vectors for some seconds; returns how many."""
        self.has_more = False
        if self.db.path is not None:
            return 0
        end = time.monotonic() + patience
        count = 0
        while found := self._batch():
            count += found
            if time.monotonic() > end:
                break
        self.has_more = found > 0
        return count

    def _batch(self) -> int:
        found = self.db.write(lambda conn, now: index_fresh(conn, after=self._last))
        if not found and self._last != _FIRST_KEY:
            # Others have been written before that place: chunks that were there got vectors.
            self._last = _FIRST_KEY
            found = self.db.write(lambda conn, now: index_fresh(conn))
        self._last = max(found, default=_FIRST_KEY)
        return len(found)


def index_fresh(
    conn: sa.Connection, *, after: VectorKey = _FIRST_KEY, limit: int = BATCH_VECTORS
) -> list[Any]:
    """Put some fresh vectors behind a place into their graphs; returns (model, chunk) of each."""
    return [tuple(row) for row in conn.exec_driver_sql(_INDEX_BATCH, (*after, limit))]
