"""Fetch: copy the bytes of a document into the blob store and record what is made of them.

The result is a `DocumentFile`, the input of all later stages. Other tasks of the same generation
get it from `load`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import Damaged, FetchFailed
from quire.fetch.blobs.backend import open_blobs
from quire.fetch.items import Item
from quire.ingest import resources
from quire.model.context import TaskContext
from quire.model.pipeline import Pipeline, digest
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from quire.store import Transaction
from quire.store.documents import admission, generations, pages
from quire.store.documents.generations import Build
from quire.store.search import vectors
from quire.text.tokens import EstimatedCounter

if TYPE_CHECKING:
    from quire.text.embed.embedder import Embedder

#: Bytes. Copying a smaller local file is faster than a separate write of the state "indexing".
SMALL_LOCAL_FILE = 32 << 20


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """The file of one generation, and everything that decides how it is indexed."""

    build: Build
    digest: str  # SHA-256 of the bytes
    path: Path
    media_type: str
    recipe: str  # digest of all settings and versions that decide the result
    pipeline: Pipeline
    embedder: "Embedder"
    cut_id: int  # the chunking settings
    model_id: int | None  # the embedding model, if there is one
    uses_tsvector: bool  # the full-text index is that of PostgreSQL, not FTS5

    @property
    def options(self) -> ReadOptions:
        """The settings that the parser needs."""
        return options_of(self.pipeline)


class _Started(NamedTuple):
    """A generation, and whether the document is already marked as indexing."""

    build: Build
    is_marked: bool


class _Content(NamedTuple):
    """Bytes that are here, what type they have, and how they are to be indexed."""

    digest: str
    size: int
    path: Path
    media_type: str
    recipe: str
    pipeline: Pipeline
    embedder: "Embedder"


def options_of(pipeline: Pipeline) -> ReadOptions:
    """Return the settings of a corpus that the parser needs."""
    languages = tuple(each.strip() for each in pipeline.ocr_languages.split(",") if each.strip())
    ocr: Any = pipeline.ocr
    return ReadOptions(pipeline.parser, ocr, languages, pipeline.row_size)


def fetch(ctx: TaskContext, document_id: int, payload: Mapping[str, Any]) -> DocumentFile:
    """Start the generation of the task, fetch its file, and record the inputs of the build."""
    started = _start(ctx, document_id, payload)
    stored, size = payload.get("digest"), payload.get("size", 0)
    if stored is None:
        return _download(ctx, started, payload)
    path = open_blobs(ctx.settings).checked_path(stored, size)
    content = _identify(ctx, started.build, stored, size, path)
    return ctx.write(lambda tx: _record(tx, ctx, started, content))


def load(ctx: TaskContext, document_id: int, generation: int) -> DocumentFile:
    """Return the file of a generation that an earlier task fetched."""
    with ctx.database.read() as conn:
        found = generations.inputs_of(conn, document_id, generation)
        size = pages.size_of(conn, found.build.tenant, found.digest)
    pipeline = Pipeline().merged(found.build.settings)
    return DocumentFile(
        build=found.build,
        digest=found.digest,
        path=open_blobs(ctx.settings).checked_path(found.digest, size or 0),
        media_type=found.media_type,
        recipe=found.recipe,
        pipeline=pipeline,
        embedder=resources.embedder_with_dimensions(ctx, pipeline),
        cut_id=found.cut_id,
        model_id=found.model_id,
        uses_tsvector=_uses_tsvector(ctx),
    )


def store_bytes(ctx: TaskContext, tenant: str, content: bytes, label: str) -> str:
    """Store bytes that a stage made (a thumbnail, an attachment) as a blob; return the digest."""
    name = hashlib.sha256(content).hexdigest()
    blobs = open_blobs(ctx.settings)
    part = blobs.part_path(f"{label}-{ctx.task_id}")
    part.write_bytes(content)
    # The row first: it protects the file from the garbage collector.
    ctx.write(lambda tx: pages.put_content(tx.connection, tenant, name, len(content), tx.now.wall))
    blobs.put(part, name)
    return name


def _start(ctx: TaskContext, document_id: int, payload: Mapping[str, Any]) -> _Started:
    item = payload.get("item")
    if item is not None and _is_small_local_file(item):
        with ctx.database.read() as conn:
            found = generations.peek(conn, ctx.task_id, document_id)
        if found is not None:
            return _Started(found, False)  # `_record` marks it
    return _Started(ctx.write(lambda tx: _mark(tx, ctx, document_id)), True)


def _mark(tx: Transaction, ctx: TaskContext, document_id: int) -> Build:
    return generations.start(tx.connection, ctx.task_id, document_id, now=tx.now)


def _is_small_local_file(item: Mapping[str, Any]) -> bool:
    size = item.get("size") or SMALL_LOCAL_FILE
    return item["uri"].startswith("file:") and size < SMALL_LOCAL_FILE


def _download(ctx: TaskContext, started: _Started, payload: Mapping[str, Any]) -> DocumentFile:
    """Download into a partial file, which a later attempt resumes, and store that as a blob."""
    item, blobs = Item(**payload["item"]), open_blobs(ctx.settings)
    blobs.check_available()
    source = resources.source_of(ctx.settings, payload["source"], payload["options"])
    part = blobs.part_path(f"task-{ctx.task_id}")

    def report(done: int, total: int | None) -> None:
        ctx.progress(done / total if total else None, f"fetched {done:,} bytes")

    fetched = source.fetch(item, part, report, ctx.check)
    content = _identify(ctx, started.build, fetched.sha256, fetched.size, part)

    def record(tx: Transaction) -> DocumentFile:
        tenant = started.build.tenant
        pages.put_content(tx.connection, tenant, content.digest, content.size, tx.now.wall)
        return _record(tx, ctx, started, content)

    # The row first: it protects the file from the garbage collector.
    file = ctx.write(record)
    blobs.put(part, content.digest)
    try:
        return replace(file, path=blobs.checked_path(content.digest, content.size))
    except Damaged as error:
        # A stale run of this task, which has lost its lease, wrote to the same partial file.
        blobs.delete(content.digest)
        raise FetchFailed(f"{item.name}: {error} The file is fetched again.") from error


def _identify(ctx: TaskContext, build: Build, stored: str, size: int, path: Path) -> _Content:
    """Detect the type of a file and compute its recipe."""
    pipeline = Pipeline().merged(build.settings)
    embedder = resources.embedder_with_dimensions(ctx, pipeline)
    media_type = file_type.detect(path, build.name)
    recipe = digest(
        formats.recipe(media_type, options_of(pipeline)),
        pipeline.cut(),
        pipeline.row_size,
        embedder.name,
    )
    return _Content(stored, size, path, media_type, recipe, pipeline, embedder)


def _record(
    tx: Transaction, ctx: TaskContext, started: _Started, content: _Content
) -> DocumentFile:
    """Record what the generation is made from, and mark the document as indexing if needed."""
    conn, embedder = tx.connection, content.embedder
    cut = content.pipeline.cut() | {"counter": EstimatedCounter().name}
    cut_id = generations.chunking_id(conn, digest(cut), admission.canonical_json(cut))
    model_id = None
    if embedder.dimensions:
        model_id = vectors.register(conn, embedder.name, embedder.dimensions)
    build = started.build
    if started.is_marked:
        generations.require_building(conn, build.document_id, build.generation)
    else:
        build = _mark(tx, ctx, build.document_id)
    generations.record_inputs(
        conn,
        build.document_id,
        build.generation,
        digest=content.digest,
        recipe=content.recipe,
        media_type=content.media_type,
        cut_id=cut_id,
        model_id=model_id,
    )
    return DocumentFile(
        build, content.digest, content.path, content.media_type, content.recipe, content.pipeline,
        embedder, cut_id, model_id, _uses_tsvector(ctx),
    )  # fmt: skip


def _uses_tsvector(ctx: TaskContext) -> bool:
    return not ctx.database.stems_words
