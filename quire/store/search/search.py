"""Finds chunks by words and by vectors, and where the live documents have them.

An index knows chunks, not documents: what it finds may be of an old generation, of another
tenant, or outside the scope. So the best that an index has are looked up; if too few of them are
live, the index is asked again, for the best among those that are. Nothing here writes, and all of
a search belongs in one `Database.read`, which sees one generation of each document.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from quire.model.search import ChunkLocation, IndexHits, Model, Scope
from quire.model.states import GenerationState
from quire.store.db import dialect
from quire.store.db.schema.documents import (
    chunks,
    corpora,
    corpus_documents,
    documents,
    generation_pages,
    generations,
    models,
    pages,
    slices,
)
from quire.store.db.schema.queue import is_state
from quire.store.search import fulltext_levels
from quire.store.search.chunk_filter import ChunkFilter

#: Asks an index: how many, and among which chunks (None: any).
IndexQuery = Callable[[int, ChunkFilter | None], IndexHits]

#: Candidates looked up before the index is asked for those that are live; and the most of them.
FIRST_CANDIDATES, MAX_CANDIDATES = 100, 1_000
#: Chunks that are all looked at, where they are a small part; and documents that are counted.
FEW_CHUNKS, FEW_DOCUMENTS = 30_000, 1_000
d, g, gp, s = documents.c, generations.c, generation_pages.c, slices.c


class SearchPlan(NamedTuple):
    """A scope, and the chunks in it one by one where an index would hardly find one of them."""

    scope: Scope
    few: ChunkFilter | None


def plan(conn: sa.Connection, scope: Scope) -> SearchPlan:
    """Look how far a search in a scope has to go."""
    return SearchPlan(scope, _few_chunks(conn, scope) if _is_few(conn, scope) else None)


def candidate_count(depth: int) -> int:
    """Return how many an index is asked for at first, so that `depth` of them may be live."""
    return max(FIRST_CANDIDATES, 2 * depth)


def best_chunks(
    conn: sa.Connection,
    within: SearchPlan,
    find: IndexQuery,
    depth: int,
    *,
    enough: int,
    model: Model | None = None,
) -> list[tuple[int, float]]:
    """List up to `depth` live chunks in reach, and at least `enough` if there are so many.

    With a model, only documents count that were embedded with it, unless chunks are few: a vector
    of another document with the same chunk is as good.
    """
    scope = within.scope
    if scope.documents:  # few among many: hardly one of the best would pass
        return find(depth, _live_chunks(conn, scope, model)).ranked
    if within.few is not None:
        return find(depth, within.few).ranked
    count = candidate_count(depth)
    found, passed = _first(conn, scope, find, count, model)
    if len(passed) < enough and not found.is_all and passed and not dialect.is_sqlite(conn):
        # To ask for more takes less time than to look at every chunk that counts.
        more = min(MAX_CANDIDATES, count * depth // len(passed))
        found, passed = _first(conn, scope, find, more, model)
    if len(passed) < enough and not found.is_all:
        passed = find(depth, _live_chunks(conn, scope, model)).ranked
    return passed[:depth]


def _first(
    conn: sa.Connection, scope: Scope, find: IndexQuery, count: int, model: Model | None
) -> tuple[IndexHits, list[tuple[int, float]]]:
    """Return the best of all chunks, and those among them that count."""
    found = find(count, None)
    live = _live_of(conn, scope, [i for i, _ in found.ranked], model)
    return found, [(i, score) for i, score in found.ranked if i in live]


def _is_few(conn: sa.Connection, scope: Scope) -> bool:
    """Tell whether chunks that count are so few that an index would hardly find one."""
    if dialect.is_sqlite(conn) or scope.documents or scope.where or scope.media_type is not None:
        return False
    query = dialect.cached(conn, ("few", _shape(scope)), lambda: _sizing(conn, scope))
    row = conn.execute(query, _given(conn, scope, None)).one()
    if row.documents == FEW_DOCUMENTS or row.chunks > FEW_CHUNKS:
        return False
    return int(row.chunks) * 10 < fulltext_levels.estimate_chunks(conn)


def _sizing(conn: sa.Connection, scope: Scope) -> sa.Select[Any]:
    is_live = d.live_generation.is_not(None)
    some = sa.select(d.chunks).where(is_live, *_conditions(conn, scope, None))
    counted = some.limit(FEW_DOCUMENTS).subquery()
    whole = sa.func.coalesce(sa.func.sum(counted.c.chunks), 0).label("chunks")
    return sa.select(sa.func.count().label("documents"), whole)


def locate(
    conn: sa.Connection, scope: Scope, ids: Sequence[int], limit: int
) -> list[ChunkLocation]:
    """Say where chunks stand, in the order of `ids`: once a document, at the first page."""
    query = dialect.cached(conn, ("places", _shape(scope)), lambda: _described(conn, scope))
    ranked = dialect.encode_rows([[chunk_id, rank] for rank, chunk_id in enumerate(ids)])
    given = {"ids": ranked, "limit": limit, **_given(conn, scope, None)}
    # A text may stand twice on a page: the first one stays.
    found = {(row[1], row[2]): ChunkLocation(*row[1:]) for row in conn.execute(query, given).all()}
    named = _corpora_of(conn, [place.document_id for place in found.values()])
    return [
        place._replace(corpora=tuple(named.get(place.document_id, ()))) for place in found.values()
    ]


def chunk_texts(conn: sa.Connection, ids: Sequence[int]) -> list[str]:
    """Return the texts of chunks."""
    query = dialect.cached(
        conn,
        "texts",
        lambda: sa.select(chunks.c.text).where(dialect.id_in(conn, chunks.c.id, "ids")),
    )
    return list(conn.scalars(query, {"ids": dialect.encode_ids(conn, ids)}).all())


def models_in_use(conn: sa.Connection, tenant: str) -> list[tuple[Model, str]]:
    """List the models of a tenant's live documents, with the settings of one of these."""
    rows = conn.execute(dialect.cached(conn, "models in use", _using), {"tenant": tenant})
    return [(Model(*row[:3]), row[3]) for row in rows]


