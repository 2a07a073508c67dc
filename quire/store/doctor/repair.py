"""Mends what can be derived anew without a doubt, some rows at a time; the rest is reported."""

from collections.abc import Callable

import sqlalchemy as sa

from quire.clock import Instant
from quire.store.db import dialect
from quire.store.db.schema.documents import documents, generations
from quire.store.doctor import document_queries as breaches
from quire.store.documents import failures

d, g = documents.c, generations.c
BATCH = 200


def index_missing_chunks(conn: sa.Connection, analyse: Callable[[str, str], str]) -> int:
    """Index chunks that the full-text index has lost; `analyse` makes the words of a text."""
    rows = conn.execute(breaches.wordless(conn).limit(BATCH)).all()
    dialect.index_texts(conn, [(row.id, analyse(row.text, row.language)) for row in rows])
    return len(rows)


def recount(conn: sa.Connection) -> int:
    """Count the leaves and slices of live generations whose counts are wrong."""
    wrong = breaches.wrong_counts().with_only_columns(g.document_id, g.generation)
    keys = [(row.document_id, row.generation) for row in conn.execute(wrong.limit(BATCH))]
    if keys:
        conn.execute(
            sa.update(generations)
            .where(sa.tuple_(g.document_id, g.generation).in_(keys), breaches.IS_LIVE)
            .values({g[name]: real for name, real in breaches.real_counts().items()})
        )
    return len(keys)


def copy_live_summary(conn: sa.Connection) -> int:
    """Let documents tell what their live generation does."""
    ids = list(conn.scalars(breaches.unlike_live().order_by(d.id).limit(BATCH)))
    told = ("digest", "media_type", "pages", "chunks", "page_errors")
    if ids:
        dialect.lock_rows(conn, documents, ids)
        conn.execute(
            sa.update(documents)
            .where(d.id.in_(ids), g.document_id == d.id, g.generation == d.live_generation)
            .values({d[name]: g[name] for name in told})
        )
    return len(ids)


def fail_abandoned(conn: sa.Connection, now: Instant) -> int:
    """Fail locked documents that no task works on any more, so that they can be retried."""
    rows = conn.execute(breaches.abandoned().limit(BATCH), {"wall": now.wall}).all()
    why = "taken over by doctor: it was locked, and no task was left that worked on it"
    return len(failures.fail(conn, [(row.id, row.generation, why) for row in rows], now=now))
