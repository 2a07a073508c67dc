"""Split: find out how large a file is, and divide a large one into page ranges.

The task of a small document reads the whole file. A large one becomes `ingest.range` tasks and an
`ingest.swap` task that waits for them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire.ingest import document_words, resources, swap
from quire.ingest.fetch import DocumentFile
from quire.ingest.read import join_ranges
from quire.model.context import TaskContext
from quire.model.pages import Outline
from quire.model.pipeline import digest, digests
from quire.model.records import About
from quire.parse import formats
from quire.store import Transaction
from quire.store.documents import generation_pages, generations, reuse_stats


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a file and how it can be divided."""

    outline: Outline
    keys: dict[int, str]  # page number → key; empty if pages are not known before reading
    range_size: int | None  # pages of one task; None: only read as a whole


def inspect(ctx: TaskContext, file: DocumentFile) -> Layout:
    """Count the pages of a file and compute the keys of its pages."""
    reader = resources.reader(ctx, file.build.tenant)
    outline = reader.inspect(file.path, file.media_type, file.options)
    range_size = _range_size(ctx, file, outline) if outline.unit == "page" else None
    return Layout(outline, _page_keys(file, outline), range_size)


def _range_size(ctx: TaskContext, file: DocumentFile, outline: Outline) -> int:
    """Return the pages of one task: few if they are scans, or if reading them crashed before."""
    few, many = file.pipeline.page_size, file.pipeline.small_size
    if ctx.attempt > 1 or outline.scans is None or file.pipeline.ocr == "always":
        return few
    # Reading a range of text is faster than queueing it; OCR is worth a task.
    return few if outline.scans > few else max(few, many)


def _page_keys(file: DocumentFile, outline: Outline) -> dict[int, str]:
    """Name every page by its content and by the way it is read: equal keys, equal text."""
    if outline.unit != "page":
        return {}
    recipe = digest(formats.recipe(file.media_type, file.options))
    parts = outline.keys or [f"{file.digest} {n}" for n in range(1, outline.length + 1)]
    return dict(enumerate(digests("page", parts, recipe), start=1))


def is_small(ctx: TaskContext, file: DocumentFile, layout: Layout) -> bool:
    """Tell whether one task reads the whole file."""
    if layout.range_size is None:
        return True
    # After a crash the file is read in ranges, which can be bisected.
    return ctx.attempt <= 1 and layout.outline.length <= layout.range_size


def changed_pages(ctx: TaskContext, file: DocumentFile, layout: Layout) -> dict[int, str]:
    """Return the pages that differ from the live generation, if they are few; else none."""
    is_first_build = file.build.live_generation is None
    if layout.outline.unit != "page" or is_first_build or ctx.attempt > 1:
        return {}
    missing = ctx.write(lambda tx: _plan(tx, file, layout.keys))
    if len(missing) > (layout.range_size or 1):
        return {}
    return {number: layout.keys[number] for number in missing}


def split(
    ctx: TaskContext,
    file: DocumentFile,
    layout: Layout,
    thumbnail: str | None,
    payload: Mapping[str, Any],
) -> None:
    """Queue the ranges that are still to be read; swap at once if there are none."""
    build, size = file.build, layout.range_size or 1
    missing = ctx.write(lambda tx: _plan(tx, file, layout.keys))
    if missing and size > file.pipeline.page_size:
        # Few ranges, so of equal length: no process is to wait for the longest.
        size = math.ceil(len(missing) / math.ceil(len(missing) / size))
    ranges = join_ranges(missing, size)
    counted = None
    if not ranges:
        counted = document_words.count(ctx.database, build.document_id, build.generation)
    with ctx.fenced() as tx:
        generations.require_building(tx.connection, build.document_id, build.generation)
        generations.set_thumbnail(tx.connection, build.document_id, thumbnail)
        reuse_stats.add_reused_pages(tx.connection, build.document_id, build.generation)
        if counted is None:
            _queue(tx, file, ranges, payload)
        else:
            swap.swap(tx, build.document_id, build.generation, counted)


def _plan(tx: Transaction, file: DocumentFile, keys: Mapping[int, str]) -> list[int]:
    """Write the page list of the generation; return the pages that no earlier work has."""
    build = file.build
    generations.require_building(tx.connection, build.document_id, build.generation)
    return generation_pages.plan(
        tx.connection, build.tenant, build.document_id, build.generation, keys,
        cut_id=file.cut_id, model_id=file.model_id,
    )  # fmt: skip


def _queue(
    tx: Transaction,
    file: DocumentFile,
    ranges: Sequence[tuple[int, int]],
    payload: Mapping[str, Any],
) -> None:
    document_id, generation = file.build.document_id, file.build.generation
    tx.weigh(0.0)  # the work is in its pages
    queued = [
        tx.spawn(
            "ingest.range",
            {"document": document_id, "unit": "page"},
            cost=float(last - first + 1),
            about=About(document_id, generation, first, last),
        )
        for first, last in ranges
    ]
    tx.spawn(
        "ingest.swap",
        {"document": document_id, **payload},
        after=queued,
        after_failure="run",
        about=About.whole(document_id, generation),
    )
