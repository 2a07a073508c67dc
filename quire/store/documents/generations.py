"""The life of a generation: start, record its inputs, swap it in or fail it.

Functions that write run in a fenced transaction, lock the document, and name the generation: a
task of an older generation gets `Overtaken`.
"""

import json
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import Overtaken
from quire.model.states import DOCUMENT_LOCKED, DocumentState, GenerationState, TaskState
from quire.store.db import bulk
from quire.store.db.schema.documents import (
    cuts,
    documents,
    generation_pages,
    generations,
    pages,
    slices,
)
from quire.store.db.schema.queue import is_state, tasks
from quire.store.documents import failures, quotas
from quire.store.documents.transition import move_documents, move_generations
from quire.store.queue import events

d, g, gp = documents.c, generations.c, generation_pages.c
_CANCELLED = "part of the work was cancelled"

# Built once: building a statement costs more than running it, and these run for every range.
_STATE = sa.select(d.generation, d.state).where(d.id == sa.bindparam("document"))
_LOCKED = _STATE.with_for_update()
_DOCUMENT = d.id == sa.bindparam("document")
_MINE = sa.and_(g.document_id == sa.bindparam("document"), g.generation == sa.bindparam("mine"))
_MY_PAGES = sa.and_(
    gp.document_id == sa.bindparam("document"), gp.generation == sa.bindparam("mine")
)
_TOTALS: dict[str, Any] = {
    "pages": sa.bindparam("total"),
    "chunks": sa.bindparam("pieces"),
    "page_errors": sa.bindparam("bad"),
}
_TASK_GENERATION = sa.select(tasks.c.generation).where(tasks.c.id == sa.bindparam("task"))
_INPUT_NAMES = ("digest", "recipe", "media_type", "cut_id", "model_id")
_RECORD_INPUTS = (
    sa.update(generations).where(_MINE).values({n: sa.bindparam(n) for n in _INPUT_NAMES})
)
_OF_DOCUMENT = (
    sa.select(
        d.id, d.generation, d.tenant, d.owner_id, d.name, d.uri, d.live_generation, d.state,
        g.settings, g.job_id, *(g[name] for name in _INPUT_NAMES),
    )
    .join(generations, g.document_id == d.id)
    .where(_DOCUMENT)
)  # fmt: skip
_INPUTS = _OF_DOCUMENT.where(g.generation == sa.bindparam("mine"))
_NEWEST = _OF_DOCUMENT.where(g.generation == d.generation)
_NEWEST_LOCKED = _NEWEST.with_for_update(of=documents)
_STARTED: dict[str, Any] = {
    "generation": sa.bindparam("mine"),
    "processing_started_at": sa.bindparam("at"),
    "processing_finished_at": None,
}
_START = move_documents("start", _DOCUMENT, **_STARTED)
_RESTART = move_documents("restart", _DOCUMENT, **_STARTED)
_SET_STARTED = (
    sa.update(generations)
    .where(_MINE)
    .values(started_at=sa.func.coalesce(g.started_at, sa.bindparam("at")))
)
_IDENTICAL = (
    sa.select(g.document_id, g.generation)
    .where(
        g.tenant == sa.bindparam("tenant"),
        g.digest == sa.bindparam("digest"),
        g.recipe == sa.bindparam("recipe"),
        is_state(g.state, GenerationState.LIVE, GenerationState.REPLACED),
        g.page_errors == 0,
        sa.exists().where(gp.document_id == g.document_id, gp.generation == g.generation),
    )
    .order_by(g.document_id.desc(), g.generation.desc())
    .limit(1)
)
_REPLACE = move_generations(
    "replace", g.document_id == sa.bindparam("document"), finished_at=sa.bindparam("at")
)
_SWAP_GENERATION = move_generations(
    "swap", _MINE, finished_at=sa.bindparam("at"), **_TOTALS
).returning(g.digest, g.media_type, g.job_id)
_SWAP_DOCUMENT = move_documents(
    "swap",
    _DOCUMENT,
    live_generation=sa.bindparam("mine"),
    digest=sa.bindparam("bytes"),
    media_type=sa.bindparam("type"),
    error=None,
    processing_finished_at=sa.bindparam("at"),
    **_TOTALS,
)
_COUNT_PAGES = sa.select(
    sa.func.count(),
    sa.func.count(gp.error),
    sa.func.count().filter(gp.page_id.is_(None), gp.error.is_(None)),
).where(_MY_PAGES)
_COUNT_CHUNKS = (
    sa.select(sa.func.count())
    .select_from(generation_pages)
    .join(generations, sa.and_(g.document_id == gp.document_id, g.generation == gp.generation))
    .join(slices, sa.and_(slices.c.page_id == gp.page_id, slices.c.cut_id == g.cut_id))
    .where(_MY_PAGES)
)
#: Pages that are images without a recognised text; a blank page was read as text.
_COUNT_IMAGES = (
    sa.select(sa.func.count())
    .join(pages, pages.c.id == gp.page_id)
    .where(_MY_PAGES, pages.c.via == "none")
)
#: The error of a page range that failed, was lost or cancelled.
_RANGE_ERROR = (
    sa.select(tasks.c.error)
    .where(
        tasks.c.document_id == sa.bindparam("document"),
        tasks.c.generation == sa.bindparam("mine"),
        tasks.c.from_page.is_not(None),
        is_state(tasks.c.state, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED),
    )
    .order_by(tasks.c.id.desc())
    .limit(1)
)
_CHUNKING = sa.select(cuts.c.id).where(cuts.c.key == sa.bindparam("key"))


