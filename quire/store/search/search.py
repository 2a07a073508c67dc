"""Finds live chunks by words and vectors, and locates them in documents.

An index contains chunks, not documents: its results may belong to an old generation, to another
tenant, or be outside the scope. So the index's best candidates are checked; if too few are live,
the index is queried again, restricted to live chunks. Nothing here writes. Run a whole search in
one `Database.read`, which sees one generation of each document.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

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
from quire.store.search import sampled_gin
from quire.store.search.chunk_filter import ChunkFilter

#: Queries an index for a number of chunks, restricted by a filter (None: any).
IndexQuery = Callable[[int, ChunkFilter | None], IndexHits]

#: Candidates of the first query, and the maximum before the index is restricted to live chunks.
FIRST_CANDIDATES, MAX_CANDIDATES = 100, 1_000
#: A scope with at most this many chunks, counted over at most this many documents, is searched
#: exhaustively if it is a small part of the corpus.
FEW_CHUNKS, FEW_DOCUMENTS = 30_000, 1_000
d, g, gp, s = documents.c, generations.c, generation_pages.c, slices.c


class SearchPlan(NamedTuple):
    """A scope, and a filter with its chunks if they are few."""

    scope: Scope
    few: ChunkFilter | None


def plan(conn: sa.Connection, scope: Scope) -> SearchPlan:
    """Decide how to search a scope."""
    return SearchPlan(scope, _chunk_array(conn, scope, None) if _is_few(conn, scope) else None)


def candidate_count(depth: int) -> int:
    """Return how many candidates to fetch first, so that `depth` of them may be live."""
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
    """List up to `depth` live chunks, and at least `enough` if that many exist.

    With a model, only documents embedded with it are searched, unless the scope is small: a
    chunk's vector is the same in every document.
    """
    scope = within.scope
    if within.few is not None:
        return find(depth, within.few).ranked
    if scope.documents:  # selective: hardly any of the best candidates would pass
        return find(depth, _filter(conn, scope, model)).ranked
    count = candidate_count(depth)
    found, passed = _first(conn, scope, find, count, model)
    if len(passed) < enough and not found.is_complete and passed and not dialect.is_sqlite(conn):
        # Fetching more candidates is faster than scanning every live chunk.
        more = min(MAX_CANDIDATES, count * depth // len(passed))
        found, passed = _first(conn, scope, find, more, model)
    if len(passed) < enough and not found.is_complete:
        passed = find(depth, _filter(conn, scope, model)).ranked
    return passed[:depth]


def _first(
    conn: sa.Connection, scope: Scope, find: IndexQuery, count: int, model: Model | None
) -> tuple[IndexHits, list[tuple[int, float]]]:
    """Return the best chunks of the index, and the live ones among them."""
    found = find(count, None)
    live = _live_of(conn, scope, [i for i, _ in found.ranked], model)
    return found, [(i, score) for i, score in found.ranked if i in live]


def _is_few(conn: sa.Connection, scope: Scope) -> bool:
    """Tell whether the scope has so few chunks that an unfiltered index would miss them."""
    if scope.where or scope.media_type is not None:
        return False
    query = dialect.cached(conn, ("few", _shape(scope)), lambda: _size_statement(conn, scope))
    row = conn.execute(query, _parameters(conn, scope, None)).one()
    if row.documents == FEW_DOCUMENTS or row.chunks > FEW_CHUNKS:
        return False
    return bool(scope.documents) or int(row.chunks) * 10 < _estimate_chunks(conn)


def _estimate_chunks(conn: sa.Connection) -> int:
    if not dialect.is_sqlite(conn):
        return sampled_gin.estimate_chunks(conn)
    return conn.exec_driver_sql("SELECT max(id) FROM chunks").scalar_one() or 0


def _size_statement(conn: sa.Connection, scope: Scope) -> sa.Select[Any]:
    is_live = d.live_generation.is_not(None)
    some = sa.select(d.chunks).where(is_live, *_conditions(conn, scope, None))
    counted = some.limit(FEW_DOCUMENTS).subquery()
    whole = sa.func.coalesce(sa.func.sum(counted.c.chunks), 0).label("chunks")
    return sa.select(sa.func.count().label("documents"), whole)


def locate(
    conn: sa.Connection, scope: Scope, ids: Sequence[int], limit: int
) -> list[ChunkLocation]:
    """Locate chunks, in the order of `ids`: once per document, on the first page."""
    query = dialect.cached(
        conn, ("locate", _shape(scope)), lambda: _location_statement(conn, scope)
    )
    ranked = dialect.encode_rows([[chunk_id, rank] for rank, chunk_id in enumerate(ids)])
    given = {"ids": ranked, "limit": limit, **_parameters(conn, scope, None)}
    # A text may occur twice on a page: keep the first.
    found = {}
    for _, *location in conn.execute(query, given).all():
        one = ChunkLocation(*location)
        found[one.chunk_id, one.document_id] = one
    named = _corpora_of(conn, [location.document_id for location in found.values()])
    return [
        location._replace(corpora=tuple(named.get(location.document_id, ())))
        for location in found.values()
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
    """List the models of a tenant's live documents, each with one document's settings."""
    rows = conn.execute(
        dialect.cached(conn, "models in use", _models_statement), {"tenant": tenant}
    )
    return [(Model(*model), settings) for *model, settings in rows]


def _models_statement() -> sa.Select[Any]:
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
    """List the languages of a tenant's chunks, with one index probe each."""
    query = dialect.cached(conn, "languages", _languages_statement)
    return list(conn.scalars(query, {"tenant": tenant}).all())


