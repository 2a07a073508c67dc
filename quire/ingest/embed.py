"""Embed: compute the vectors of chunks that have none of the model yet."""

from dataclasses import dataclass

from quire.ingest import resources
from quire.ingest.chunk import Chunks
from quire.ingest.fetch import DocumentFile
from quire.ingest.read import ReadPages
from quire.model.context import TaskContext
from quire.store.documents import pages

#: Chunks between two progress reports; the embedder of an endpoint reports before each request.
BATCH = 512


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of some chunks."""

    by_digest: dict[str, bytes]
    reused: set[str]  # digests of chunks that had a vector


def embed(ctx: TaskContext, file: DocumentFile, read: ReadPages, chunks: Chunks) -> Vectors:
    """Embed the new chunks, and those of reused pages that the model has not embedded yet."""
    if file.model_id is None:
        return Vectors({}, set())
    page_ids = [page.id for page in read.stored.values()]
    with ctx.database.read() as conn:
        done = pages.embedded(conn, file.build.tenant, file.model_id, list(chunks.texts))
        old = pages.chunks_without_vector(conn, page_ids, file.cut_id, file.model_id)
    todo = {name: chunk.text for name, chunk in chunks.texts.items() if name not in done}
    todo.update(old)
    names, waiting = list(todo), resources.Waiting(ctx)
    vectors: dict[str, bytes] = {}
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        ctx.check()
        rows = file.embedder.embed([todo[name] for name in batch], waiting)
        vectors |= {name: row.tobytes() for name, row in zip(batch, rows, strict=True)}
        if len(names) > BATCH:
            ctx.progress(None, f"embedded {len(vectors):,} of {len(names):,} chunks")
    return Vectors(vectors, done)