class Build(NamedTuple):
    """A generation that is being built, and its document."""

    document_id: int
    generation: int
    tenant: str
    owner_id: int
    name: str
    uri: str
    settings: dict[str, Any]
    live_generation: int | None


def start(conn: sa.Connection, task_id: int, document_id: int, *, now: Instant) -> Build:
    """Lock the document and mark it as indexing, if the task's generation is the newest.

    A task that is retried after its generation ended gets a new one.
    """
    wanted = conn.scalar(_TASK_GENERATION, {"task": task_id})
    row = conn.execute(_NEWEST_LOCKED, {"document": document_id}).one_or_none()
    if row is None:
        raise Overtaken(f"document {document_id}: it was deleted. Nothing was indexed.")
    if row.generation != wanted:
        raise Overtaken(
            f"document {document_id}: generation {row.generation} is newer. Nothing was indexed."
        )
    is_open = row.state in DOCUMENT_LOCKED
    generation = row.generation if is_open else _add_generation(conn, task_id, row, now)
    quotas.require_room(conn, row.tenant, "pages")
    mine = {"document": document_id, "mine": generation, "at": now.wall}
    conn.execute(_START if is_open else _RESTART, mine)
    conn.execute(_SET_STARTED, mine)
    return _build(row, generation)


def peek(conn: sa.Connection, task_id: int, document_id: int) -> Build | None:
    """Return what `start` would, without lock or write; None if it would refuse or restart."""
    wanted = conn.scalar(_TASK_GENERATION, {"task": task_id})
    row = conn.execute(_NEWEST, {"document": document_id}).one_or_none()
    if row is None or row.generation != wanted or row.state not in DOCUMENT_LOCKED:
        return None
    return _build(row, row.generation)


def _build(row: Any, generation: int) -> Build:
    return Build(
        row.id, generation, row.tenant, row.owner_id, row.name, row.uri,
        json.loads(row.settings), row.live_generation,
    )  # fmt: skip


def _add_generation(conn: sa.Connection, task_id: int, row: Any, now: Instant) -> int:
    generation: int = row.generation + 1
    conn.execute(
        sa.insert(generations).values(
            document_id=row.id,
            generation=generation,
            tenant=row.tenant,
            job_id=row.job_id,
            state=GenerationState.BUILDING.value,
            why="retried",
            settings=row.settings,
            created_at=now.wall,
        )
    )
    conn.execute(sa.update(tasks).where(tasks.c.id == task_id).values(generation=generation))
    return generation


def require_building(conn: sa.Connection, document_id: int, generation: int) -> None:
    """Lock the document; raise `Overtaken` if the generation is not being built any more."""
    row = conn.execute(_LOCKED, {"document": document_id}).one_or_none()
    if row is None or row.generation != generation or row.state != DocumentState.INDEXING:
        raise Overtaken(
            f"document {document_id}: generation {generation} is not being indexed any more. "
            "Nothing was written."
        )


def is_building(conn: sa.Connection, document_id: int, generation: int) -> bool:
    """Tell, without a lock, whether the generation is still being built."""
    row = conn.execute(_STATE, {"document": document_id}).one_or_none()
    return row is not None and tuple(row) == (generation, DocumentState.INDEXING.value)


def record_inputs(conn: sa.Connection, document_id: int, generation: int, **values: Any) -> None:
    """Record what a generation is made from."""
    conn.execute(_RECORD_INPUTS, {"document": document_id, "mine": generation, **values})


def find_identical(
    conn: sa.Connection, tenant: str, digest: str, recipe: str
) -> tuple[int, int] | None:
    """Find a complete generation made from the same bytes with the same recipe."""
    wanted = {"tenant": tenant, "digest": digest, "recipe": recipe}
    row = conn.execute(_IDENTICAL, wanted).one_or_none()
    return None if row is None else (row.document_id, row.generation)


