"""Finds live chunks by words and vectors, and locates them in documents.

An index contains chunks, not documents: its results may belong to an old generation, to another
tenant, or be outside the scope. So the index's best candidates are checked; if too few are live,
the index is queried again, restricted to live chunks. Nothing here writes. Run a whole search in
one `Database.read`, which sees one generation of each document.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from quire.model.pipeline import searchable
from quire.model.search import ChunkLocation, IndexHits, Model, Scope
from quire.model.states import GenerationState
from quire.store.db import dialect, document_entries
from quire.store.db.schema.documents import (
    chunks,
    corpora,
    corpus_documents,
    document_words,
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

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

#: Queries an index for a number of chunks, restricted by a filter (None: any).
IndexQuery = Callable[[int, ChunkFilter | None], IndexHits]

#: Candidates of the first query, and the maximum before the index is restricted to live chunks.
FIRST_CANDIDATES, MAX_CANDIDATES = 100, 1_000
#: A scope with at most this many chunks, counted over at most this many documents, is searched
#: exhaustively if it is a small part of the corpus.
FEW_CHUNKS, FEW_DOCUMENTS = 30_000, 1_000
#: Places that are looked at: a text may occur in very many documents.
MAX_PLACES = 2_000
#: Documents that are looked up for each entry of the index of documents; of more common entries,
#: only those that have a rarer one.
MAX_LISTED_DOCUMENTS = 5_000
#: Documents that `name:` and `year:` may restrict a search to.
MAX_NAMED = 10_000
#: The names of `_parameters`: they decide the text of a statement.
Names = tuple[str, ...]
d, g, gp, s = documents.c, generations.c, generation_pages.c, slices.c
w = document_words.c


class SearchPlan(NamedTuple):
    """A scope; if its chunks are few, a filter with them, and the number of its documents."""

    scope: Scope
    few: ChunkFilter | None
    documents: int = 0


def plan(conn: sa.Connection, scope: Scope) -> SearchPlan:
    """Decide how to search a scope."""
    if scope.is_closed:
        return SearchPlan(scope, _chunk_array(conn, scope, None), len(_documents_of(conn, scope)))
    if not (count := _count_few(conn, scope)):
        return SearchPlan(scope, None)
    return SearchPlan(scope, _chunk_array(conn, scope, None), count)


def candidate_count(depth: int) -> int:
    """Return how many candidates to fetch first, so that `depth` of them may be live."""
    return max(FIRST_CANDIDATES, 2 * depth)


def nearest_chunks(
    conn: sa.Connection, within: SearchPlan, find: IndexQuery, depth: int, model: Model
) -> list[tuple[int, float]]:
    """List up to `depth` live chunks that are nearest, if that many exist.

    Only documents embedded with the model are searched, unless the scope is small: a chunk's vector
    is the same in every document.
    """
    scope = within.scope
    if within.few is not None:
        return find(depth, within.few).ranked
    if scope.documents:  # selective: hardly any of the best candidates would pass
        return find(depth, _filter(conn, scope, model)).ranked
    count = candidate_count(depth)
    found, passed = _first(conn, scope, find, count, model)
    if len(passed) < depth and not found.is_complete and passed and not dialect.is_sqlite(conn):
        # Fetching more candidates is faster than scanning every live chunk.
        more = min(MAX_CANDIDATES, count * depth // len(passed))
        found, passed = _first(conn, scope, find, more, model)
    if len(passed) < depth and not found.is_complete:
        passed = find(depth, _filter(conn, scope, model)).ranked
    return passed[:depth]


def _first(
    conn: sa.Connection, scope: Scope, find: IndexQuery, count: int, model: Model | None
) -> tuple[IndexHits, list[tuple[int, float]]]:
    """Return the best chunks of the index, and the live ones among them."""
    found = find(count, None)
    live = _live_of(conn, scope, [i for i, _ in found.ranked], model)
    return found, [(i, score) for i, score in found.ranked if i in live]


def scope_chunks(conn: sa.Connection, scope: Scope) -> "Ids":
    """Return the ids of all chunks of the live documents in the scope, in order."""
    return _chunk_array(conn, scope, None).ids()


class DocumentMatches(NamedTuple):
    """Which documents in scope have which entries of the index of documents."""

    found: dict[str, list[int]]
    #: A row for each document, in order: id, words of the name and of all pages, chunks.
    documents: "Ids"
    total: int  # documents, and the average length of their pages
    average: float


def match_documents(
    conn: sa.Connection, within: SearchPlan, entries: Sequence[str]
) -> DocumentMatches:
    """Look up entries in the index of documents."""
    import numpy as np

    scope = within.scope
    most = MAX_LISTED_DOCUMENTS
    inside = _documents_of(conn, scope) if scope.is_closed else None
    lists = document_entries.matching(conn, scope.tenant, entries, most + 1, inside)
    found = {entry: ids for entry, ids in zip(entries, lists, strict=True) if 0 < len(ids) <= most}
    common = [entry for entry, ids in zip(entries, lists, strict=True) if len(ids) > most]
    some = sorted({document for ids in found.values() for document in ids})
    if common:
        lists = document_entries.matching(conn, scope.tenant, common, most, some[:most])
        found |= zip(common, lists, strict=True)
    given = _parameters(conn, scope, None) | {"ids": dialect.encode_ids(conn, some)}
    rows = conn.execute(_lengths(conn, tuple(given)), given).all() if some else []
    sizes = np.array([tuple(row) for row in rows], np.int64).reshape(-1, 4)
    count, average = _average(conn, scope.tenant, inside)
    return DocumentMatches(
        found,
        sizes[np.argsort(sizes[:, 0])],
        within.documents or count,
        float(average or 1.0),
    )


def entries_in(conn: sa.Connection, scope: Scope, entries: Sequence[str]) -> dict[str, list[int]]:
    """Return which documents in scope have entries that most documents lack, up to the maximum.

    Of a scope with very many documents, the first count.
    """
    lists = document_entries.matching(conn, scope.tenant, entries, 1)
    some = [entry for entry, ids in zip(entries, lists, strict=True) if ids]
    mine = None
    if scope != Scope(scope.tenant):
        given = _parameters(conn, scope, None)
        mine = list(conn.scalars(_in_scope(conn, tuple(given)), given))
    lists = document_entries.matching(conn, scope.tenant, some, MAX_LISTED_DOCUMENTS, mine)
    return {entry: ids for entry, ids in zip(some, lists, strict=True) if ids}


@dialect.statement
def _in_scope(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    live = d.live_generation.is_not(None)
    return (
        sa.select(d.id)
        .where(live, *_conditions(conn, names))
        .order_by(d.id)
        .limit(MAX_LISTED_DOCUMENTS)
    )


_AVERAGE = sa.select(sa.func.count(), sa.func.avg(w.length)).where(
    w.tenant == sa.bindparam("tenant")
)


def _average(
    conn: sa.Connection, tenant: str, inside: Sequence[int] | None
) -> tuple[int, float | None]:
    """Count documents, of all or of some, and average the lengths of their pages."""
    given: dict[str, Any] = {"tenant": tenant}
    query = _AVERAGE
    if inside is not None:
        given["ids"] = dialect.encode_ids(conn, inside)
        query = query.where(dialect.id_in(conn, w.document_id, "ids"))
    row = conn.execute(query, given).one()
    return row[0], row[1]


def _documents_of(conn: sa.Connection, scope: Scope) -> list[int]:
    """Return the live documents in the scope."""
    given = _parameters(conn, scope, None)
    return list(conn.scalars(_live_documents(conn, tuple(given)), given))


@dialect.statement
def _live_documents(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    is_live = d.live_generation.is_not(None)
    return sa.select(d.id).where(is_live, *_conditions(conn, names)).order_by(d.id)


@dialect.statement
def _lengths(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    spaces = sa.func.length(w.name) - sa.func.length(sa.func.replace(w.name, " ", ""))
    count = sa.func.coalesce(d.chunks, 0)
    return (
        sa.select(w.document_id, (spaces + 1).label("words"), w.length, count)
        .join(documents, sa.and_(d.id == w.document_id, d.live_generation == w.generation))
        .where(
            dialect.id_in(conn, w.document_id, "ids"),
            *_conditions(conn, tuple(name for name in names if name != "ids"), by_chunk=True),
        )
    )


def documents_named(conn: sa.Connection, scope: Scope, words: Sequence[str]) -> list[int]:
    """Return the documents whose name has all of the words; more than the maximum if too many."""
    most, tenant = MAX_NAMED, scope.tenant
    inside = _documents_of(conn, scope) if scope.is_closed else None
    lists = document_entries.matching(conn, tenant, words, most + 1, inside)
    shortest = min(lists, key=len)
    if len(shortest) > most:
        return shortest
    for entry, ids in zip(words, lists, strict=True):
        if len(ids) > most:  # not all of them are known
            [ids] = document_entries.matching(conn, tenant, [entry], most, shortest)
        shortest = sorted(set(shortest) & set(ids))
    return shortest


def first_chunks(conn: sa.Connection, ids: Sequence[int]) -> list[int]:
    """Return the first chunk of the first page of documents."""
    return list(conn.scalars(_first_chunks(conn), {"ids": dialect.encode_ids(conn, ids)}))


@dialect.statement
def _first_chunks(conn: sa.Connection) -> sa.Select[Any]:
    found = _join_live(sa.select(s.chunk_id))
    mine = dialect.id_in(conn, d.id, "ids")
    return found.where(mine, gp.number == 1, s.ordinal == 0)


class Place(NamedTuple):
    """A chunk on its first page in a document."""

    chunk_id: int
    document_id: int
    page: int


def places(conn: sa.Connection, scope: Scope, ids: Sequence[int]) -> list[Place]:
    """Find where chunks are, in the order of `ids`: once per document, on the first page."""
    if not ids:
        return []
    given = _parameters(conn, scope, None)
    query = _places(conn, tuple(given))
    ranked = dialect.encode_rows([[chunk_id, rank] for rank, chunk_id in enumerate(ids)])
    return [
        Place(*row) for row in conn.execute(query, given | {"ids": ranked, "limit": MAX_PLACES})
    ]


@dialect.statement
def _places(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    at = _first_pages(conn, names)
    return sa.select(at.c.chunk, at.c.document, at.c.number).order_by(at.c.rank, at.c.document)


class PlaceText(NamedTuple):
    """What a place is scored by: its chunk as the full-text index has it, so with its context,
    the chunk's language, and the words of the first lines of the page."""

    text: str
    language: str
    heads: str