def _using() -> sa.Select[Any]:
    m = models.c
    mine = (
        g.tenant == sa.bindparam("tenant"),
        is_state(g.state, GenerationState.LIVE),
        g.model_id == m.id,
    )
    settings = sa.select(g.settings).where(*mine).limit(1).correlate(models).scalar_subquery()
    used = sa.exists().where(*mine)
    return sa.select(m.id, m.name, m.dimensions, settings).where(used).order_by(m.id.desc())


def languages(conn: sa.Connection, tenant: str) -> list[str]:
    """List the languages of a tenant's chunks: one look at the index for each."""
    query = dialect.cached(conn, "languages", _spoken)
    return list(conn.scalars(query, {"tenant": tenant}).all())


def _spoken() -> sa.Select[Any]:
    c = chunks.c
    mine = c.tenant == sa.bindparam("tenant")
    first = sa.select(sa.func.min(c.language).label("language")).where(mine)
    seen = first.cte("seen", recursive=True)
    after = sa.select(sa.func.min(c.language)).where(mine, c.language > seen.c.language)
    seen = seen.union_all(sa.select(after.scalar_subquery()).where(seen.c.language.is_not(None)))
    return sa.select(seen.c.language).where(seen.c.language.is_not(None))


def _of_chunks(query: sa.Select[Any], listed: sa.CTE | None = None) -> sa.Select[Any]:
    """Go from slices, or from chunks that are listed, to the live documents that have them."""
    is_live = sa.and_(d.id == gp.document_id, d.live_generation == gp.generation)
    is_cut_so = sa.and_(
        g.document_id == d.id, g.generation == d.live_generation, g.cut_id == s.cut_id
    )
    begun = (
        query.select_from(slices)
        if listed is None
        else query.select_from(listed).join(slices, s.chunk_id == listed.c.chunk)
    )
    return (
        begun.join(generation_pages, gp.page_id == s.page_id)
        .join(documents, is_live)
        .join(generations, is_cut_so)
    )


