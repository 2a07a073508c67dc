"""Finds chunks by words and by vectors, and where the live documents have them.

An index knows chunks, not documents: what it finds may be of an old generation, of another
tenant, or outside the scope. So the best that an index has are looked up; if too few of them are
live, the index is asked again, for the best among those that are. Nothing here writes, and all of
a search belongs in one `Database.read`, which sees one generation of each document.
"""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from quire.model.search import Model, Place, Scope
from quire.model.states import GenerationState
from quire.store import dialect
from quire.store.document_tables import (
    chunks,
    corpora,
    corpus_documents,
    documents,
    generations,
    leaves,
    models,
    pages,
    slices,
)
from quire.store.tables import is_state

Ranked = list[tuple[int, float]]
#: Asks an index: how many, and among which chunks (None: any).
Find = Callable[[int, sa.Select[Any] | None], Ranked]

#: Candidates looked up before the index is asked for those that are live.
FIRST = 200
d, g, leaf, s = documents.c, generations.c, leaves.c, slices.c


def best(
    conn: sa.Connection, scope: Scope, find: Find, count: int, model: Model | None = None
) -> Ranked:
    """List the best `count` live chunks in the scope; with a model, those embedded by it."""
    first = max(FIRST, 2 * count)
    found = find(first, None)
    live = _live_of(conn, scope, [i for i, _ in found], model)
    passed = [(i, score) for i, score in found if i in live]
    if len(passed) >= count or len(found) < first:
        return passed[:count]
    return find(count, _live_chunks(conn, scope, model))


def places(conn: sa.Connection, scope: Scope, ids: Sequence[int], limit: int) -> list[Place]:
    """Say where chunks stand, in the order of `ids`: once a document, at the first page."""
    query = (
        _joined(sa.select(s.chunk_id, d.id, sa.func.min(leaf.number)))
        .where(dialect.id_in(conn, s.chunk_id, "ids"), *_conditions(conn, scope))
        .group_by(s.chunk_id, d.id)
    )
    order = {chunk_id: rank for rank, chunk_id in enumerate(ids)}
    found = [tuple(row) for row in conn.execute(query, {"ids": dialect.id_list(conn, ids)})]
    found.sort(key=lambda place: (order[place[0]], place[1]))
    return _described(conn, found[:limit])


def models_in_use(conn: sa.Connection, tenant: str) -> list[tuple[Model, str]]:
    """List the models of a tenant's live documents, with the settings of one of these."""
    mine = (g.tenant == tenant, is_state(g.state, GenerationState.LIVE))
    one = (
        sa.select(g.settings).where(*mine, g.model_id == models.c.id).limit(1).correlate(models)
    ).scalar_subquery()
    rows = conn.execute(
        sa.select(models.c.id, models.c.name, models.c.dimensions, one)
        .where(sa.exists().where(*mine, g.model_id == models.c.id))
        .order_by(models.c.id.desc())
    )
    return [(Model(*row[:3]), row[3]) for row in rows]


def languages(conn: sa.Connection, tenant: str) -> list[str]:
    """List the languages of a tenant's chunks: one look at the index for each."""
    c = chunks.c
    step = sa.select(sa.func.min(c.language).label("language")).where(c.tenant == tenant)
    seen = step.cte("seen", recursive=True)
    after = sa.select(sa.func.min(c.language)).where(
        c.tenant == tenant, c.language > seen.c.language
    )
    seen = seen.union_all(sa.select(after.scalar_subquery()).where(seen.c.language.is_not(None)))
    return list(conn.scalars(sa.select(seen.c.language).where(seen.c.language.is_not(None))))


def corpus_named(conn: sa.Connection, tenant: str, name: str) -> int | None:
    """Return the id of a corpus."""
    found: int | None = conn.scalar(
        sa.select(corpora.c.id).where(corpora.c.tenant == tenant, corpora.c.name == name)
    )
    return found


def corpus_names(conn: sa.Connection, tenant: str) -> list[str]:
    """List the corpora of a tenant."""
    query = sa.select(corpora.c.name).where(corpora.c.tenant == tenant)
    return list(conn.scalars(query.order_by(corpora.c.name)))


def _joined(query: sa.Select[Any]) -> sa.Select[Any]:
    """Join slices of live generations with their documents."""
    return (
        query.select_from(slices)
        .join(leaves, leaf.page_id == s.page_id)
        .join(
            documents,
            sa.and_(d.id == leaf.document_id, d.live_generation == leaf.generation),
        )
        .join(
            generations,
            sa.and_(g.document_id == d.id, g.generation == d.live_generation, g.cut_id == s.cut_id),
        )
    )


