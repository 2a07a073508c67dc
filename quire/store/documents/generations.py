"""The life of one document's generation: begun, filled with leaves, swapped in, or failed.

Every function is called inside a fenced transaction, locks the document, and names the
generation: what belongs to an older one finds that it was overtaken.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.errors import Overtaken
from quire.model.states import DOCUMENT_LOCKED, DocumentState, GenerationState, TaskState
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import cuts, documents, generation_pages, generations, slices
from quire.store.db.schema.queue import is_state, tasks
from quire.store.documents import failures
from quire.store.queue import events

d, g, gp = documents.c, generations.c, generation_pages.c
_CANCELLED = "a part of the work was cancelled"

# Built once: building a statement costs more than running it, and these run for every range.
_STANDING = sa.select(d.generation, d.state).where(d.id == sa.bindparam("document"))
_LOCKED = _STANDING.with_for_update()
_WORK = (
    sa.select(d.tenant, d.name, g.settings, g.digest, g.media_type, g.cut_id, g.model_id)
    .join(generations, g.document_id == d.id)
    .where(d.id == sa.bindparam("document"), g.generation == sa.bindparam("generation"))
)
_DOCUMENT = d.id == sa.bindparam("document")
_MINE = sa.and_(g.document_id == sa.bindparam("document"), g.generation == sa.bindparam("mine"))
_MY_LEAVES = sa.and_(
    gp.document_id == sa.bindparam("document"), gp.generation == sa.bindparam("mine")
)
_TOTALS: dict[str, Any] = {
    "pages": sa.bindparam("total"),
    "chunks": sa.bindparam("pieces"),
    "page_errors": sa.bindparam("bad"),
}
_WANTED = sa.select(tasks.c.generation).where(tasks.c.id == sa.bindparam("task"))
_SEEN = (
    sa.select(
        d.id, d.generation, d.tenant, d.owner_id, d.name, d.uri, d.live_generation, d.state,
        g.settings, g.job_id,
    )
    .join(generations, sa.and_(g.document_id == d.id, g.generation == d.generation))
    .where(_DOCUMENT)
)  # fmt: skip
_NEWEST = _SEEN.with_for_update(of=documents)
_BEGINS = (
    sa.update(documents)
    .where(_DOCUMENT)
    .values(
        state=DocumentState.INDEXING.value,
        generation=sa.bindparam("mine"),
        processing_started_at=sa.bindparam("at"),
        processing_finished_at=None,
    )
)
_STARTS = (
    sa.update(generations)
    .where(_MINE)
    .values(started_at=sa.func.coalesce(g.started_at, sa.bindparam("at")))
)
_DONOR = (
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
_REPLACES = (
    sa.update(generations)
    .where(g.document_id == sa.bindparam("document"), is_state(g.state, GenerationState.LIVE))
    .values(state=GenerationState.REPLACED.value, finished_at=sa.bindparam("at"))
)
_SHOWS = (
    sa.update(generations)
    .where(_MINE)
    .values(state=GenerationState.LIVE.value, finished_at=sa.bindparam("at"), **_TOTALS)
    .returning(g.digest, g.media_type, g.job_id)
)
_SUCCEEDS = (
    sa.update(documents)
    .where(_DOCUMENT)
    .values(
        state=DocumentState.SUCCESS.value,
        live_generation=sa.bindparam("mine"),
        digest=sa.bindparam("bytes"),
        media_type=sa.bindparam("type"),
        error=None,
        processing_finished_at=sa.bindparam("at"),
        **_TOTALS,
    )
)
_LEAVES_COUNTED = sa.select(
    sa.func.count(),
    sa.func.count(gp.error),
    sa.func.count().filter(gp.page_id.is_(None), gp.error.is_(None)),
).where(_MY_LEAVES)
_CHUNKS_COUNTED = (
    sa.select(sa.func.count())
    .select_from(generation_pages)
    .join(generations, sa.and_(g.document_id == gp.document_id, g.generation == gp.generation))
    .join(slices, sa.and_(slices.c.page_id == gp.page_id, slices.c.cut_id == g.cut_id))
    .where(_MY_LEAVES)
)
#: Why a range of the generation did not end well, if one did not.
_TROUBLE = (
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
_CUT = sa.select(cuts.c.id).where(cuts.c.key == sa.bindparam("key"))


class Build(NamedTuple):
    """A document whose work begins, and under which generation."""

    id: int
    generation: int
    tenant: str
    owner_id: int
    name: str
    uri: str
    settings: dict[str, Any]
    live_generation: int | None


def start(conn: sa.Connection, task_id: int, document_id: int, *, now: Instant) -> Build:
    """Check that the task's generation is the newest, and lock the document for the work.

    A task that was revived after its generation failed goes on under a new one.
    """
    wanted = conn.scalar(_WANTED, {"task": task_id})
    row = conn.execute(_NEWEST, {"document": document_id}).one_or_none()
    if row is None or row.generation != wanted:
        newest = "it was deleted" if row is None else f"generation {row.generation} is newer"
        raise Overtaken(f"document {document_id}: {newest}. Nothing was done for this one.")
    generation = row.generation
    if row.state not in DOCUMENT_LOCKED:
        generation = _reopen(conn, task_id, row, now)
    mine = {"document": document_id, "mine": generation, "at": now.wall}
    conn.execute(_BEGINS, mine)
    conn.execute(_STARTS, mine)
    return _begun(row, generation)


def peek(conn: sa.Connection, task_id: int, document_id: int) -> Build | None:
    """Return what `begin` would, without a lock; None where it would refuse, or reopen."""
    wanted = conn.scalar(_WANTED, {"task": task_id})
    row = conn.execute(_SEEN, {"document": document_id}).one_or_none()
    if row is None or row.generation != wanted or row.state not in DOCUMENT_LOCKED:
        return None
    return _begun(row, row.generation)


def _begun(row: Any, generation: int) -> Build:
    return Build(
        row.id, generation, row.tenant, row.owner_id, row.name, row.uri,
        json.loads(row.settings), row.live_generation,
    )  # fmt: skip


def _reopen(conn: sa.Connection, task_id: int, row: Any, now: Instant) -> int:
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
    """Lock the document and raise `Overtaken` where the generation is not at work any more."""
    row = conn.execute(_LOCKED, {"document": document_id}).one_or_none()
    if row is None or row.generation != generation or row.state != DocumentState.INDEXING:
        raise Overtaken(
            f"document {document_id}: generation {generation} is not the newest at work. "
            "Nothing of it was written."
        )


def is_building(conn: sa.Connection, document_id: int, generation: int) -> bool:
    """Tell without a lock whether work on a generation still makes sense."""
    row = conn.execute(_STANDING, {"document": document_id}).one_or_none()
    return row is not None and tuple(row) == (generation, DocumentState.INDEXING.value)


def record_inputs(conn: sa.Connection, document_id: int, generation: int, **values: Any) -> None:
    """Write what the work has found out about its generation."""
    statement = dialect.cached(conn, ("describe", *values), lambda: _describing(values))
    conn.execute(statement, {"document": document_id, "mine": generation, **values})


def _describing(names: Iterable[str]) -> sa.Update:
    return sa.update(generations).where(_MINE).values({n: sa.bindparam(n) for n in names})


def find_identical(
    conn: sa.Connection, tenant: str, digest: str, recipe: str
) -> tuple[int, int] | None:
    """Find a whole generation made from the same bytes in the same way."""
    wanted = {"tenant": tenant, "digest": digest, "recipe": recipe}
    row = conn.execute(_DONOR, wanted).one_or_none()
    return None if row is None else (row.document_id, row.generation)


class SwapResult(NamedTuple):
    """What a swap made visible, or why there was nothing to show."""

    pages: int
    chunks: int
    page_errors: int
    failure: str | None


def swap(conn: sa.Connection, document_id: int, generation: int, *, now: Instant) -> SwapResult:
    """Make the generation the one that search sees, or fail it if nothing of it is readable.

    Two rows of `generations` and one of `documents` change, whatever the number of pages.
    """
    require_building(conn, document_id, generation)
    found = _counted(conn, document_id, generation)
    if found.failure is not None:
        failures.fail(conn, [(document_id, generation, found.failure)], now=now)
        return found
    counted = {"pages": found.pages, "chunks": found.chunks, "page_errors": found.page_errors}
    mine = {"document": document_id, "mine": generation, "at": now.wall}
    totals = {"total": found.pages, "pieces": found.chunks, "bad": found.page_errors}
    conn.execute(_REPLACES, {"document": document_id, "at": now.wall})
    row = conn.execute(_SHOWS, mine | totals).one()
    of_bytes = {"bytes": row.digest, "type": row.media_type}
    conn.execute(_SUCCEEDS, mine | totals | of_bytes)
    detail = {"document_id": document_id, "generation": generation, **counted}
    events.record(conn, [events.Event(row.job_id, "document.ready", None, detail)], now=now)
    return found


def _counted(conn: sa.Connection, document_id: int, generation: int) -> SwapResult:
    mine = {"document": document_id, "mine": generation}
    total, bad, missing = conn.execute(_LEAVES_COUNTED, mine).one()
    chunks = conn.scalar(_CHUNKS_COUNTED, mine)
    failure = None
    trouble = conn.execute(_TROUBLE, mine).one_or_none()
    why = None if trouble is None else trouble.error or _CANCELLED
    if missing:
        failure = f"{missing:,} of {total:,} pages were not read: {why or _CANCELLED}"
    elif why is not None:
        # Rows of a table have no generation page before they are read.
        failure = f"a part of it was not read: {why}"
    elif total == 0 or bad == total:
        first = _first_error(conn, document_id, generation)
        failure = f"no page could be read ({total:,} tried): {first}"
    elif not chunks:
        failure = f"no text was found on its {_pages(total)}. OCR reads pictures: see `ocr`."
    return SwapResult(total, chunks or 0, bad, failure)


def _pages(count: int) -> str:
    return f"{count:,} page{'' if count == 1 else 's'}"


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
    """Return the id of a way to cut pages."""
    found = conn.scalar(_CUT, {"key": key})
    if found is None:
        bulk.insert_missing(conn, cuts, ("key", "settings"), [[key, settings]])
        found = conn.scalar(_CUT, {"key": key})
    assert found is not None  # noqa: S101
    return int(found)


def inputs_of(conn: sa.Connection, document_id: int, generation: int) -> Any:
    """Return what a range of pages needs to know about its generation."""
    return conn.execute(_WORK, {"document": document_id, "generation": generation}).one()
