"""Re-indexing of one document: adds a generation and ends the tasks of the older one.

The fence of an ended task is raised in the same transaction, so that a worker that still runs it
can write nothing. The live generation stays visible until the new one is swapped in.
"""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.outcomes import Settlement
from quire.model.records import About, Owner
from quire.model.states import TASK_FINAL, TASK_OPEN, DocumentState, TaskState
from quire.store.db import dialect
from quire.store.db.engine import TransactionConflict
from quire.store.db.schema.documents import (
    contents,
    corpus_documents,
    documents,
    generation_pages,
    generations,
    pages,
)
from quire.store.db.schema.queue import is_state, kinds, tasks
from quire.store.documents import admission, corpora
from quire.store.documents.transition import move_documents
from quire.store.queue.transition import Transition

d, t = documents.c, tasks.c
WHY = "a newer version of the document is being indexed"


def enqueue(
    conn: sa.Connection,
    owner: Owner,
    job_id: int,
    row: Any,
    settings: str,
    overrides: str,
    *,
    now: Instant,
) -> int:
    """Turn the only task of a job into the task of a new generation; return the generation.

    The caller has read the row after `lock`.
    """
    overtake(conn, row.id, now=now)
    conn.execute(sa.update(documents).where(d.id == row.id).values(settings=overrides))
    request = admission.AdmissionRequest(
        owner, job_id, row.source, settings, tuple(corpora.of_document(conn, row.id)), True
    )
    file = admission.ListedFile(row.uri, row.name, row.seen or "", row.folder, row.parent_id)
    [admitted] = admission.admit(conn, request, [file], now=now)
    about = About.whole(row.id, admitted.generation)
    attempts_of_kind = sa.select(kinds.c.max_attempts).where(kinds.c.name == "ingest.document")
    conn.execute(
        sa.update(tasks)
        .where(t.job_id == job_id)
        .values(
            kind="ingest.document",
            payload=json.dumps({"document": row.id, **payload_of(conn, row)}),
            max_attempts=sa.func.coalesce(attempts_of_kind.scalar_subquery(), t.max_attempts),
            document_id=about.document_id,
            generation=about.generation,
            exclusive_key=about.exclusive_key,
        )
    )
    return admitted.generation


def payload_of(conn: sa.Connection, row: Any) -> dict[str, Any]:
    """Return where the task gets the bytes: the stored blob, else as its last task did."""
    if row.state == DocumentState.SUCCESS and row.digest:
        return {"digest": row.digest, "size": row.size}
    last = conn.scalar(
        sa.select(t.payload)
        .where(t.document_id == row.id, t.from_page.is_(None), t.payload.is_not(None))
        .order_by(t.id.desc())
        .limit(1)
    )
    if last is not None:
        return {k: v for k, v in json.loads(last).items() if k != "document"}
    c = contents.c
    # The `seen` of an upload or attachment is the digest of its blob.
    size = conn.scalar(sa.select(c.size).where(c.tenant == row.tenant, c.digest == row.seen))
    if size is not None:
        return {"digest": row.seen, "size": size}
    item = {"uri": row.uri, "name": row.name, "folder": row.folder}
    return {"source": row.source, "options": {}, "item": item}


def of_corpus(conn: sa.Connection, corpus_id: int, *, after: int = 0, limit: int) -> Sequence[Any]:
    """Return documents of a corpus that can be searched, with what they were made from."""
    cd, g, c = corpus_documents.c, generations.c, contents.c
    return conn.execute(
        sa.select(
            d.id, d.uri, d.name, d.folder, d.parent_id, d.source, d.seen, d.state, d.settings,
            d.chunks, g.recipe, g.settings.label("pipeline"), g.media_type.label("made_as"),
            g.digest.label("made_of"), c.size.label("size_of"),
        )
        .join(documents, d.id == cd.document_id)
        .join(
            generations, sa.and_(g.document_id == d.id, g.generation == d.live_generation)
        )
        .join(contents, sa.and_(c.tenant == d.tenant, c.digest == g.digest))
        .where(cd.corpus_id == corpus_id, d.id > after)
        .order_by(d.id)
        .limit(limit)
    ).all()  # fmt: skip


def page_counts(
    conn: sa.Connection, document_ids: Sequence[int]
) -> Sequence[tuple[int, str, int, float | None]]:
    """Return document, how pages were read, how many, and how many seconds that took."""
    gp, p = generation_pages.c, pages.c
    query = (
        sa.select(d.id, p.via, sa.func.count(), sa.func.sum(p.seconds))
        .join(
            generation_pages,
            sa.and_(gp.document_id == d.id, gp.generation == d.live_generation),
        )
        .join(pages, p.id == gp.page_id)
        .where(dialect.id_in(conn, d.id, "ids"))
        .group_by(d.id, p.via)
    )
    rows = conn.execute(query, {"ids": dialect.encode_ids(conn, sorted(document_ids))})
    return [(i, via, count, seconds) for i, via, count, seconds in rows]


def lock(conn: sa.Connection, tenant: str, document_id: int) -> list[int]:
    """Lock a document and its running tasks; return the jobs of its open tasks, to be locked next.

    No task is added to a document whose row is locked.
    """
    running = [r.id for r in _open(conn, document_id) if r.state == TaskState.RUNNING]
    dialect.lock_rows(conn, tasks, running)
    admission.take_turn(conn, tenant)
    dialect.lock_rows(conn, documents, [document_id])
    return sorted({row.job_id for row in _open(conn, document_id)})


def overtake(conn: sa.Connection, document_id: int, *, now: Instant) -> list[int]:
    """End the open tasks of a document, raise their fence, and unlock it; return the tasks.

    The document and the jobs are locked.
    """
    rows = _open(conn, document_id)
    if not dialect.has_locked(conn, tasks, [row.id for row in rows]):
        raise TransactionConflict("database: a task of the document is being written")
    if rows:
        _end(conn, rows, now)
    conn.execute(move_documents("fail", d.id == document_id, error=WHY))
    return [row.id for row in rows]


def _open(conn: sa.Connection, document_id: int) -> Sequence[Any]:
    return conn.execute(
        sa.select(t.id, t.job_id, t.state, t.fence, t.worker_id)
        .where(t.document_id == document_id, is_state(t.state, *TASK_OPEN))
        .order_by(t.id)
    ).all()


def _end(conn: sa.Connection, rows: Sequence[Any], now: Instant) -> None:
    moves = Transition(conn, now)
    moves.end(
        [
            Settlement(
                row.id, row.fence, row.job_id, "overtake", "overtaken", error=WHY,
                refund_attempt=True, worker_id=row.worker_id,
            )
            for row in rows
            if row.state == TaskState.RUNNING
        ]
    )  # fmt: skip
    for state in (TaskState.BLOCKED, TaskState.READY):
        waiting = [(row.id,) for row in rows if row.state == state]
        moves.apply(waiting, "overtake", source=state, error=WHY)
    moves.conclude()


def ended_badly(
    conn: sa.Connection, job_ids: Sequence[int], document_id: int, states: Sequence[str]
) -> bool:
    """Tell whether a task of the document ended in one of the states, in one of the jobs."""
    wanted = [state for state in states if state in TASK_FINAL]
    query = sa.select(t.id).where(
        t.job_id.in_(sorted(job_ids)), t.document_id == document_id, is_state(t.state, *wanted)
    )
    return conn.execute(query.limit(1)).first() is not None
