"""Repairs derived data that can be recomputed, in batches; other violations are only reported."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.pipeline import searchable
from quire.store.db import dialect
from quire.store.db.schema.documents import chunks, contents, documents, generations, models
from quire.store.doctor import document_invariants as queries
from quire.store.documents import document_words, failures

d, g = documents.c, generations.c
BATCH = 200


def index_missing_chunks(conn: sa.Connection, analyse: Callable[[str, str], str]) -> int:
    """Add missing chunks to the full-text index; `analyse` returns the words of a text."""
    rows = conn.execute(queries.unindexed_chunks(conn).limit(BATCH)).all()
    by_tenant: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        words = analyse(searchable(row.text, row.context), row.language)
        by_tenant.setdefault(row.tenant, []).append((row.id, words))
    for tenant, texts in by_tenant.items():
        dialect.index_texts(conn, tenant, texts)
    return len(rows)


def index_page_heads(conn: sa.Connection, analyse: Callable[[str, str], str]) -> int:
    """Index the first lines of pages that lack it; `analyse` returns their words."""
    rows = conn.execute(document_words.pages_without_heads(BATCH)).all()
    if rows:
        document_words.put_heads(conn, {row.id: analyse(row.text, row.language) for row in rows})
    return len(rows)


def chunks_to_embed(conn: sa.Connection, after_id: int) -> Sequence[Any]:
    """Return chunks without a vector, after a chunk, with their model and the settings of it."""
    query = queries.chunks_without_vector(conn).with_only_columns(
        chunks.c.id, chunks.c.tenant, chunks.c.digest, chunks.c.text,
        models.c.id.label("model_id"), models.c.name, models.c.dimensions, g.settings,
    )  # fmt: skip
    query = query.join(models, models.c.id == g.model_id).where(chunks.c.id > after_id)
    return conn.execute(query.order_by(chunks.c.id).limit(BATCH)).all()


def recount(conn: sa.Connection) -> int:
    """Recompute wrong counts of live generations."""
    wrong = queries.wrong_counts(conn).with_only_columns(g.document_id, g.generation)
    keys = [(row.document_id, row.generation) for row in conn.execute(wrong.limit(BATCH))]
    if keys:
        conn.execute(
            sa.update(generations)
            .where(sa.tuple_(g.document_id, g.generation).in_(keys), queries.IS_LIVE)
            .values({g[name]: real for name, real in queries.real_counts().items()})
        )
    return len(keys)


def copy_live_summary(conn: sa.Connection) -> int:
    """Copy counts, media type and digest of live generations to their documents."""
    ids = list(conn.scalars(queries.stale_summaries(conn).order_by(d.id).limit(BATCH)))
    if ids:
        dialect.lock_rows(conn, documents, ids)
        conn.execute(
            sa.update(documents)
            .where(d.id.in_(ids), g.document_id == d.id, g.generation == d.live_generation)
            .values({d[name]: g[name] for name in queries.SUMMARY})
        )
    return len(ids)


def fail_abandoned(conn: sa.Connection, now: Instant) -> int:
    """Fail locked documents without an open task, so that they can be retried."""
    rows = conn.execute(queries.abandoned(conn).limit(BATCH), {"wall": now.wall}).all()
    why = "taken over by doctor: locked without an open task"
    failed = failures.fail(conn, [(row.id, row.generation, why) for row in rows], now=now)
    # Nobody has tried the file: the next listing does. The `seen` of an upload names its blob.
    is_upload = sa.exists().where(contents.c.tenant == d.tenant, contents.c.digest == d.seen)
    conn.execute(sa.update(documents).where(d.id.in_(failed), sa.not_(is_upload)).values(seen=None))
    return len(failed)
