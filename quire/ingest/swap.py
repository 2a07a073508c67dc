"""Swap: write what the other stages made, and make the generation visible to search.

Everything expensive is done before: the transaction only writes. Pages, chunks and vectors belong
to no generation; the swap changes three rows, whatever the number of pages.
"""

import json
from collections import Counter
from dataclasses import dataclass

from quire.ingest import attachments, document_words
from quire.ingest.chunk import Chunks
from quire.ingest.embed import Vectors
from quire.ingest.fetch import DocumentFile
from quire.ingest.read import ReadPages
from quire.model.context import TaskContext
from quire.store import Transaction
from quire.store.documents import generation_pages, generations, pages, reuse_stats
from quire.text.fields import PageEntries

#: Chunks that one transaction writes. More are written by several, before the last one.
MAX_CHUNKS = 1_000


@dataclass(frozen=True, slots=True)
class Output:
    """What the stages made of the pages of one task."""

    read: ReadPages
    chunks: Chunks
    vectors: Vectors

    def texts(self) -> list[tuple[str, str]]:
        """Return text and language of each page, as often as the document has it."""
        known = {key: (page.text, page.language) for key, page in self.read.stored.items()}
        known |= {each.key: (each.page.text, each.language) for each in self.read.fresh}
        return [known[key] for key in self.read.keys.values() if key in known]


class Collected(Exception):
    """Earlier work that this task counted on was garbage collected meanwhile."""


def swap(tx: Transaction, document_id: int, generation: int, counted: PageEntries) -> None:
    """Make a generation visible, or fail the task with the reason why it cannot be."""
    found = generations.swap(tx.connection, document_id, generation, now=tx.now)
    if found.failure is not None:
        tx.fail(found.failure)
        return
    document_words.put(tx.connection, document_id, generation, counted)
    tx.finish({"pages": found.pages, "chunks": found.chunks, "page_errors": found.page_errors})


def reuse_identical(ctx: TaskContext, file: DocumentFile) -> bool:
    """Copy a generation that was made from the same bytes with the same recipe, if there is one."""
    build = file.build
    with ctx.database.read() as conn:
        source = generations.find_identical(conn, build.tenant, file.digest, file.recipe)
    if source is None:
        return False
    attached = attachments.extract(ctx, file)
    counted = document_words.count(ctx.database, *source)
    try:
        with ctx.fenced() as tx:
            conn = tx.connection
            attachments.take_turn(tx, file, attached)
            generations.require_building(conn, build.document_id, build.generation)
            if not generation_pages.copy(conn, source, build.document_id, build.generation):
                raise Collected
            reuse_stats.add_reused_pages(
                conn, build.document_id, build.generation, is_whole_file=True
            )
            attachments.queue(tx, file, ctx.job_id, attached)
            source_id, _ = source
            generations.copy_thumbnail(conn, source_id, build.document_id)
            swap(tx, build.document_id, build.generation, counted)
    except Collected:
        return False
    return True


def write_chunks_ahead(
    ctx: TaskContext, file: DocumentFile, chunks: Chunks, vectors: Vectors
) -> None:
    """Write the chunks of a large file in several short transactions.

    No page refers to them before `write`.
    """
    names, tenant = sorted(chunks.texts), file.build.tenant
    if len(names) <= MAX_CHUNKS:
        return

    def write_batch(tx: Transaction) -> None:
        texts = {name: chunks.texts[name] for name in batch}
        ids = pages.put_chunks(tx.connection, tenant, texts, chunks.index_words, ctx.task_id)
        if file.model_id is not None:
            found = {n: vectors.by_digest[n] for n in batch if n in vectors.by_digest}
            pages.put_vectors(tx.connection, tenant, file.model_id, found, ids)

    for start in range(0, len(names), MAX_CHUNKS):
        batch = names[start : start + MAX_CHUNKS]
        ctx.write(write_batch)
        ctx.progress(None, f"stored {start + len(batch):,} of {len(names):,} chunks")


def write(tx: Transaction, task_id: int, file: DocumentFile, output: Output) -> None:
    """Write pages, chunks and vectors, and enter the pages into the generation.

    Raises `Collected` if a page or vector that was found before is gone: a task may last a day,
    longer than the grace of the garbage collector. What is there now is locked until the commit.
    """
    conn, build = tx.connection, file.build
    read, chunks, vectors = output.read, output.chunks, output.vectors
    generations.require_building(conn, build.document_id, build.generation)
    if read.stored and not pages.lock_stored(conn, build.tenant, read.stored):
        raise Collected
    ids = {key: page.id for key, page in read.stored.items()}
    ids.update(pages.put(conn, build.tenant, read.fresh, task_id))
    chunk_ids = pages.put_chunks(conn, build.tenant, chunks.texts, chunks.index_words, task_id)
    by_page = {ids[key]: found for key, found in chunks.by_page.items()}
    pages.put_slices(conn, file.cut_id, by_page, chunk_ids)
    if file.model_id is not None:
        pages.put_vectors(conn, build.tenant, file.model_id, vectors.by_digest, chunk_ids)
        left = pages.embedded(conn, build.tenant, file.model_id, sorted(vectors.reused))
        if left != vectors.reused:
            raise Collected
    filled: list[tuple[int, str, int | None, str | None]] = [
        (number, key, ids[key], None) for number, key in read.keys.items() if key in ids
    ]
    filled += [
        (number, read.keys.get(number, ""), None, _page_error(build.document_id, number, error))
        for number, error in read.failures.items()
    ]
    generation_pages.fill(conn, build.document_id, build.generation, filled)
    reuse_stats.add(conn, build.document_id, build.generation, _statistics(output))


def _page_error(document_id: int, number: int, error: str) -> str:
    command = f"quire document read {document_id} --page {number}"
    return json.dumps({"kind": "unreadable", "error": error, "command": command})


def _statistics(output: Output) -> dict[str, int]:
    """Count what was made and what was reused."""
    read = output.read
    made = Counter(
        "ocr" if fresh.page.via == "ocr" else "pages"
        for fresh in read.fresh
        if fresh.page.number not in read.reused_ocr
    )
    reused = {
        **read.reused, "cut": output.chunks.reused_pages, "vectors": len(output.vectors.reused),
    }  # fmt: skip
    return {
        **{f"{name}_made": count for name, count in made.items()},
        "vectors_made": len(output.vectors.by_digest),
        **{f"{name}_reused": count for name, count in reused.items() if count},
    }