def _languages_statement() -> sa.Select[Any]:
    c = chunks.c
    mine = c.tenant == sa.bindparam("tenant")
    first = sa.select(sa.func.min(c.language).label("language")).where(mine)
    seen = first.cte("seen", recursive=True)
    after = sa.select(sa.func.min(c.language)).where(mine, c.language > seen.c.language)
    seen = seen.union_all(sa.select(after.scalar_subquery()).where(seen.c.language.is_not(None)))
    return sa.select(seen.c.language).where(seen.c.language.is_not(None))


def _join_live(query: sa.Select[Any], listed: sa.CTE | None = None) -> sa.Select[Any]:
    """Join from slices, or from listed chunks, to the live documents that contain them."""
    is_live = sa.and_(d.id == gp.document_id, d.live_generation == gp.generation)
    has_cut = sa.and_(
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
        .join(generations, has_cut)
    )


def _first_pages(conn: sa.Connection, scope: Scope) -> sa.CTE:
    """Find the first page of each chunk of `ids` in each document, up to the limit."""
    each = dialect.json_rows(conn, "ids", {"chunk": "int", "rank": "int"})
    first = sa.func.min(gp.number).label("number")
    query = (
        _join_live(sa.select(each.c.rank, each.c.chunk, d.id.label("document"), first), each)
        .where(*_conditions(conn, scope, None, by_chunk=True))
        .group_by(each.c.rank, each.c.chunk, d.id)
    )
    limited = query.order_by(each.c.rank, d.id).limit(sa.bindparam("limit", type_=sa.Integer))
    return limited.cte("first_pages").prefix_with("MATERIALIZED")


def _live_of(
    conn: sa.Connection, scope: Scope, ids: Sequence[int], model: Model | None
) -> set[int]:
    """Return which of the chunks occur in a live document of the scope."""
    if not ids:
        return set()
    key = "live of", _shape(scope), model is None
    query = dialect.cached(conn, key, lambda: _live_statement(conn, scope, model))
    given = {"ids": dialect.encode_rows([[i] for i in ids]), **_parameters(conn, scope, model)}
    return set(conn.scalars(query, given).all())


def _live_statement(conn: sa.Connection, scope: Scope, model: Model | None) -> sa.Select[Any]:
    each = dialect.json_rows(conn, "ids", {"id": "int"})
    here = _join_live(sa.select(sa.literal_column("1"))).where(
        s.chunk_id == each.c.id, *_conditions(conn, scope, model, by_chunk=True)
    )
    return sa.select(each.c.id).where(here.correlate(each).exists())


def _filter(conn: sa.Connection, scope: Scope, model: Model | None) -> ChunkFilter:
    """Allow all chunks of the live documents in the scope."""
    if dialect.is_sqlite(conn):  # inside of a search, it plans such a subquery badly
        return _chunk_array(conn, scope, model)
    return ChunkFilter(_parameters(conn, scope, model), _live_chunks(conn, scope, model))