def _conditions(
    conn: sa.Connection, scope: Scope, model: Model | None = None
) -> list[sa.ColumnElement[bool]]:
    held = [d.tenant == scope.tenant]
    if model is not None:
        held.append(g.model_id == model.id)
    if scope.corpus_id is not None:
        listed = corpus_documents.c
        held.append(
            sa.exists().where(listed.corpus_id == scope.corpus_id, listed.document_id == d.id)
        )
    if scope.documents:
        held.append(d.id.in_(scope.documents))
    if scope.media_type is not None:
        held.append(d.media_type == scope.media_type)
    held += [_has_entry(conn, d.metadata, key, value) for key, value in scope.where]
    return held


def _has_entry(
    conn: sa.Connection, column: sa.Column[Any], key: str, value: str
) -> sa.ColumnElement[bool]:
    """Compare an entry of a JSON object, as text, with a value."""
    if not dialect.is_sqlite(conn):
        return sa.cast(column, postgresql.JSONB).op("->>")(key) == value
    each = sa.func.json_each(column).table_valued("key", "value", "type")
    # A truth value is a number in SQL; its type is its name.
    text = sa.case(
        (each.c.type.in_(("true", "false")), each.c.type), else_=sa.cast(each.c.value, sa.Text)
    )
    return sa.exists().where(each.c.key == key, text == value)


def _live_chunks(conn: sa.Connection, scope: Scope, model: Model | None) -> sa.Select[Any]:
    return _joined(sa.select(s.chunk_id)).where(*_conditions(conn, scope, model))


def _live_of(
    conn: sa.Connection, scope: Scope, ids: Sequence[int], model: Model | None
) -> set[int]:
    each = dialect.rows(conn, "ids", {"id": "int"})
    here = _joined(sa.select(sa.literal(1))).where(
        s.chunk_id == each.c.id, *_conditions(conn, scope, model)
    )
    query = sa.select(each.c.id).where(here.correlate(each).exists())
    return set(conn.scalars(query, {"ids": dialect.packed([[i] for i in ids])}))


def _described(conn: sa.Connection, found: Sequence[Any]) -> list[Place]:
    """Add what people want to know of (chunk, document, page) to each, in the same order."""
    at = dialect.rows(conn, "places", {"chunk": "int", "document": "int", "number": "int"})
    # Boxes are told by their place in the page's text, which is not needed without them.
    has_boxes = sa.func.length(pages.c.words) > 0
    query = (
        sa.select(
            at.c.chunk, at.c.document, d.name, d.uri, at.c.number, pages.c.label, chunks.c.text,
            s.start, sa.case((has_boxes, pages.c.text)), pages.c.words,
        )
        .select_from(at)
        .join(documents, d.id == at.c.document)
        .join(generations, sa.and_(g.document_id == d.id, g.generation == d.live_generation))
        .join(
            leaves,
            sa.and_(
                leaf.document_id == d.id,
                leaf.generation == d.live_generation,
                leaf.number == at.c.number,
            ),
        )
        .join(pages, pages.c.id == leaf.page_id)
        .join(
            slices,
            sa.and_(
                s.chunk_id == at.c.chunk, s.page_id == leaf.page_id, s.cut_id == g.cut_id
            ),
        )
        .join(chunks, chunks.c.id == at.c.chunk)
        .order_by(s.start.desc())
    )  # fmt: skip
    # A text may stand twice on a page: the first one stays.
    rows = {(row[0], row[1]): row for row in conn.execute(query, {"places": dialect.packed(found)})}
    named = _corpora_of(conn, [place[1] for place in found])
    return [Place(*rows[place[:2]], tuple(named.get(place[1], ()))) for place in found]


def _corpora_of(conn: sa.Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    listed = corpus_documents.c
    query = (
        sa.select(listed.document_id, corpora.c.name)
        .join(corpora, corpora.c.id == listed.corpus_id)
        .where(dialect.id_in(conn, listed.document_id, "ids"))
        .order_by(corpora.c.name)
    )
    named: dict[int, list[str]] = {}
    for document_id, name in conn.execute(query, {"ids": dialect.id_list(conn, ids)}):
        named.setdefault(document_id, []).append(name)
    return named