def texts(conn: sa.Connection, found: Sequence[Place]) -> list[PlaceText]:
    """Return the texts of places, in their order."""
    rows = [[*place, at] for at, place in enumerate(found)]
    return [
        PlaceText(searchable(text, context), language, heads or "")
        for text, context, language, heads in conn.execute(
            _texts(conn), {"ids": dialect.encode_rows(rows)}
        )
    ]


@dialect.statement
def _texts(conn: sa.Connection) -> sa.Select[Any]:
    c = chunks.c
    kinds = {"chunk": "int", "document": "int", "number": "int", "rank": "int"}
    at = dialect.json_rows(conn, "ids", kinds)
    of_page = sa.and_(
        gp.document_id == d.id, gp.generation == d.live_generation, gp.number == at.c.number
    )
    return (
        sa.select(c.text, c.context, c.language, pages.c.heads)
        .select_from(at)
        .join(documents, d.id == at.c.document)
        .join(generation_pages, of_page)
        .join(pages, pages.c.id == gp.page_id)
        .join(chunks, c.id == at.c.chunk)
        .order_by(at.c.rank)
    )


def _count_few(conn: sa.Connection, scope: Scope) -> int:
    """Return the number of documents if they have so few chunks that an index would miss them."""
    if scope.where or scope.media_type is not None:
        return 0
    given = _parameters(conn, scope, None)
    row = conn.execute(_size(conn, tuple(given)), given).one()
    if row.documents == FEW_DOCUMENTS or row.chunks > FEW_CHUNKS:
        return 0
    is_few = bool(scope.documents) or int(row.chunks) * 10 < _estimate_chunks(conn)
    return int(row.documents) if is_few else 0