def _placed(conn: sa.Connection, scope: Scope) -> sa.CTE:
    """Find the first pages that have the chunks of `ids`, as far as the limit goes."""
    each = dialect.json_rows(conn, "ids", {"chunk": "int", "rank": "int"})
    first = sa.func.min(gp.number).label("number")
    query = (
        _of_chunks(sa.select(each.c.rank, each.c.chunk, d.id.label("document"), first), each)
        .where(*_conditions(conn, scope, None, by_chunk=True))
        .group_by(each.c.rank, each.c.chunk, d.id)
    )
    limited = query.order_by(each.c.rank, d.id).limit(sa.bindparam("limit", type_=sa.Integer))
    return limited.cte("placed").prefix_with("MATERIALIZED")


def _live_of(
    conn: sa.Connection, scope: Scope, ids: Sequence[int], model: Model | None
) -> set[int]:
    """Return which of the chunks a live document in the scope has."""
    if not ids:
        return set()
    key = "live of", _shape(scope), model is None
    query = dialect.cached(conn, key, lambda: _passing(conn, scope, model))
    given = {"ids": dialect.encode_rows([[i] for i in ids]), **_given(conn, scope, model)}
    return set(conn.scalars(query, given).all())


def _passing(conn: sa.Connection, scope: Scope, model: Model | None) -> sa.Select[Any]:
    each = dialect.json_rows(conn, "ids", {"id": "int"})
    here = _of_chunks(sa.select(sa.literal_column("1"))).where(
        s.chunk_id == each.c.id, *_conditions(conn, scope, model, by_chunk=True)
    )
    return sa.select(each.c.id).where(here.correlate(each).exists())


def _live_chunks(conn: sa.Connection, scope: Scope, model: Model | None) -> ChunkFilter:
    """Select all chunks that live documents in the scope have."""
    is_live = sa.and_(g.document_id == d.id, g.generation == d.live_generation)
    # Materialized, or the scope is checked once for each page and not for each document.
    found = (
        sa.select(d.id, d.live_generation, g.cut_id)
        .join(generations, is_live)
        .where(*_conditions(conn, scope, model))
        .cte("in_scope")
        .prefix_with("MATERIALIZED")
    )
    pages_of = sa.and_(gp.document_id == found.c.id, gp.generation == found.c.live_generation)
    query = (
        sa.select(s.chunk_id)
        .select_from(found)
        .join(generation_pages, pages_of)
        .join(slices, sa.and_(s.page_id == gp.page_id, s.cut_id == found.c.cut_id))
    )
    return ChunkFilter(query, _given(conn, scope, model))


def _few_chunks(conn: sa.Connection, scope: Scope) -> ChunkFilter:
    """List those chunks: the planner would look for them once for each match."""

    def build() -> sa.Select[Any]:
        found = _live_chunks(conn, scope, None).select.subquery("few")
        listed = sa.func.array_agg(found.c.chunk_id.distinct())
        # As a text, because neither way does anyone here look at the numbers.
        return sa.select(sa.cast(sa.func.coalesce(listed, sa.text("'{}'")), sa.Text))

    query = dialect.cached(conn, ("few chunks", _shape(scope)), build)
    return ChunkFilter.listed(conn.execute(query, _given(conn, scope, None)).scalar_one())


