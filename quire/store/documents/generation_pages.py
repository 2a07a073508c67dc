"""The page list of a generation: for each page number the stored page, or why there is none.

The table is called `leaves` in the database.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from quire.model.states import GenerationState
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import generation_pages, generations, pages, slices, vectors
from quire.store.db.schema.queue import is_state

g, gp = generations.c, generation_pages.c
_MINE = sa.and_(gp.document_id == sa.bindparam("document"), gp.generation == sa.bindparam("mine"))
# Built once: building a statement costs more than running it, and these run for every range.
_UNREAD = sa.select(gp.number, gp.key).where(
    _MINE,
    gp.number.between(sa.bindparam("first"), sa.bindparam("last")),
    gp.page_id.is_(None),
    gp.error.is_(None),
)
_CLEAR = sa.delete(generation_pages).where(_MINE)
_MISSING = sa.select(gp.number).where(_MINE, gp.page_id.is_(None)).order_by(gp.number)
_MARKED = (
    sa.select(pages.c.id)
    .join(generation_pages, gp.key == pages.c.key)
    .where(_MINE, pages.c.tenant == sa.bindparam("tenant"), pages.c.condemned_at.is_not(None))
    .order_by(pages.c.id)
    .with_for_update(of=pages)
)


def copy(conn: sa.Connection, source: tuple[int, int], document_id: int, generation: int) -> int:
    """Copy the page list of another generation (document, generation); return its length."""
    source_id, source_generation = source
    rows = sa.select(
        sa.literal(document_id), sa.literal(generation), gp.number, gp.key, gp.page_id,
        gp.error,
    ).where(gp.document_id == source_id, gp.generation == source_generation)  # fmt: skip
    return conn.execute(
        sa.insert(generation_pages).from_select(
            ["document_id", "generation", "number", "key", "page_id", "error"], rows
        )
    ).rowcount


def plan(
    conn: sa.Connection,
    tenant: str,
    document_id: int,
    generation: int,
    keys: Mapping[int, str],
    *,
    cut_id: int,
    model_id: int | None,
) -> list[int]:
    """Write the page list; return the numbers of pages that are still to be read.

    A page from earlier work counts if it is chunked and embedded with the same settings.
    """
    mine = {"document": document_id, "mine": generation}
    conn.execute(_CLEAR, mine)
    rows = [[document_id, generation, number, key] for number, key in sorted(keys.items())]
    bulk.bulk_insert(conn, generation_pages, ("document_id", "generation", "number", "key"), rows)
    # Before they are reused: a page that is being deleted is waited for, and then not found.
    if marked := list(conn.scalars(_MARKED, {**mine, "tenant": tenant})):
        conn.execute(sa.update(pages).where(pages.c.id.in_(marked)).values(condemned_at=None))
    given = {"tenant": tenant, "cut": cut_id, "model": model_id}
    if model_id is None:
        del given["model"]
    conn.execute(_reusing(conn, model_id is not None), mine | given)
    return list(conn.scalars(_MISSING, mine))


@dialect.statement
def _reusing(_: sa.Connection, is_embedded: bool) -> sa.Update:
    """Point entries to stored pages of the same key that are chunked and embedded."""
    of_page = sa.and_(slices.c.page_id == pages.c.id, slices.c.cut_id == sa.bindparam("cut"))
    is_complete = sa.or_(pages.c.text == "", sa.exists().where(of_page))
    if is_embedded:
        mine = sa.and_(
            vectors.c.model_id == sa.bindparam("model"), vectors.c.chunk_id == slices.c.chunk_id
        )
        missing = (
            sa.select(sa.literal(1))
            .select_from(slices)
            .join(vectors, mine, isouter=True)
            .where(of_page, vectors.c.chunk_id.is_(None))
            .correlate(pages)
        )
        is_complete = sa.and_(is_complete, sa.not_(missing.exists()))
    found = sa.select(pages.c.id).where(
        pages.c.tenant == sa.bindparam("tenant"), pages.c.key == gp.key, is_complete
    )
    return sa.update(generation_pages).where(_MINE).values(page_id=found.scalar_subquery())


def unread(
    conn: sa.Connection, document_id: int, generation: int, first: int, last: int
) -> dict[int, str]:
    """Return the pages of a range that are still to be read: number → key."""
    which = {"document": document_id, "mine": generation, "first": first, "last": last}
    return {row.number: row.key for row in conn.execute(_UNREAD, which)}


def fill(
    conn: sa.Connection,
    document_id: int,
    generation: int,
    filled: Sequence[tuple[int, str, int | None, str | None]],
) -> None:
    """Write entries (number, key, page id, error) of the page list."""
    bulk.upsert_many(
        conn,
        generation_pages,
        ("document_id", "generation", "number", "key", "page_id", "error"),
        [[document_id, generation, *each] for each in sorted(filled)],
        keys=("document_id", "generation", "number"),
    )


def count_earlier_pages(conn: sa.Connection, tenant: str, first_key: str) -> int:
    """Return how many pages an earlier generation has whose first page has this key."""
    row = conn.execute(
        sa.select(gp.document_id, gp.generation)
        .join(generations, sa.and_(gp.document_id == g.document_id, gp.generation == g.generation))
        .join(pages, pages.c.id == gp.page_id)
        .where(
            pages.c.tenant == tenant,
            pages.c.key == first_key,
            gp.number == 1,
            is_state(g.state, GenerationState.LIVE, GenerationState.REPLACED),
        )
        .order_by(g.document_id.desc(), g.generation.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return 0
    count: int | None = conn.scalar(
        sa.select(sa.func.count()).where(
            gp.document_id == row.document_id, gp.generation == row.generation
        )
    )
    return count or 0
