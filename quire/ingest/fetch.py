"""Fetch: copy the bytes of a document into the blob store and record what is made of them.

The result is a `DocumentFile`, the input of all later stages. Other tasks of the same generation
get it from `load`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import Damaged, FetchFailed
from quire.fetch.blobs.backend import open_blobs
from quire.fetch.items import Item
from quire.ingest import resources
from quire.model.context import TaskContext
from quire.model.pipeline import Pipeline, digest
from quire.parse import formats
from quire.parse.parser import ReadOptions
from quire.store import Transaction
from quire.store.documents import admission, generations, pages
from quire.store.documents.generations import Build
from quire.store.search import vectors
from quire.text.tokens import ESTIMATE

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


def options_of(pipeline: Pipeline) -> ReadOptions:
    """Return the settings of a corpus that the parser needs."""
    languages = tuple(each.strip() for each in pipeline.ocr_languages.split(",") if each.strip())
    ocr: Any = pipeline.ocr
    return ReadOptions(pipeline.parser, ocr, languages, pipeline.row_size, pipeline.layout)


def fetch(ctx: TaskContext, document_id: int, payload: Mapping[str, Any]) -> DocumentFile:
    """Start the generation of the task, fetch its file, and record the inputs of the build."""
    if "digest" not in payload:
        return _download(ctx, document_id, payload)
    build = ctx.write(lambda tx: _mark(tx, ctx, document_id))
    path = open_blobs(ctx.settings).checked_path(payload["digest"], payload["size"])
    file = _identify(ctx, build, payload["digest"], path)
    return ctx.write(lambda tx: _record(tx, ctx, file, is_marked=True))


def load(ctx: TaskContext, document_id: int, generation: int) -> DocumentFile:
    """Return the file of a generation that an earlier task fetched."""
    with ctx.database.read() as conn:
        build, inputs = generations.inputs_of(conn, document_id, generation)
        size = pages.size_of(conn, build.tenant, inputs["digest"])
    pipeline = Pipeline().merged(build.settings)
    return DocumentFile(
        build=build,
        path=open_blobs(ctx.settings).checked_path(inputs["digest"], size or 0),
        pipeline=pipeline,
        embedder=resources.embedder_with_dimensions(ctx, pipeline),
        uses_tsvector=not ctx.database.stems_words,
        **inputs,
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


def _mark(tx: Transaction, ctx: TaskContext, document_id: int) -> Build:
    return generations.start(tx.connection, ctx.task_id, document_id, now=tx.now)


def _download(ctx: TaskContext, document_id: int, payload: Mapping[str, Any]) -> DocumentFile:
    """Download into a partial file, which a later attempt resumes, and store that as a blob."""
    item = Item(**resources.unsealed(ctx, payload["item"]))
    blobs = open_blobs(ctx.settings)
    unmarked = None
    if item.uri.startswith("file:") and (item.size or SMALL_LOCAL_FILE) < SMALL_LOCAL_FILE:
        with ctx.database.read() as conn:
            unmarked = generations.peek(conn, ctx.task_id, document_id)
    build = unmarked or ctx.write(lambda tx: _mark(tx, ctx, document_id))
    blobs.check_available()
    source = resources.source_for(ctx, payload["source"], payload["options"])
    part = blobs.part_path(f"task-{ctx.task_id}")

    def report(done: int, total: int | None) -> None:
        ctx.progress(done / total if total else None, f"fetched {done:,} bytes")

    fetched = source.fetch(item, part, report, ctx.check)
    file = _identify(ctx, build, fetched.sha256, part)

    def record(tx: Transaction) -> DocumentFile:
        pages.put_content(tx.connection, build.tenant, file.digest, fetched.size, tx.now.wall)
        return _record(tx, ctx, file, is_marked=unmarked is None)

    # The row first: it protects the file from the garbage collector.
    file = ctx.write(record)
    blobs.put(part, file.digest)
    try:
        return replace(file, path=blobs.checked_path(file.digest, fetched.size))
    except Damaged as error:
        # A stale run of this task, which has lost its lease, wrote to the same partial file.
        blobs.delete(file.digest)
        raise FetchFailed(f"{item.name}: {error} The file is fetched again.") from error


def _identify(ctx: TaskContext, build: Build, stored: str, path: Path) -> DocumentFile:
    """Detect the type of a file and compute its recipe; `_record` adds the two ids."""
    pipeline = Pipeline().merged(build.settings)
    embedder = resources.embedder_with_dimensions(ctx, pipeline)
    media_type = resources.reader(ctx, build.tenant).detect(path, build.name)
    recipe = recipe_of(media_type, pipeline, embedder.name)
    return DocumentFile(
        build, stored, path, media_type, recipe, pipeline, embedder,
        cut_id=0, model_id=None, uses_tsvector=not ctx.database.stems_words,
    )  # fmt: skip


def recipe_of(media_type: str, pipeline: Pipeline, embedder: str) -> str:
    """Return the digest of everything besides the file that decides what is indexed."""
    return digest(
        formats.recipe(media_type, options_of(pipeline)),
        pipeline.cut(),
        pipeline.row_size,
        embedder,
    )


def _record(
    tx: Transaction, ctx: TaskContext, file: DocumentFile, *, is_marked: bool
) -> DocumentFile:
    """Record what the generation is made from, and mark the document as indexing if needed."""
    conn, build, embedder = tx.connection, file.build, file.embedder
    cut = file.pipeline.cut() | {"counter": ESTIMATE}
    cut_id = generations.chunking_id(conn, digest(cut), admission.canonical_json(cut))
    model_id = None
    if embedder.dimensions:
        model_id = vectors.register(conn, embedder.name, embedder.dimensions)
    if is_marked:
        generations.require_building(conn, build.document_id, build.generation)
    else:
        build = _mark(tx, ctx, build.document_id)
    generations.record_inputs(
        conn,
        build.document_id,
        build.generation,
        digest=file.digest,
        recipe=file.recipe,
        media_type=file.media_type,
        cut_id=cut_id,
        model_id=model_id,
    )
    return replace(file, build=build, cut_id=cut_id, model_id=model_id)