class SwapResult(NamedTuple):
    """What a swap made visible, or why it failed."""

    pages: int
    chunks: int
    page_errors: int
    failure: str | None


def swap(conn: sa.Connection, document_id: int, generation: int, *, now: Instant) -> SwapResult:
    """Make the generation the one that search sees, or fail it if none of it can be searched.

    Changes two rows of `generations` and one of `documents`, whatever the number of pages.
    """
    require_building(conn, document_id, generation)
    found = _result(conn, document_id, generation)
    if found.failure is not None:
        failures.fail(conn, [(document_id, generation, found.failure)], now=now)
        return found
    mine = {"document": document_id, "mine": generation, "at": now.wall}
    totals = {"total": found.pages, "pieces": found.chunks, "bad": found.page_errors}
    conn.execute(_REPLACE, {"document": document_id, "at": now.wall})
    row = conn.execute(_SWAP_GENERATION, mine | totals).one()
    content = {"bytes": row.digest, "type": row.media_type}
    conn.execute(_SWAP_DOCUMENT, mine | totals | content)
    detail = {
        "document_id": document_id, "generation": generation, "pages": found.pages,
        "chunks": found.chunks, "page_errors": found.page_errors,
    }  # fmt: skip
    events.record(conn, [events.Event(row.job_id, "document.ready", None, detail)], now=now)
    return found


def _result(conn: sa.Connection, document_id: int, generation: int) -> SwapResult:
    mine = {"document": document_id, "mine": generation}
    total, failed, missing = conn.execute(_COUNT_PAGES, mine).one()
    chunks = conn.scalar(_COUNT_CHUNKS, mine) or 0
    range_error = conn.execute(_RANGE_ERROR, mine).one_or_none()
    reason = None if range_error is None else range_error.error or _CANCELLED
    failure = None
    if missing:
        failure = f"{missing:,} of {total:,} pages were not read: {reason or _CANCELLED}"
    elif reason is not None:
        # The rows of a table are not in the page list before they are read.
        failure = f"Some rows were not read: {reason}"
    elif total == 0 or failed == total:
        first = _first_error(conn, document_id, generation)
        failure = f"No page could be read ({total:,} tried): {first}"
    elif not chunks and (images := conn.scalar(_COUNT_IMAGES, mine)):
        failure = f"No text found: {images:,} of {total:,} pages are images and OCR is off (`ocr`)."
    return SwapResult(total, chunks, failed, failure)


def _first_error(conn: sa.Connection, document_id: int, generation: int) -> str:
    text = conn.scalar(
        sa.select(gp.error)
        .where(gp.document_id == document_id, gp.generation == generation)
        .where(gp.error.is_not(None))
        .order_by(gp.number)
        .limit(1)
    )
    return str(json.loads(text)["error"]) if text else "the file has no pages"


def chunking_id(conn: sa.Connection, key: str, settings: str) -> int:
    """Return the id of a set of chunking settings."""
    found = conn.scalar(_CHUNKING, {"key": key})
    if found is None:
        bulk.insert_missing(conn, cuts, ("key", "settings"), [[key, settings]])
        found = conn.scalar(_CHUNKING, {"key": key})
    assert found is not None  # noqa: S101
    return int(found)


def inputs_of(
    conn: sa.Connection, document_id: int, generation: int
) -> tuple[Build, dict[str, Any]]:
    """Return the generation, and the inputs that `record_inputs` has stored."""
    row = conn.execute(_INPUTS, {"document": document_id, "mine": generation}).one()
    return _build(row, generation), {name: row._mapping[name] for name in _INPUT_NAMES}


def set_thumbnail(conn: sa.Connection, document_id: int, digest: str | None) -> None:
    """Set the blob of the image of the first page; None leaves it as it is."""
    if digest is not None:
        conn.execute(sa.update(documents).where(d.id == document_id).values(thumbnail=digest))


_HAS_THUMBNAIL = sa.select(sa.literal(1)).where(
    d.id == sa.bindparam("document"),
    d.thumbnail.is_not(None),
    gp.document_id == d.id,
    gp.generation == d.live_generation,
    gp.number == 1,
    gp.key == sa.bindparam("first"),
)


def has_thumbnail(conn: sa.Connection, document_id: int, first: str) -> bool:
    """Tell whether a document has a thumbnail, and its first page still has this key."""
    return conn.scalar(_HAS_THUMBNAIL, {"document": document_id, "first": first}) is not None


def copy_thumbnail(conn: sa.Connection, source_id: int, document_id: int) -> None:
    """Use the thumbnail of another document, which has the same bytes."""
    found: Any = conn.scalar(sa.select(d.thumbnail).where(d.id == source_id))
    set_thumbnail(conn, document_id, found)