def _conditions(
    conn: sa.Connection, scope: Scope, model: Model | None, *, by_chunk: bool = False
) -> list[sa.ColumnElement[bool]]:
    """Say what a document has to be; the values are those of `_given`."""

    def see(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # SQLite has no statistics, and would begin with all documents of the tenant.
        return sa.func.coalesce(column, column) if hide else column

    hide = by_chunk and dialect.is_sqlite(conn)
    held: list[sa.ColumnElement[bool]] = [see(d.tenant) == sa.bindparam("of_tenant")]
    if model is not None:
        held.append(g.model_id == sa.bindparam("of_model"))
    if scope.corpus_id is not None:
        listed = corpus_documents.c
        mine = sa.select(listed.document_id).where(listed.corpus_id == sa.bindparam("of_corpus"))
        held.append(see(d.id).in_(mine))
    if scope.documents:
        held.append(dialect.id_in(conn, see(d.id), "of_documents"))
    if scope.media_type is not None:
        held.append(d.media_type == sa.bindparam("of_media_type"))
    for at in range(len(scope.where)):
        held.append(_entry(conn, f"key_{at}") == sa.bindparam(f"value_{at}", type_=sa.Text))
    return held


def _given(conn: sa.Connection, scope: Scope, model: Model | None) -> dict[str, Any]:
    given: dict[str, Any] = {"of_tenant": scope.tenant}
    if model is not None:
        given["of_model"] = model.id
    if scope.corpus_id is not None:
        given["of_corpus"] = scope.corpus_id
    if scope.documents:
        given["of_documents"] = dialect.encode_ids(conn, scope.documents)
    if scope.media_type is not None:
        given["of_media_type"] = scope.media_type
    for at, (key, value) in enumerate(scope.where):
        given |= {f"key_{at}": key, f"value_{at}": value}
    return given


def _shape(scope: Scope) -> tuple[bool, bool, bool, int]:
    """Return what decides the text of a statement."""
    is_typed = scope.media_type is not None
    return scope.corpus_id is not None, bool(scope.documents), is_typed, len(scope.where)


def _entry(conn: sa.Connection, name: str) -> sa.ColumnElement[Any]:
    """Return as text the entry of a document's metadata whose key is the parameter `name`."""
    key = sa.bindparam(name, type_=sa.Text)
    if not dialect.is_sqlite(conn):
        return sa.cast(d.metadata, postgresql.JSONB).op("->>")(key)
    each = sa.func.json_each(d.metadata).table_valued("key", "value", "type")
    # A truth value is a number in SQL; its type is its name.
    text = sa.case(
        (each.c.type.in_(("true", "false")), each.c.type), else_=sa.cast(each.c.value, sa.Text)
    )
    return sa.select(text).where(each.c.key == key).limit(1).scalar_subquery()


def _described(conn: sa.Connection, scope: Scope) -> sa.Select[Any]:
    """Select what people want to know of the places of chunks, in the order of these."""
    at = _placed(conn, scope)
    # Boxes are told by their place in the page's text, which is not needed without them.
    has_boxes = sa.func.length(pages.c.words) > 0
    return (
        sa.select(
            at.c.rank, at.c.chunk, at.c.document, d.name, d.uri, at.c.number, pages.c.label,
            chunks.c.text, s.start, sa.case((has_boxes, pages.c.text)), pages.c.words,
        )
        .select_from(at)
        .join(documents, d.id == at.c.document)
        .join(generations, sa.and_(g.document_id == d.id, g.generation == d.live_generation))
        .join(
            generation_pages,
            sa.and_(
                gp.document_id == d.id,
                gp.generation == d.live_generation,
                gp.number == at.c.number,
            ),
        )
        .join(pages, pages.c.id == gp.page_id)
        .join(
            slices,
            sa.and_(
                s.chunk_id == at.c.chunk, s.page_id == gp.page_id, s.cut_id == g.cut_id
            ),
        )
        .join(chunks, chunks.c.id == at.c.chunk)
        .order_by(at.c.rank, at.c.document, s.start.desc())
    )  # fmt: skip


def _corpora_of(conn: sa.Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    query = dialect.cached(conn, "corpora of", lambda: _listing(conn))
    named: dict[int, list[str]] = {}
    for document_id, name in conn.execute(query, {"ids": dialect.encode_ids(conn, ids)}):
        named.setdefault(document_id, []).append(name)
    return named


def _listing(conn: sa.Connection) -> sa.Select[Any]:
    listed = corpus_documents.c
    return (
        sa.select(listed.document_id, corpora.c.name)
        .join(corpora, corpora.c.id == listed.corpus_id)
        .where(dialect.id_in(conn, listed.document_id, "ids"))
        .order_by(corpora.c.name)
    )
