"""Queries for violated invariants of documents, generations, pages and chunks.

Each selects the names of offending rows; `:wall` is the time.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from quire.model.admission import INDEXING_SECONDS, QUEUED_SECONDS
from quire.model.states import DOCUMENT_LOCKED, TASK_OPEN, DocumentState, GenerationState
from quire.store.db import dialect
from quire.store.db.schema.documents import (
    chunks,
    contents,
    corpora,
    corpus_documents,
    documents,
    generation_pages,
    generations,
    models,
    pages,
    slices,
    vectors,
)
from quire.store.db.schema.queue import is_state, owners, tasks
from quire.store.doctor.invariants import row_name

d, g, gp, p, s, c, v = (
    documents.c, generations.c, generation_pages.c, pages.c, slices.c, chunks.c, vectors.c,
)  # fmt: skip
D, G = DocumentState, GenerationState
#: Columns that a document copies from its live generation.
SUMMARY = ("digest", "media_type", "pages", "chunks", "page_errors")
#: Slices compared at a time.
_SLICES = 2000
IS_LIVE = is_state(g.state, G.LIVE)
_MINE = sa.and_(gp.document_id == g.document_id, gp.generation == g.generation)


def _generation(*where: sa.ColumnElement[bool]) -> sa.Exists:
    return sa.exists().where(g.document_id == d.id, *where)


def wrong_newest() -> sa.Select[Any]:
    """Find documents whose newest generation is missing or not the newest."""
    there = sa.or_(d.generation == 0, _generation(g.generation == d.generation))
    return sa.select(d.id).where(sa.or_(sa.not_(there), _generation(g.generation > d.generation)))


def wrong_live() -> sa.Select[Any]:
    """Find documents whose live generation is not live, or that have another live one."""
    named_one = sa.or_(
        d.live_generation.is_(None), _generation(IS_LIVE, g.generation == d.live_generation)
    )
    other = _generation(IS_LIVE, g.generation.is_distinct_from(d.live_generation))
    return sa.select(d.id).where(sa.or_(sa.not_(named_one), other))


def wrong_states() -> sa.Select[Any]:
    """Find documents whose state contradicts their generations."""
    building = _generation(is_state(g.state, G.BUILDING), g.generation == d.generation)
    wrong = sa.case(
        (is_state(d.state, *DOCUMENT_LOCKED), sa.not_(building)),
        (is_state(d.state, D.SUCCESS), d.live_generation.is_(None)),
        (is_state(d.state, D.NOT_INDEXED), d.live_generation.is_not(None)),
        else_=sa.false(),
    )
    return sa.select(d.id).where(wrong)


def stray_building() -> sa.Select[Any]:
    """Find generations being built for a document that is not locked."""
    at_work = sa.exists().where(
        d.id == g.document_id, d.generation == g.generation, is_state(d.state, *DOCUMENT_LOCKED)
    )
    return sa.select(row_name(generations)).where(is_state(g.state, G.BUILDING), sa.not_(at_work))


def abandoned() -> sa.Select[Any]:
    """Find locked documents without an open task for longer than the takeover delay."""
    t = tasks.c
    open_task = sa.exists().where(
        t.document_id == d.id, t.generation == d.generation, is_state(t.state, *TASK_OPEN)
    )
    wall = sa.bindparam("wall", type_=sa.Double)
    queued = sa.and_(
        is_state(d.state, D.QUEUED),
        sa.func.coalesce(d.queued_at, d.created_at) < wall - QUEUED_SECONDS,
    )
    indexing = sa.and_(
        is_state(d.state, D.INDEXING),
        sa.func.coalesce(d.processing_started_at, d.queued_at, d.created_at)
        < wall - INDEXING_SECONDS,
    )
    return sa.select(d.id, d.generation).where(sa.or_(queued, indexing), sa.not_(open_task))


def stale_summaries() -> sa.Select[Any]:
    """Find documents whose summary differs from their live generation."""
    return (
        sa.select(d.id)
        .join(generations, sa.and_(g.document_id == d.id, g.generation == d.live_generation))
        .where(sa.or_(*(d[name].is_distinct_from(g[name]) for name in SUMMARY)))
    )


def real_counts() -> dict[str, sa.ScalarSelect[Any]]:
    """Return the expected counts of a generation, counted from its generation pages."""
    cut = sa.and_(s.page_id == gp.page_id, s.cut_id == g.cut_id)
    counted = (
        sa.select(sa.func.count()).select_from(generation_pages).where(_MINE).correlate(generations)
    )
    chunk_count = (
        sa.select(sa.func.count()).select_from(sa.join(generation_pages, slices, cut)).where(_MINE)
    )
    return {
        "pages": counted.scalar_subquery(),
        "page_errors": counted.where(gp.error.is_not(None)).scalar_subquery(),
        "chunks": chunk_count.correlate(generations).scalar_subquery(),
    }


def wrong_counts() -> sa.Select[Any]:
    """Find live generations whose counts differ from their generation pages and slices."""
    differ = [g[name].is_distinct_from(real) for name, real in real_counts().items()]
    return sa.select(row_name(generations)).where(IS_LIVE, sa.or_(*differ))


def unfilled_generation_pages() -> sa.Select[Any]:
    """Find generation pages of live generations with neither a page nor an error."""
    return (
        sa.select(row_name(generation_pages))
        .join(generations, _MINE)
        .where(IS_LIVE, gp.page_id.is_(None), gp.error.is_(None))
    )


def orphaned_pages() -> sa.Select[Any]:
    """Find generation pages whose generation is missing or was garbage collected."""
    return (
        sa.select(row_name(generation_pages))
        .join(generations, _MINE, isouter=True)
        .where(g.recipe.is_(None))
    )


def slice_gaps() -> sa.Select[Any]:
    """Find pages whose slices are not numbered from 0 without gaps."""
    gap = sa.or_(sa.func.min(s.ordinal) != 0, sa.func.max(s.ordinal) + 1 != sa.func.count())
    return sa.select(s.page_id).group_by(s.page_id, s.cut_id).having(gap)


def wrong_slice_texts(conn: sa.Connection) -> Iterator[str]:
    """Find slices outside their page's text, or whose chunk has another text."""
    # Not in SQL: substr() counts characters from the start of the text for every slice.
    key = sa.tuple_(*slices.primary_key)
    query = sa.select(slices).order_by(*slices.primary_key).limit(_SLICES)
    known: dict[int, str] = {}
    rows = conn.execute(query).all()
    while rows:
        known = _texts(conn, p, {row.page_id for row in rows}, known)
        parts = _texts(conn, c, {row.chunk_id for row in rows}, {})
        for row in rows:
            page, part = known.get(row.page_id), parts.get(row.chunk_id)
            is_there = page is not None and part is not None  # else a reference is violated
            if is_there and not _is_part(page or "", row.start, row.stop, part or ""):
                yield f"{row.page_id}.{row.cut_id}.{row.ordinal}"
        last = rows[-1]
        rows = conn.execute(query.where(key > (last.page_id, last.cut_id, last.ordinal))).all()


