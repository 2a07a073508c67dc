"""Reads one range of pages, or of rows, of a document that was split."""

from collections.abc import Iterable, Sequence
from typing import Any

from quire.errors import Overtaken
from quire.ingest import resources
from quire.ingest.read import Harvest, Work, options_of, read_pages
from quire.model.pages import Page, PageFailure
from quire.model.pipeline import Pipeline, digest
from quire.parse import formats
from quire.store.documents import generation_pages, generations, pages
from quire.store.reports import tasks as task_reports


def run(ctx: Any, document: int, unit: str = "page", **_: Any) -> None:
    """Read the pages of the task's range that are still missing."""
    with ctx.database.read() as conn:
        span = task_reports.span_of(conn, ctx.task_id)
        is_current = generations.is_building(conn, document, span.generation)
    if not is_current:
        with ctx.fenced() as tx:
            tx.skip(f"generation {span.generation} of document {document} is not at work")
        return
    work = work_for(ctx, document, span.generation)
    harvest = Harvest(ctx, work)
    if unit == "row":
        read_rows(harvest, span.from_page, span.to_page)
    else:
        with ctx.database.read() as conn:
            keys = generation_pages.unread(
                conn, document, span.generation, span.from_page, span.to_page
            )
        harvest.gather(keys, lambda numbers: read_pages(harvest, numbers))
    try:
        with ctx.fenced() as tx:
            harvest.store(tx)
    except Overtaken as error:
        with ctx.fenced() as tx:
            tx.skip(str(error))


def read_rows(harvest: Harvest, first: int, last: int) -> None:
    """Read rows of a table as one page, whose number is that of its first row."""
    work = harvest.work

    def read(numbers: Sequence[int]) -> Iterable[Page | PageFailure]:
        options = options_of(work.pipeline)
        for page in formats.read(work.path, work.media_type, options, first, last):
            yield page._replace(number=numbers[0])

    harvest.gather({first: rows_key(work, first, last)}, read)


def rows_key(work: Work, first: int, last: int) -> str:
    """Return the key of a range of rows: the file's bytes and where in them."""
    recipe = formats.recipe(work.media_type, options_of(work.pipeline))
    return digest("rows", work.path.parent.name + work.path.name, first, last, recipe)


def work_for(ctx: Any, document: int, generation: int) -> Work:
    """Collect what is needed to read pages of a generation."""
    db = ctx.database
    with db.read() as conn:
        row = generations.inputs_of(conn, document, generation)
        size = pages.size_of(conn, row.tenant, row.digest)
    pipeline = Pipeline().merged(_loaded(row.settings))
    return Work(
        document_id=document,
        generation=generation,
        tenant=row.tenant,
        name=row.name,
        path=resources.blobs_of(ctx.settings).checked_path(row.digest, size or 0),
        media_type=row.media_type,
        pipeline=pipeline,
        embedder=resources.settled_embedder(ctx, pipeline),
        cut_id=row.cut_id,
        model_id=row.model_id,
        is_analysed=db.path is None,
    )


def _loaded(text: str) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(text)
    return found
