"""What the end of a task means for its document, where no handler is there to say it.

A task that was given up, or cancelled, ends its document's generation. What was live stays live.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import DOCUMENT_LOCKED, DocumentState, GenerationState
from quire.store.db import dialect
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import is_state

d, g = documents.c, generations.c
_ROW = {"id": "int", "generation": "int", "error": "text"}


def record(conn: sa.Connection, rows: Sequence[Any], *, now: Instant) -> None:
    """Fail the documents of tasks that ended badly (id, document_id, generation, from_page, error).

    A page range is left out: the document's last task sees what is missing and decides.
    """
    some = [
        (row.document_id, row.generation, row.error)
        for row in rows
        if row.document_id is not None and row.from_page is None
    ]
    fail(conn, some, now=now)


def fail(
    conn: sa.Connection, some: Sequence[tuple[int, int, str | None]], *, now: Instant
) -> list[int]:
    """End generations as failed, with the reason; returns the documents that were at work on it."""
    if not some:
        return []
    told = sorted((i, n, dialect.sanitize_text(why or "no reason was given")) for i, n, why in some)
    values = {"fallen": dialect.encode_rows(told), "wall": now.wall}
    dialect.lock_rows(conn, documents, sorted({each[0] for each in some}))
    f = dialect.json_rows(conn, "fallen", _ROW)
    wall = sa.bindparam("wall", type_=sa.Double)
    conn.execute(
        sa.update(generations)
        .where(
            g.document_id == f.c.id,
            g.generation == f.c.generation,
            is_state(g.state, GenerationState.BUILDING),
        )
        .values(state=GenerationState.FAILED.value, error=f.c.error, finished_at=wall),
        values,
    )
    f = dialect.json_rows(conn, "fallen", _ROW)
    changed = conn.scalars(
        sa.update(documents)
        .where(d.id == f.c.id, d.generation == f.c.generation, is_state(d.state, *DOCUMENT_LOCKED))
        .values(state=DocumentState.FAILED.value, error=f.c.error, processing_finished_at=wall)
        .returning(d.id),
        values,
    )
    return list(changed)


def drop(conn: sa.Connection, job_ids: Sequence[int], *, now: Instant) -> None:
    """End the generations that cancelled jobs were building: documents are as they were before."""
    building = sa.and_(g.job_id.in_(sorted(job_ids)), is_state(g.state, GenerationState.BUILDING))
    # The document before its generations, as everywhere else.
    dialect.lock_rows(
        conn, documents, sorted(set(conn.scalars(sa.select(g.document_id).where(building))))
    )
    dropped = conn.execute(
        sa.update(generations)
        .where(building)
        .values(state=GenerationState.DROPPED.value, error="cancelled", finished_at=now.wall)
        .returning(g.document_id, g.generation)
    ).all()
    if not dropped:
        return
    f = dialect.json_rows(conn, "fallen", {"id": "int", "generation": "int"})
    conn.execute(
        sa.update(documents)
        .where(d.id == f.c.id, d.generation == f.c.generation, is_state(d.state, *DOCUMENT_LOCKED))
        .values(
            state=sa.case(
                (d.live_generation.is_(None), DocumentState.NOT_INDEXED.value),
                else_=DocumentState.SUCCESS.value,
            ),
            # What the source said belongs to bytes that were not taken in.
            seen=None,
            processing_finished_at=now.wall,
        ),
        {"fallen": dialect.encode_rows(sorted(tuple(row) for row in dropped))},
    )