def _is_part(page: str, start: int, stop: int, part: str) -> bool:
    return 0 <= start < stop <= len(page) and page[start:stop] == part


def _texts(conn: sa.Connection, of: Any, ids: set[int], known: dict[int, str]) -> dict[int, str]:
    """Return the texts of pages or chunks, reusing the known ones."""
    rows = conn.execute(
        sa.select(of.id, of.text).where(dialect.id_in(conn, of.id, "ids")),
        {"ids": dialect.encode_ids(conn, sorted(ids - known.keys()))},
    )
    return {each: known[each] for each in ids & known.keys()} | dict(rows.all())


def live_chunks() -> sa.Join:
    """Join the chunks with the live generations that use them; the condition is `IS_LIVE`."""
    return (
        sa.join(generations, generation_pages, _MINE)
        .join(slices, sa.and_(s.page_id == gp.page_id, s.cut_id == g.cut_id))
        .join(chunks, c.id == s.chunk_id)
    )


def unindexed_chunks(conn: sa.Connection) -> sa.Select[Any]:
    """Find chunks of live generations missing from the full-text index."""
    has_words = dialect.is_indexed(conn, c.id)
    query = sa.select(c.id, c.text, c.language).distinct().select_from(live_chunks())
    return query.where(IS_LIVE, sa.not_(has_words))


def chunks_without_vector() -> sa.Select[Any]:
    """Find chunks of live generations without a vector of the generation's model."""
    has_vector = sa.exists().where(v.model_id == g.model_id, v.chunk_id == c.id)
    query = sa.select(c.id).distinct().select_from(live_chunks())
    return query.where(IS_LIVE, g.model_id.is_not(None), sa.not_(has_vector))


def wrong_vectors(conn: sa.Connection) -> sa.Select[Any]:
    """Find vectors with other dimensions than their model."""
    found = dialect.vector_dimensions(conn, v.vector)
    return (
        sa.select(row_name(vectors))
        .join(models, models.c.id == v.model_id)
        .where(found != models.c.dimensions)
    )


def _has_content(digest: sa.Column[str]) -> sa.Exists:
    tenant = digest.table.c.tenant
    return sa.exists().where(contents.c.tenant == tenant, contents.c.digest == digest)


def without_content(digest: sa.Column[str], *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Find rows that refer to an unknown blob."""
    return sa.select(row_name(digest.table)).where(
        digest.is_not(None), sa.not_(_has_content(digest)), *where
    )


def other_tenants() -> dict[str, sa.Select[Any]]:
    """Find, by table, rows that refer to a row of another tenant."""
    within = corpus_documents.c
    return {
        "documents": sa.select(d.id)
        .join(owners, owners.c.id == d.owner_id)
        .where(owners.c.tenant != d.tenant),
        "generations": sa.select(row_name(generations))
        .join(documents, d.id == g.document_id)
        .where(d.tenant != g.tenant),
        "leaves": sa.select(row_name(generation_pages))
        .join(generations, _MINE)
        .join(pages, p.id == gp.page_id)
        .where(p.tenant != g.tenant),
        "slices": sa.select(row_name(slices))
        .join(pages, p.id == s.page_id)
        .join(chunks, c.id == s.chunk_id)
        .where(c.tenant != p.tenant),
        "corpus_documents": sa.select(row_name(corpus_documents))
        .join(corpora, corpora.c.id == within.corpus_id)
        .join(documents, d.id == within.document_id)
        .where(corpora.c.tenant != d.tenant),
    }
