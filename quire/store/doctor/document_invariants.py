"""Invariants of documents, generations, pages, chunks and vectors, over all tenants."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from quire.model.admission import INDEXING_SECONDS, QUEUED_SECONDS
from quire.model.states import DOCUMENT_LOCKED, TASK_OPEN, DocumentState, GenerationState
from quire.store.db import dialect
from quire.store.db.schema.documents import (
    TABLES,
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
from quire.store.db.schema.documents import document_words as document_words_table
from quire.store.db.schema.queue import is_state, jobs, owners, tasks
from quire.store.doctor.invariants import (
    Invariant,
    Invariants,
    derived,
    next_id,
    reference,
    row_name,
)
from quire.store.documents import document_words

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
INVARIANTS = Invariants(
    [
        *derived(TABLES),
        reference(d.parent_id, d.id),
        reference(g.job_id, jobs.c.id),
        reference(tasks.c.document_id, d.id, is_state(tasks.c.state, *TASK_OPEN)),
        next_id(documents),
    ]
)
rule = INVARIANTS.rule


def _generation(*where: sa.ColumnElement[bool]) -> sa.Exists:
    return sa.exists().where(g.document_id == d.id, *where)


@rule("documents.newest", "A document names its newest generation.")
def _wrong_newest(_: sa.Connection) -> sa.Select[Any]:
    there = sa.or_(d.generation == 0, _generation(g.generation == d.generation))
    return sa.select(d.id).where(sa.or_(sa.not_(there), _generation(g.generation > d.generation)))


@rule("documents.live", "A document has at most one live generation, the one that it names.")
def _wrong_live(_: sa.Connection) -> sa.Select[Any]:
    named_one = sa.or_(
        d.live_generation.is_(None), _generation(IS_LIVE, g.generation == d.live_generation)
    )
    other = _generation(IS_LIVE, g.generation.is_distinct_from(d.live_generation))
    return sa.select(d.id).where(sa.or_(sa.not_(named_one), other))


@rule(
    "documents.state",
    "A document's state follows from its generations: locked while the newest is built, "
    "success with a live one, not indexed without one.",
)
def _wrong_states(_: sa.Connection) -> sa.Select[Any]:
    building = _generation(is_state(g.state, G.BUILDING), g.generation == d.generation)
    wrong = sa.case(
        (is_state(d.state, *DOCUMENT_LOCKED), sa.not_(building)),
        (is_state(d.state, D.SUCCESS), d.live_generation.is_(None)),
        (is_state(d.state, D.NOT_INDEXED), d.live_generation.is_not(None)),
        else_=sa.false(),
    )
    return sa.select(d.id).where(wrong)


@rule("generations.building", "A generation being built is the newest of a locked document.")
def _stray_building(_: sa.Connection) -> sa.Select[Any]:
    at_work = sa.exists().where(
        d.id == g.document_id, d.generation == g.generation, is_state(d.state, *DOCUMENT_LOCKED)
    )
    return sa.select(row_name(generations)).where(is_state(g.state, G.BUILDING), sa.not_(at_work))


@rule(
    "documents.locked",
    "A locked document has an open task. `quire doctor --repair` or the next listing takes "
    "over one without a task after 10 minutes queued or 45 minutes indexing.",
)
def abandoned(_: sa.Connection) -> sa.Select[Any]:
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


@rule(
    "documents.summary",
    "A document has the counts, media type and digest of its live generation.",
)
def stale_summaries(_: sa.Connection) -> sa.Select[Any]:
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


@rule(
    "generations.counts",
    "A live generation's counts equal its generation pages and their slices.",
)
def wrong_counts(_: sa.Connection) -> sa.Select[Any]:
    """Find live generations whose counts differ from their generation pages and slices."""
    differ = [g[name].is_distinct_from(real) for name, real in real_counts().items()]
    return sa.select(row_name(generations)).where(IS_LIVE, sa.or_(*differ))


@rule("leaves.filled", "Every generation page of a live generation has a page or an error.")
def _unfilled_generation_pages(_: sa.Connection) -> sa.Select[Any]:
    return (
        sa.select(row_name(generation_pages))
        .join(generations, _MINE)
        .where(IS_LIVE, gp.page_id.is_(None), gp.error.is_(None))
    )


@rule(
    "leaves.generation",
    "Every generation page belongs to a generation that was not garbage collected.",
)
def _orphaned_pages(_: sa.Connection) -> sa.Select[Any]:
    return (
        sa.select(row_name(generation_pages))
        .join(generations, _MINE, isouter=True)
        .where(g.recipe.is_(None))
    )


@rule("slices.order", "The slices of a page are numbered from 0 without gaps.")
def _slice_gaps(_: sa.Connection) -> sa.Select[Any]:
    gap = sa.or_(sa.func.min(s.ordinal) != 0, sa.func.max(s.ordinal) + 1 != sa.func.count())
    return sa.select(s.page_id).group_by(s.page_id, s.cut_id).having(gap)


@rule("slices.text", "A slice lies within its page's text, and its chunk has exactly that text.")
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
            if row.page_id not in known or row.chunk_id not in parts:
                continue  # a reference is violated
            page = known[row.page_id]
            is_inside = 0 <= row.start < row.stop <= len(page)
            if not is_inside or page[row.start : row.stop] != parts[row.chunk_id]:
                yield f"{row.page_id}.{row.cut_id}.{row.ordinal}"
        last = rows[-1]
        rows = conn.execute(query.where(key > (last.page_id, last.cut_id, last.ordinal))).all()


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


@rule("chunks.words", "Every chunk of a live generation is in the full-text index.")
def unindexed_chunks(conn: sa.Connection) -> sa.Select[Any]:
    """Find chunks of live generations missing from the full-text index."""
    has_words = dialect.is_indexed(conn, c.id, c.tenant)
    query = (
        sa.select(c.id, c.text, c.context, c.language, c.tenant)
        .distinct()
        .select_from(live_chunks())
    )
    return query.where(IS_LIVE, sa.not_(has_words))


@rule("documents.words", "The words of every live generation are in the index of documents.")
def _unindexed_documents(_: sa.Connection) -> sa.Select[Any]:
    return document_words.lacking().with_only_columns(d.id)


@rule("document_words.document", "The index of documents has no deleted document.")
def _words_without_document(_: sa.Connection) -> sa.Select[Any]:
    w = document_words_table.c
    return sa.select(w.document_id).where(sa.not_(sa.exists().where(d.id == w.document_id)))


@rule("pages.heads", "The first lines of every page of a live generation are indexed.")
def _pages_without_heads(_: sa.Connection) -> sa.Select[Any]:
    return document_words.pages_without_heads().with_only_columns(p.id)


@rule("chunks.vectors", "Every chunk of a live generation has a vector of that generation's model.")
def chunks_without_vector(_: sa.Connection) -> sa.Select[Any]:
    """Find chunks of live generations without a vector of the generation's model."""
    has_vector = sa.exists().where(v.model_id == g.model_id, v.chunk_id == c.id)
    query = sa.select(c.id).distinct().select_from(live_chunks())
    return query.where(IS_LIVE, g.model_id.is_not(None), sa.not_(has_vector))


