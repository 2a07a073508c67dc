"""Writes synthetic documents into a database, live and searchable; with COPY on PostgreSQL."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from benchmarks.ingest.synthetic import CHUNKS_PER_PAGE, Chunk, SyntheticDocument
from quire.clock import Instant
from quire.ingest import document_words
from quire.model.pages import ChunkSpan, Page
from quire.model.pipeline import Pipeline
from quire.model.search import Model
from quire.store.db import bulk, dialect
from quire.store.db.engine import Database
from quire.store.db.schema import documents as document_tables
from quire.store.documents import admission, corpora, generation_pages, generations, pages
from quire.store.queue import owners
from quire.store.search import hnsw, sampled_gin, vectors
from quire.text import fields
from quire.text.embed.embedder import Embedder

CORPUS = "part"
_SHARE = 100  # one document in this many is in the corpus


class Ids(NamedTuple):
    """Ids and settings that all documents share."""

    cut: int
    model: Model
    corpus: int
    settings: str


class _Page(NamedTuple):
    """A page of a synthetic document."""

    key: str
    number: int
    chunks: list[Chunk]

    @property
    def text(self) -> str:
        return "\n".join(chunk.text for chunk in self.chunks)

    @property
    def heads(self) -> str:
        """The words of its first lines."""
        return fields.heads(self.text, "en")

    def chunked(self) -> pages.PageChunks:
        found, start = [], 0
        for chunk in self.chunks:
            found.append(ChunkSpan(start, start + len(chunk.text), len(chunk.text) // 4))
            start += len(chunk.text) + 1
        return pages.PageChunks(found, [chunk.digest for chunk in self.chunks])


def begin(tenant: str, embedder: Embedder, conn: Any, now: Instant) -> Ids:
    """Register what the documents share, and drop indexes; `complete` builds them."""
    pipeline = Pipeline()
    model_id = vectors.register(conn, embedder.name, embedder.dimensions)
    if not dialect.is_sqlite(conn):
        conn.exec_driver_sql(f"DROP INDEX ix_vectors_model_{model_id}")
        for name in ("ix_chunks_words", "ix_chunks_words_8", "ix_chunks_words_64"):
            conn.exec_driver_sql(f"DROP INDEX {name}")
    return Ids(
        generations.chunking_id(conn, "bench", admission.canonical_json(pipeline.cut())),
        Model(model_id, embedder.name, embedder.dimensions),
        corpora.get_or_create(conn, tenant, CORPUS, now=now).id,
        admission.canonical_json(asdict(pipeline)),
    )


def complete(db: Database, model: Model) -> None:
    """Build the indexes, and update the planner's statistics."""
    if db.path is None:
        with db.begin() as conn:
            dialect.lift_timeouts(conn, "0")
            conn.exec_driver_sql("SET LOCAL maintenance_work_mem = '2GB'")
            sampled_gin.create_indexes(conn)
            hnsw.create_index(conn, model)
    with db.begin() as conn:
        dialect.lift_timeouts(conn, "0")
        conn.exec_driver_sql("ANALYZE")


def insert(
    tenant: str, ids: Ids, documents: Sequence[SyntheticDocument], conn: Any, now: Instant
) -> None:
    """Write some documents and make them live."""
    owner = owners.lock_or_create(conn, tenant, "bench")
    sightings = [admission.ListedFile(v.uri, v.uri.rpartition(":")[2], "") for v in documents]
    admitted: list[Any] = []
    for number, one in enumerate(sightings):
        within = (ids.corpus,) if _is_chosen(documents[number]) else ()
        wish = admission.AdmissionRequest(owner, 0, "bench:", ids.settings, within)
        admitted += admission.admit(conn, wish, [one], now=now)
    conn.exec_driver_sql("UPDATE documents SET state = 'indexing' WHERE state = 'queued'")
    some = {document.uri: _pages(document) for document in documents}
    put = _put if dialect.is_sqlite(conn) else _copy
    page_ids = put(conn, tenant, ids, [page for each in some.values() for page in each])
    for one, (uri, own) in zip(admitted, some.items(), strict=True):
        named = {"cut_id": ids.cut, "model_id": ids.model.id, "recipe": None}
        generations.record_inputs(
            conn, one.document_id, one.generation, digest=uri, media_type="text/plain", **named
        )
        filled = [(page.number, page.key, page_ids[page.key], None) for page in own]
        generation_pages.fill(conn, one.document_id, one.generation, filled)
        generations.swap(conn, one.document_id, one.generation, now=now)
        counted = fields.PageWords()
        for page in own:
            counted.add(page.text, "en")
        document_words.put(conn, one.document_id, one.generation, counted.entries())