def _live_chunks(conn: sa.Connection, scope: Scope, model: Model | None) -> sa.Select[Any]:
    is_live = sa.and_(g.document_id == d.id, g.generation == d.live_generation)
    # Materialized: otherwise the scope is checked per page instead of per document.
    found = (
        sa.select(d.id, d.live_generation, g.cut_id)
        .join(generations, is_live)
        .where(*_conditions(conn, scope, model))
        .cte("in_scope")
        .prefix_with("MATERIALIZED")
    )
    pages_of = sa.and_(gp.document_id == found.c.id, gp.generation == found.c.live_generation)
    return (
        sa.select(s.chunk_id)
        .select_from(found)
        .join(generation_pages, pages_of)
        .join(slices, sa.and_(s.page_id == gp.page_id, s.cut_id == found.c.cut_id))
    )


def _chunk_array(conn: sa.Connection, scope: Scope, model: Model | None) -> ChunkFilter:
    """List the chunks as an array: the planner would run a subquery once per match."""

    def build() -> sa.Select[Any]:
        found = _live_chunks(conn, scope, model).subquery("few")
        # Passed as text: Python never reads the ids.
        if dialect.is_sqlite(conn):
            return sa.select(sa.func.json_group_array(found.c.chunk_id.distinct()))
        listed = sa.func.array_agg(found.c.chunk_id.distinct())
        return sa.select(sa.cast(sa.func.coalesce(listed, sa.text("'{}'")), sa.Text))

    query = dialect.cached(conn, ("few chunks", _shape(scope), model is None), build)
    return ChunkFilter.from_array(conn.execute(query, _parameters(conn, scope, model)).scalar_one())


def _conditions(
    conn: sa.Connection, scope: Scope, model: Model | None, *, by_chunk: bool = False
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on documents; `_parameters` has their values."""

    def unindexed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # SQLite has no statistics and would start with all documents of the tenant.
        return sa.func.coalesce(column, column) if hides_index else column

    hides_index = by_chunk and dialect.is_sqlite(conn)
    conditions: list[sa.ColumnElement[bool]] = [unindexed(d.tenant) == sa.bindparam("of_tenant")]
    if model is not None:
        conditions.append(g.model_id == sa.bindparam("of_model"))
    if scope.corpus_id is not None:
        listed = corpus_documents.c
        mine = sa.select(listed.document_id).where(listed.corpus_id == sa.bindparam("of_corpus"))
        conditions.append(unindexed(d.id).in_(mine))
    if scope.documents:
        conditions.append(dialect.id_in(conn, unindexed(d.id), "of_documents"))
    if scope.media_type is not None:
        conditions.append(d.media_type == sa.bindparam("of_media_type"))
    for at in range(len(scope.where)):
        conditions.append(
            _metadata_value(conn, f"key_{at}") == sa.bindparam(f"value_{at}", type_=sa.Text)
        )
    return conditions


def _parameters(conn: sa.Connection, scope: Scope, model: Model | None) -> dict[str, Any]:
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
    """Return what determines the text of a statement."""
    is_typed = scope.media_type is not None
    return scope.corpus_id is not None, bool(scope.documents), is_typed, len(scope.where)


def _metadata_value(conn: sa.Connection, name: str) -> sa.ColumnElement[Any]:
    """Return the metadata value, as text, of the key given by the parameter `name`."""
    key = sa.bindparam(name, type_=sa.Text)
    if not dialect.is_sqlite(conn):
        return dialect.jsonb(d.metadata).op("->>")(key)
    each = sa.func.json_each(d.metadata).table_valued("key", "value", "type")
    # A JSON boolean becomes a number in SQL; its type is its text.
    text = sa.case(
        (each.c.type.in_(("true", "false")), each.c.type), else_=sa.cast(each.c.value, sa.Text)
    )
    return sa.select(text).where(each.c.key == key).limit(1).scalar_subquery()


def _location_statement(conn: sa.Connection, scope: Scope) -> sa.Select[Any]:
    """Select what a search result shows of located chunks, in their order."""
    at = _first_pages(conn, scope)
    # Boxes are addressed by offsets into the page's text, which is needed only with them.
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
    query = dialect.cached(conn, "corpora of", lambda: _corpora_statement(conn))
    named: dict[int, list[str]] = {}
    for document_id, name in conn.execute(query, {"ids": dialect.encode_ids(conn, ids)}):
        named.setdefault(document_id, []).append(name)
    return named


def _corpora_statement(conn: sa.Connection) -> sa.Select[Any]:
    listed = corpus_documents.c
    return (
        sa.select(listed.document_id, corpora.c.name)
        .join(corpora, corpora.c.id == listed.corpus_id)
        .where(dialect.id_in(conn, listed.document_id, "ids"))
        .order_by(corpora.c.name)
    )
