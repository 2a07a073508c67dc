"""The leaves of a generation: which page stands at which number, or why none does."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import generation_pages, pages, slices, vectors

gp = generation_pages.c
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
# Pages that are used again are condemned no longer.
_KEEP = (
    sa.update(pages)
    .where(
        pages.c.condemned_at.is_not(None),
        pages.c.id.in_(sa.select(gp.page_id).where(_MINE, gp.page_id.is_not(None))),
    )
    .values(condemned_at=None)
)


def copy(conn: sa.Connection, giver: tuple[int, int], document_id: int, generation: int) -> int:
    """Give a generation the leaves of another; returns how many."""
    source = sa.select(
        sa.literal(document_id), sa.literal(generation), gp.number, gp.key, gp.page_id,
        gp.error,
    ).where(gp.document_id == giver[0], gp.generation == giver[1])  # fmt: skip
    return conn.execute(
        sa.insert(generation_pages).from_select(
            ["document_id", "generation", "number", "key", "page_id", "error"], source
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
    """Insert a row per page; returns the pages that are not complete from earlier work."""
    mine = {"document": document_id, "mine": generation}
    conn.execute(_CLEAR, mine)
    rows = [[document_id, generation, number, key] for number, key in sorted(keys.items())]
    bulk.bulk_insert(conn, generation_pages, ("document_id", "generation", "number", "key"), rows)
    statement = dialect.cached(
        conn, ("leaves.find", model_id is None), lambda: _finding(is_embedded=model_id is not None)
    )
    given = {"tenant": tenant, "cut": cut_id, "model": model_id}
    if model_id is None:
        del given["model"]
    conn.execute(statement, mine | given)
    conn.execute(_KEEP, mine)
    return list(conn.scalars(_MISSING, mine))


def _finding(*, is_embedded: bool) -> sa.Update:
    """Point leaves to the pages that exist under their keys, cut and embedded as wanted."""
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
    """Return the keys of the pages of a range that are still to be read."""
    which = {"document": document_id, "mine": generation, "first": first, "last": last}
    return {row.number: row.key for row in conn.execute(_UNREAD, which)}


def fill(
    conn: sa.Connection,
    document_id: int,
    generation: int,
    filled: Sequence[tuple[int, str, int | None, str | None]],
) -> None:
    """Write leaves (number, key, page_id, error) of a generation at work."""
    bulk.upsert_many(
        conn,
        generation_pages,
        ("document_id", "generation", "number", "key", "page_id", "error"),
        [[document_id, generation, *each] for each in sorted(filled)],
        keys=("document_id", "generation", "number"),
    )
