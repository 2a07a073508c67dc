"""The job kinds of ingestion, each as a sequence of stages.

`ingest` lists sources and queues an `ingest.document` per file. A small document is indexed by
that one task; a large one is split into `ingest.range` tasks and an `ingest.swap` after them.
Importing this module loads no parser and no model.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from quire.errors import Overtaken, Permanent, Unreadable
from quire.model.context import TaskContext
from quire.model.contracts import job

if TYPE_CHECKING:
    from quire.ingest.fetch import DocumentFile
    from quire.ingest.read import ReadPages
    from quire.ingest.split import Layout
    from quire.ingest.swap import Output
    from quire.store import Transaction
    from quire.text.fields import PageEntries

_DAY = 24 * 3600.0
#: Seconds without progress. Longer than a fetch retries one chunk, or a file without pages is read.
_STALLED = 1800.0
_document_job = partial(
    job, max_attempts=3, timeout=_DAY, stall_timeout=_STALLED, backoff=5.0, memory=4 << 30,
    internal=True,
)  # fmt: skip


@job("ingest", max_attempts=6, timeout=7 * _DAY, backoff=5.0)
def ingest(ctx: TaskContext, **payload: Any) -> None:
    """List sources and queue the files that are new or have changed."""
    from quire.ingest import listing

    listing.run(ctx, **payload)


@_document_job("ingest.document")
def document(ctx: TaskContext, document: int, **payload: Any) -> None:
    """Fetch a file; index it if it is small, split it if it is large."""
    _run_document(ctx, document, payload)


# Waiting for the rate limit of an embedding endpoint counts, hence a day.
@job(
    "ingest.range", max_attempts=3, timeout=_DAY, stall_timeout=600.0, backoff=2.0, memory=4 << 30,
    internal=True,
)  # fmt: skip
def pages(ctx: TaskContext, document: int, unit: str = "page", **_: Any) -> None:
    """Read, chunk and embed a range of pages of a document that was split."""
    from quire.ingest import fetch, read, swap
    from quire.store.documents import generation_pages, generations
    from quire.store.reports import tasks as task_reports

    with ctx.database.read() as conn:
        span = task_reports.span_of(conn, ctx.task_id)
        is_building = generations.is_building(conn, document, span.generation)
    if not is_building:
        _skip(ctx, f"generation {span.generation} of document {document} is not being indexed")
        return
    if unit != "page":
        raise Permanent(
            f"document {document}: was split by an earlier release, which counted rows. "
            "Index it again."
        )
    file = fetch.load(ctx, document, span.generation)

    def find() -> "ReadPages":
        with ctx.database.read() as conn:
            keys = generation_pages.unread(
                conn, document, span.generation, span.from_page, span.to_page
            )
        return read.read_pages(ctx, file, keys)

    try:
        _write(ctx, file, find, lambda output: lambda tx: swap.write(tx, ctx.task_id, file, output))
    except Overtaken as error:
        _skip(ctx, str(error))


@_document_job("ingest.swap")
def swap(ctx: TaskContext, document: int, **payload: Any) -> None:
    """Make a generation visible when all of its ranges have ended.

    If it was retried after its generation failed, it indexes the document anew.
    """
    from quire.ingest import document_words
    from quire.ingest import swap as stage
    from quire.store.documents import generations
    from quire.store.reports import tasks as task_reports

    with ctx.database.read() as conn:
        generation = task_reports.span_of(conn, ctx.task_id).generation
        is_building = generations.is_building(conn, document, generation)
    if not is_building:
        _run_document(ctx, document, payload)
        return
    counted = document_words.count(ctx.database, document, generation)
    try:
        with ctx.fenced() as tx:
            stage.swap(tx, document, generation, counted)
    except Overtaken as error:
        _skip(ctx, str(error))


def _run_document(ctx: TaskContext, document_id: int, payload: Mapping[str, Any]) -> None:
    from quire.ingest import fetch, swap

    try:
        file = fetch.fetch(ctx, document_id, payload)
        if swap.reuse_identical(ctx, file):
            return
        try:
            _index_or_split(ctx, file, payload)
        except Unreadable as error:
            # The parser knows the name of the blob, people know that of the document.
            message = str(error).replace(file.path.name, file.build.name)
            raise Unreadable(message) from None
    except Overtaken as error:
        _skip(ctx, str(error))


def _index_or_split(ctx: TaskContext, file: "DocumentFile", payload: Mapping[str, Any]) -> None:
    from quire.ingest import split
    from quire.ingest.thumbnail import make_thumbnail

    layout = split.inspect(ctx, file)
    thumbnail = make_thumbnail(ctx, file, layout.keys.get(1))
    if split.is_small(ctx, file, layout):
        _index(ctx, file, layout, layout.keys, thumbnail)
    elif changed := split.changed_pages(ctx, file, layout):
        _index(ctx, file, layout, changed, thumbnail, is_update=True)
    else:
        split.split(ctx, file, layout, thumbnail, payload)


def _index(
    ctx: TaskContext,
    file: "DocumentFile",
    layout: "Layout",
    keys: Mapping[int, str],
    thumbnail: str | None,
    *,
    is_update: bool = False,
) -> None:
    """Read, chunk, embed and swap in one task; for an update only the pages that changed."""
    from quire.ingest import attachments, document_words, read, swap
    from quire.store.documents import generations, reuse_stats

    build = file.build
    attached = attachments.extract(ctx, file)

    mine = build.document_id, build.generation

    def write(tx: "Transaction", output: "Output", counted: "PageEntries") -> None:
        attachments.take_turn(tx, file, attached)
        if is_update:
            reuse_stats.add_reused_pages(tx.connection, build.document_id, build.generation)
        swap.write(tx, ctx.task_id, file, output)
        attachments.queue(tx, file, ctx.job_id, attached)
        generations.set_thumbnail(tx.connection, build.document_id, thumbnail)
        swap.swap(tx, *mine, counted)

    def prepare(output: "Output") -> Callable[["Transaction"], None]:
        counted = document_words.count(
            ctx.database, *mine, output.texts(), set(output.read.keys.values())
        )
        return lambda tx: write(tx, output, counted)

    _write(ctx, file, lambda: read.read_file(ctx, file, layout.outline, keys), prepare)


def _write(
    ctx: TaskContext,
    file: "DocumentFile",
    find: Callable[[], "ReadPages"],
    prepare: Callable[["Output"], Callable[["Transaction"], None]],
) -> None:
    """Read, chunk, embed and write; again, in the same attempt, if reused work was collected.

    `prepare` does what needs no transaction, and returns what writes the output.
    """
    from quire.ingest import swap
    from quire.ingest.chunk import chunk
    from quire.ingest.embed import embed

    while True:
        found = find()
        chunks = chunk(ctx, file, found)
        vectors = embed(ctx, file, found, chunks)
        swap.write_chunks_ahead(ctx, file, chunks, vectors)
        write = prepare(swap.Output(found, chunks, vectors))
        try:
            with ctx.fenced() as tx:
                write(tx)
            return
        except swap.Collected:
            ctx.check()


def _skip(ctx: TaskContext, reason: str) -> None:
    with ctx.fenced() as tx:
        tx.skip(reason)
