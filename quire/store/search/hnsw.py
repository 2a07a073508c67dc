"""HNSW indexes of pgvector, one per model, filled asynchronously.

Inserting a vector into the HNSW graph takes longer than everything else written for its chunk. So
vectors are inserted as *fresh* rows outside the index: searches compare every fresh vector, and
the scheduler adds them to the index in small batches. A vector is searchable from its commit on.
"""

import time
from typing import Any

import sqlalchemy as sa

from quire.model.search import Model
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.schema.documents import models

#: pgvector's limit for half-precision indexes.
MAX_DIMENSIONS = 4_000
#: Vectors added per transaction: each takes some milliseconds, and row locks are held.
BATCH_VECTORS = 64
#: Time limit of one round; the rest waits for the next.
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


def separate_fresh(conn: sa.Connection) -> None:
    """Add the `is_fresh` column and rebuild the indexes without fresh rows."""
    if dialect.is_sqlite(conn):
        return
    dialect.lift_timeouts(conn, "0")
    # Existing vectors are indexed: building over all rows at once is faster.
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
    """Create the HNSW index of a model if it is missing."""
    # Check first: CREATE INDEX IF NOT EXISTS locks out writers even if the index exists.
    made = conn.exec_driver_sql("SELECT to_regclass(%s)", (index_name(model.id),)).scalar_one()
    if made is not None or model.dimensions > MAX_DIMENSIONS:
        return
    # Half precision halves the memory that a search reads.
    conn.exec_driver_sql(
        f"CREATE INDEX IF NOT EXISTS {index_name(model.id)} ON vectors USING hnsw "
        f"((CAST(vector AS halfvec({model.dimensions}))) halfvec_cosine_ops) "
        f"WITH (m = 16, ef_construction = 400) WHERE model_id = {model.id} AND NOT is_fresh"
    )


def index_name(model_id: int) -> str:
    return f"ix_vectors_model_{model_id}"


class HnswIndexer:
    """Adds fresh vectors to their indexes; several processes may run it concurrently."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.has_more = False  # the last round ran out of time
        # Continue after the last key: a rescan would pass its dead index entries again.
        self._last = _FIRST_KEY

    def round(self, seconds: float = ROUND_SECONDS) -> int:
        """Index fresh vectors for some seconds; returns how many."""
        self.has_more = False
        if self.db.path is not None:
            return 0
        end = time.monotonic() + seconds
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
            # Existing chunks may have got vectors before that key: start over.
            self._last = _FIRST_KEY
            found = self.db.write(lambda conn, now: index_fresh(conn))
        self._last = max(found, default=_FIRST_KEY)
        return len(found)


def index_fresh(
    conn: sa.Connection, *, after: VectorKey = _FIRST_KEY, limit: int = BATCH_VECTORS
) -> list[Any]:
    """Index a batch of fresh vectors after a key; returns (model, chunk) of each."""
    return [tuple(row) for row in conn.exec_driver_sql(_INDEX_BATCH, (*after, limit))]
