"""Ends generations whose task failed, was lost or was cancelled. What was live stays live."""

from collections.abc import Sequence

import sqlalchemy as sa

from quire.clock import Instant
from quire.store.db import dialect
from quire.store.db.engine import TransactionConflict
from quire.store.db.schema.documents import documents, generations
from quire.store.documents.transition import move_documents, move_generations
from quire.store.queue import job_transition

d, g = documents.c, generations.c


def fail(
    conn: sa.Connection, failed: Sequence[tuple[int, int, str | None]], *, now: Instant
) -> list[int]:
    """Fail generations (document id, generation, reason); return the documents that failed.

    A document does not fail if it has a newer generation.
    """
    if not failed:
        return []
    rows = sorted(
        (i, n, dialect.sanitize_text(why or "no reason was given")) for i, n, why in failed
    )
    values = {"failed": dialect.encode_rows(rows), "wall": now.wall}
    _lock(conn, {i for i, _, _ in failed})
    wall = sa.bindparam("wall", type_=sa.Double)
    f = dialect.json_rows(conn, "failed", {"id": "int", "generation": "int", "error": "text"}).c
    is_mine = (g.document_id == f.id, g.generation == f.generation)
    conn.execute(move_generations("fail", *is_mine, error=f.error, finished_at=wall), values)
    is_newest = (d.id == f.id, d.generation == f.generation)
    changed = move_documents("fail", *is_newest, error=f.error, processing_finished_at=wall)
    return list(conn.scalars(changed.returning(d.id), values))


def drop(conn: sa.Connection, cancelled: Sequence[tuple[int, int]], *, now: Instant) -> None:
    """Drop generations (document id, generation) of cancelled jobs; documents are as before."""
    if not cancelled:
        return
    rows = sorted(set(cancelled))
    _lock(conn, {document_id for document_id, _ in rows})
    values = {"dropped": dialect.encode_rows(rows)}
    f = _dropped(conn)
    conn.execute(
        move_generations(
            "drop",
            g.document_id == f.c.id,
            g.generation == f.c.generation,
            error="cancelled",
            finished_at=now.wall,
        ),
        values,
    )
    has_none = d.live_generation.is_(None)
    for move, applies in (("drop", has_none), ("restore", sa.not_(has_none))):
        f = _dropped(conn)
        conn.execute(
            move_documents(
                move,
                d.id == f.c.id,
                d.generation == f.c.generation,
                applies,
                seen=None,  # the source described bytes that were not indexed
                processing_finished_at=now.wall,
            ),
            values,
        )


def _lock(conn: sa.Connection, ids: set[int]) -> None:
    """Lock documents before their generations; once a job is locked, without waiting for them."""
    if not job_transition.holds_jobs(conn):
        dialect.lock_rows(conn, documents, sorted(ids))
    elif not dialect.has_locked(conn, documents, sorted(ids)):
        raise TransactionConflict("database: a document of the job is being written")


def _dropped(conn: sa.Connection) -> sa.CTE:
    return dialect.json_rows(conn, "dropped", {"id": "int", "generation": "int"})
