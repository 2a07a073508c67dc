"""The searchable words of documents: read from the pages of a generation, replaced by its swap."""

import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.store.db import dialect, document_entries
from quire.store.db.schema.documents import (
    document_words,
    documents,
    generation_pages,
    generations,
    pages,
)

d, g, gp, p, w = documents.c, generations.c, generation_pages.c, pages.c, document_words.c
#: Pages that are read at a time.
BATCH = 200
_PAGES = (
    sa.select(gp.number, p.key, p.text, p.language)
    .join(pages, p.id == gp.page_id)
    .where(
        gp.document_id == sa.bindparam("document"),
        gp.generation == sa.bindparam("mine"),
        gp.number > sa.bindparam("after"),
    )
    .order_by(gp.number)
    .limit(BATCH)
)
_SUBJECT = sa.select(d.tenant, d.name, d.metadata).where(d.id == sa.bindparam("document"))


class Subject(NamedTuple):
    """A document whose words are indexed."""

    tenant: str
    name: str
    metadata: dict[str, Any]


def subject(conn: sa.Connection, document_id: int) -> Subject | None:
    """Return what a document is called, if it exists."""
    row = conn.execute(_SUBJECT, {"document": document_id}).one_or_none()
    return None if row is None else Subject(row.tenant, row.name, json.loads(row.metadata))


def page_texts(
    conn: sa.Connection, document_id: int, generation: int, after: int
) -> list[tuple[int, str, str, str]]:
    """Return number, key, text and language of the next stored pages of a generation."""
    given = {"document": document_id, "mine": generation, "after": after}
    return [tuple(row) for row in conn.execute(_PAGES, given)]


def put(
    conn: sa.Connection,
    tenant: str,
    document_id: int,
    generation: int,
    *,
    name: str,
    length: int,
    entries: list[str],
) -> None:
    """Replace the words of a document by those of a generation."""
    row = {
        "document_id": document_id, "generation": generation, "tenant": tenant, "length": length,
        "name": dialect.sanitize_text(name),
    }  # fmt: skip
    document_entries.put(conn, row, entries)


def lacking(limit: int | None = None) -> sa.Select[Any]:
    """Select document and live generation of documents without the words of that generation."""
    mine = sa.and_(w.document_id == d.id, w.generation == d.live_generation)
    return (
        sa.select(d.id, d.live_generation)
        .join(generations, sa.and_(g.document_id == d.id, g.generation == d.live_generation))
        .where(sa.not_(sa.exists().where(mine)))
        .order_by(d.id)
        .limit(limit)
    )


def find_lacking(conn: sa.Connection) -> list[tuple[int, int]]:
    """List some documents, and their live generations, that the index lacks."""
    return [(row.id, row.live_generation) for row in conn.execute(lacking(BATCH))]


def lock_live(conn: sa.Connection, document_id: int, generation: int) -> bool:
    """Lock a document; tell whether the generation is still the live one."""
    row = conn.execute(
        sa.select(d.live_generation).where(d.id == document_id).with_for_update()
    ).one_or_none()
    return row is not None and row.live_generation == generation


def pages_without_heads(limit: int | None = None) -> sa.Select[Any]:
    """Select pages of live generations whose first lines were not indexed."""
    is_live = sa.exists().where(
        gp.page_id == p.id, d.id == gp.document_id, d.live_generation == gp.generation
    )
    return sa.select(p.id, p.text, p.language).where(p.heads.is_(None), is_live).limit(limit)


def put_heads(conn: sa.Connection, heads: dict[int, str]) -> None:
    """Store the words of the first lines of pages."""
    one = sa.update(pages).where(p.id == sa.bindparam("page"))
    given = [{"page": each, "first": dialect.sanitize_text(text)} for each, text in heads.items()]
    conn.execute(one.values(heads=sa.bindparam("first")), given)