def _estimate_chunks(conn: sa.Connection) -> int:
    if not dialect.is_sqlite(conn):
        return sampled_gin.estimate_chunks(conn)
    return conn.exec_driver_sql("SELECT max(id) FROM chunks").scalar_one() or 0


@dialect.statement
def _size(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    is_live = d.live_generation.is_not(None)
    some = sa.select(d.chunks).where(is_live, *_conditions(conn, names))
    counted = some.limit(FEW_DOCUMENTS).subquery()
    whole = sa.func.coalesce(sa.func.sum(counted.c.chunks), 0).label("chunks")
    return sa.select(sa.func.count().label("documents"), whole)


def locate(conn: sa.Connection, found: Sequence[Place]) -> list[ChunkLocation]:
    """Return what a search result shows of chunks in their places, in order."""
    rows = [[at.chunk_id, rank, at.document_id, at.page] for rank, at in enumerate(found)]
    # A text may occur twice on a page: keep the first.
    first = {}
    for rank, *location in conn.execute(_locations(conn), {"ids": dialect.encode_rows(rows)}):
        first[rank] = ChunkLocation(*location)
    named = _corpora_of(conn, [location.document_id for location in first.values()])
    return [
        location._replace(corpora=tuple(named.get(location.document_id, ())))
        for location in first.values()
    ]


def models_in_use(
    conn: sa.Connection, tenant: str, corpus_id: int | None = None
) -> list[tuple[Model, str]]:
    """List the models of live documents, of a tenant or a corpus, each with one's settings."""
    given = {"tenant": tenant} | ({} if corpus_id is None else {"of_corpus": corpus_id})
    rows = conn.execute(_models(conn, tuple(given)), given)
    return [(Model(*model), settings) for *model, settings in rows]


@dialect.statement
def _models(_: sa.Connection, names: Names) -> sa.Select[Any]:
    m = models.c
    mine = [
        g.tenant == sa.bindparam("tenant"),
        is_state(g.state, GenerationState.LIVE),
        g.model_id == m.id,
    ]
    if "of_corpus" in names:
        mine.append(g.document_id.in_(_in_corpus()))
    settings = sa.select(g.settings).where(*mine).limit(1).correlate(models).scalar_subquery()
    used = sa.exists().where(*mine)
    return sa.select(m.id, m.name, m.dimensions, settings).where(used).order_by(m.id.desc())


def languages(conn: sa.Connection, tenant: str) -> list[str]:
    """List the languages of a tenant's chunks, with one index probe each."""
    return list(conn.scalars(_languages(conn), {"tenant": tenant}))


def languages_of(conn: sa.Connection, scope: Scope) -> list[str]:
    """List the languages of the chunks in a scope; slower with many of them."""
    given = {"ids": _chunk_array(conn, scope, None).given["of_chunks"]}
    return list(conn.scalars(_languages_of(conn), given))


@dialect.statement
def _languages_of(conn: sa.Connection) -> sa.Select[Any]:
    c = chunks.c
    within = dialect.id_in(conn, c.id, "ids")
    return sa.select(c.language).where(within).distinct().order_by(c.language)


@dialect.statement
def _languages(_: sa.Connection) -> sa.Select[Any]:
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


def _first_pages(conn: sa.Connection, names: Names) -> sa.CTE:
    """Find the first page of each chunk of `ids` in each document, up to the limit."""
    each = dialect.json_rows(conn, "ids", {"chunk": "int", "rank": "int"})
    first = sa.func.min(gp.number).label("number")
    query = (
        _join_live(sa.select(each.c.rank, each.c.chunk, d.id.label("document"), first), each)
        .where(*_conditions(conn, names, by_chunk=True))
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
    given = _parameters(conn, scope, model)
    query = _live(conn, tuple(given))
    return set(conn.scalars(query, given | {"ids": dialect.encode_rows([[i] for i in ids])}))


@dialect.statement
def _live(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    each = dialect.json_rows(conn, "ids", {"id": "int"})
    here = _join_live(sa.select(sa.literal_column("1"))).where(
        s.chunk_id == each.c.id, *_conditions(conn, names, by_chunk=True)
    )
    return sa.select(each.c.id).where(here.correlate(each).exists())


def _filter(conn: sa.Connection, scope: Scope, model: Model | None) -> ChunkFilter:
    """Allow all chunks of the live documents in the scope."""
    if dialect.is_sqlite(conn):  # inside of a search, it plans such a subquery badly
        return _chunk_array(conn, scope, model)
    given = _parameters(conn, scope, model)
    return ChunkFilter(given, _live_chunks(conn, tuple(given)))


@dialect.statement
def _live_chunks(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    is_live = sa.and_(g.document_id == d.id, g.generation == d.live_generation)
    # Materialized: otherwise the scope is checked per page instead of per document.
    found = (
        sa.select(d.id, d.live_generation, g.cut_id)
        .join(generations, is_live)
        .where(*_conditions(conn, names))
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
    given = _parameters(conn, scope, model)
    return ChunkFilter.from_array(conn.execute(_array(conn, tuple(given)), given).scalar_one())


@dialect.statement
def _array(conn: sa.Connection, names: Names) -> sa.Select[Any]:
    found = _live_chunks(conn, names).subquery("few")
    # Passed as text: Python never reads the ids.
    if dialect.is_sqlite(conn):
        return sa.select(sa.func.json_group_array(found.c.chunk_id.distinct()))
    listed = sa.func.array_agg(found.c.chunk_id.distinct())
    return sa.select(sa.cast(sa.func.coalesce(listed, sa.text("'{}'")), sa.Text))


def _parameters(conn: sa.Connection, scope: Scope, model: Model | None) -> dict[str, Any]:
    """Return what restricts a search; `_conditions` has a condition for each name."""
    given = {
        "of_tenant": scope.tenant,
        "of_model": None if model is None else model.id,
        "of_corpus": scope.corpus_id,
        "of_documents": dialect.encode_ids(conn, scope.documents) if scope.documents else None,
        "of_media_type": scope.media_type,
    }
    for at, (key, value) in enumerate(scope.where):
        given |= {f"key_{at}": key, f"value_{at}": value}
    return {name: value for name, value in given.items() if value is not None}


def _conditions(
    conn: sa.Connection, names: Names, *, by_chunk: bool = False
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on documents."""

    def unindexed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # SQLite has no statistics and would start with all documents of the tenant.
        return sa.func.coalesce(column, column) if hides_index else column

    hides_index = by_chunk and dialect.is_sqlite(conn)
    conditions = {
        "of_tenant": unindexed(d.tenant) == sa.bindparam("of_tenant"),
        "of_model": g.model_id == sa.bindparam("of_model"),
        "of_corpus": unindexed(d.id).in_(_in_corpus()),
        "of_documents": dialect.id_in(conn, unindexed(d.id), "of_documents"),
        "of_media_type": d.media_type == sa.bindparam("of_media_type"),
    }
    for at in range(sum(name.startswith("key_") for name in names)):
        value = sa.bindparam(f"value_{at}", type_=sa.Text)
        conditions[f"value_{at}"] = _metadata_value(conn, f"key_{at}") == value
    return [condition for name, condition in conditions.items() if name in names]


def _in_corpus() -> sa.Select[Any]:
    listed = corpus_documents.c
    return sa.select(listed.document_id).where(listed.corpus_id == sa.bindparam("of_corpus"))


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


@dialect.statement
def _locations(conn: sa.Connection) -> sa.Select[Any]:
    """Select what a search result shows of located chunks, in their order."""
    kinds = {"chunk": "int", "rank": "int", "document": "int", "number": "int"}
    at = dialect.json_rows(conn, "ids", kinds)
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
        .order_by(at.c.rank, s.start.desc())
    )  # fmt: skip


def _corpora_of(conn: sa.Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    named: dict[int, list[str]] = {}
    given = {"ids": dialect.encode_ids(conn, ids)}
    for document_id, name in conn.execute(_corpus_names(conn), given):
        named.setdefault(document_id, []).append(name)
    return named


@dialect.statement
def _corpus_names(conn: sa.Connection) -> sa.Select[Any]:
    listed = corpus_documents.c
    return (
        sa.select(listed.document_id, corpora.c.name)
        .join(corpora, corpora.c.id == listed.corpus_id)
        .where(dialect.id_in(conn, listed.document_id, "ids"))
        .order_by(corpora.c.name)
    )