def _is_chosen(document: SyntheticDocument) -> bool:
    return int(document.uri.rpartition("-")[2]) % _SHARE == 0


def _pages(document: SyntheticDocument) -> list[_Page]:
    found = []
    for at in range(0, len(document.chunks), CHUNKS_PER_PAGE):
        number = at // CHUNKS_PER_PAGE + 1
        found.append(
            _Page(f"{document.uri} {number}", number, document.chunks[at : at + CHUNKS_PER_PAGE])
        )
    return found


def _put(conn: Any, tenant: str, ids: Ids, some: Sequence[_Page]) -> dict[str, int]:
    """Write with the pipeline's functions."""
    fresh = [
        pages.ReadPage(page.key, Page(page.number, page.text), "en", 0.0, page.heads)
        for page in some
    ]
    page_ids = pages.put(conn, tenant, fresh, 0)
    chunks = {chunk.digest: chunk for page in some for chunk in page.chunks}
    texts = {name: (c.text, "en", len(c.text) // 4) for name, c in chunks.items()}
    chunk_ids = pages.put_chunks(conn, tenant, texts, {n: c.text for n, c in chunks.items()}, 0)
    by_page = {page_ids[page.key]: page.chunked() for page in some}
    pages.put_slices(conn, ids.cut, by_page, chunk_ids)
    found = {name: chunk.vector for name, chunk in chunks.items()}
    pages.put_vectors(conn, tenant, ids.model.id, found, chunk_ids)
    return page_ids


def _copy(conn: Any, tenant: str, ids: Ids, some: Sequence[_Page]) -> dict[str, int]:
    """Write the same rows with COPY, which is faster."""
    t = document_tables
    numbers = dialect.reserve_ids(conn, t.pages, len(some))
    page_ids = {page.key: number for page, number in zip(some, numbers, strict=True)}
    fixed = (600.0, 800.0, "text", "en", 0.0)
    columns: tuple[str, ...] = (
        "id",
        "tenant",
        "key",
        "text",
        "width",
        "height",
        "via",
        "language",
        "seconds",
        "heads",
    )
    rows: list[Any] = [
        (page_ids[page.key], tenant, page.key, page.text, *fixed, page.heads) for page in some
    ]
    bulk.copy_rows(conn, t.pages, columns, rows)
    chunks = {chunk.digest: chunk for page in some for chunk in page.chunks}
    chunk_ids = dict(zip(chunks, dialect.reserve_ids(conn, t.chunks, len(chunks)), strict=True))
    columns = ("id", "tenant", "digest", "language", "text", "tokens", "words")
    rows = [
        (chunk_ids[name], tenant, name, "en", c.text, len(c.text) // 4, _tsvector(c.stems))
        for name, c in chunks.items()
    ]
    bulk.copy_rows(conn, t.chunks, columns, rows)
    by_page = {page_ids[page.key]: page.chunked() for page in some}
    pages.put_slices(conn, ids.cut, by_page, chunk_ids)
    rows = [
        (ids.model.id, chunk_ids[name], dialect.vector_text(c.vector), False)
        for name, c in chunks.items()
    ]
    bulk.copy_rows(conn, t.vectors, ("model_id", "chunk_id", "vector", "is_fresh"), rows)
    return page_ids


def _tsvector(stems: Sequence[str]) -> str:
    places: dict[str, list[str]] = {}
    for number, stem in enumerate(stems, start=1):
        places.setdefault(stem, []).append(str(number))
    return " ".join([f"'{stem}':{','.join(found)}" for stem, found in places.items()])