@rule("vectors.dimensions", "A vector has as many dimensions as its model.")
def _wrong_vectors(conn: sa.Connection) -> sa.Select[Any]:
    found = dialect.vector_dimensions(conn, v.vector)
    return (
        sa.select(row_name(vectors))
        .join(models, models.c.id == v.model_id)
        .where(found != models.c.dimensions)
    )


def _without_content(digest: sa.Column[str], *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    tenant = digest.table.c.tenant
    is_known = sa.exists().where(contents.c.tenant == tenant, contents.c.digest == digest)
    return sa.select(row_name(digest.table)).where(digest.is_not(None), sa.not_(is_known), *where)


@rule("documents.thumbnail", "A document's thumbnail is a known blob.")
def _unknown_thumbnails(_: sa.Connection) -> sa.Select[Any]:
    return _without_content(d.thumbnail)


@rule(
    "generations.digest",
    "The bytes of a generation that was not garbage collected are a known blob.",
)
def _unknown_bytes(_: sa.Connection) -> sa.Select[Any]:
    return _without_content(g.digest, g.recipe.is_not(None))


_OTHER_TENANT: dict[str, sa.Select[Any]] = {
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
    .join(corpora, corpora.c.id == corpus_documents.c.corpus_id)
    .join(documents, d.id == corpus_documents.c.document_id)
    .where(corpora.c.tenant != d.tenant),
}
INVARIANTS += [
    Invariant(f"{table}.tenant", f"Every row of {table} refers to rows of one tenant only.", query)
    for table, query in _OTHER_TENANT.items()
]
