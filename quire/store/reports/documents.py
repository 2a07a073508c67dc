"""Documents as people and programs see them, with pages, chunks and errors. Nothing here writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire import format
from quire.clock import json_values
from quire.model.states import DOCUMENT_LOCKED, TASK_OPEN, DocumentState, TaskState
from quire.store.db.schema.documents import (
    chunks,
    contents,
    corpora,
    corpus_documents,
    documents,
    generation_pages,
    generations,
    pages,
    slices,
)
from quire.store.db.schema.queue import is_state, tasks
from quire.store.reports import substring_filter
from quire.url_secrets import masked_values

d, g, gp, t = documents.c, generations.c, generation_pages.c, tasks.c
c, s = chunks.c, slices.c
#: Page errors that are listed with a document.
MOST_ERRORS = 1000
_DOCUMENT = (
    "id", "name", "source", "uri", "folder", "parent_id", "media_type", "state", "generation",
    "live_generation", "pages", "chunks", "page_errors", "error", "size", "digest", "thumbnail",
    "job_id", "created_at", "processing_started_at", "processing_finished_at", "gone_at",
)  # fmt: skip
_GENERATION = (
    "generation", "state", "why", "job_id", "pages", "chunks", "page_errors", "error",
    "created_at", "started_at", "finished_at",
)  # fmt: skip


def row_of(
    conn: sa.Connection, tenant: str, document_id: int, corpus_id: int | None = None
) -> Any | None:
    """Return a document of a tenant, or of a corpus, with its newest generation; or None."""
    if not 0 < document_id < 2**63:
        return None
    query = _documents(tenant).where(d.id == document_id)
    if corpus_id is not None:
        cd = corpus_documents.c
        query = query.where(sa.exists().where(cd.document_id == d.id, cd.corpus_id == corpus_id))
    return conn.execute(query).one_or_none()


def document(
    conn: sa.Connection, tenant: str, document_id: int, corpus_id: int | None = None
) -> dict[str, Any] | None:
    """Return one document of a tenant, or of a corpus, with its page errors and generations."""
    row = row_of(conn, tenant, document_id, corpus_id)
    if row is None:
        return None
    names = _corpora_of(conn, [row.id])
    return {
        **_document(row, names),
        "page_errors": page_errors(conn, row),
        "generations": _generations(conn, row.id),
    }


def page_of_documents(
    conn: sa.Connection,
    tenant: str,
    *,
    limit: int = 50,
    cursor: int | None = None,
    **filters: Any,
) -> dict[str, Any]:
    """List a tenant's documents, latest first, with the cursor of the next page."""
    ids = _latest(conn, tenant, filters, limit + 1, cursor)
    query = _documents(tenant).where(d.id.in_(ids))
    rows = conn.execute(query.order_by(d.id.desc())).all()
    names = _corpora_of(conn, [row.id for row in rows[:limit]])
    items = [_document(row, names) for row in rows[:limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > limit else None}


def _latest(
    conn: sa.Connection, tenant: str, filters: Mapping[str, Any], limit: int, cursor: int | None
) -> list[int]:
    """Return the ids of a page; one query per state, so that each reads the index from its end."""
    given = dict(filters)
    states = given.pop("states", None) or list(DocumentState)
    found: list[int] = []
    for state in states:
        query = sa.select(d.id).where(d.tenant == tenant, is_state(d.state, state))
        query = _filtered(query, given)
        query = query if cursor is None else query.where(d.id < cursor)
        found += conn.scalars(query.order_by(d.id.desc()).limit(limit))
    return sorted(found, reverse=True)[:limit]


def page_errors(conn: sa.Connection, row: Any) -> list[dict[str, Any]]:
    """List the unreadable pages of the generation that is shown."""
    found = conn.execute(
        sa.select(gp.number, gp.error)
        .where(*_shown(row), gp.error.is_not(None))
        .order_by(gp.number)
        .limit(MOST_ERRORS)
    )
    names = ("kind", "error", "peak_rss", "seconds", "command")
    return [
        {"page": number, **{name: json.loads(text).get(name) for name in names}}
        for number, text in found
    ]


def _shown(row: Any) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the pages to show: the live ones, or the newest if those failed or none is live."""
    is_newest = row.state == DocumentState.FAILED or row.live_generation is None
    generation = row.generation if is_newest else row.live_generation
    return gp.document_id == row.id, gp.generation == generation


def list_pages(
    conn: sa.Connection, row: Any, *, limit: int = 50, cursor: int | None = None
) -> dict[str, Any]:
    """List the pages of a document and how each was read."""
    rows = pages_of(conn, row, limit=limit + 1, after=cursor or 0)
    items = [page_json(one) for one in rows[:limit]]
    return {"items": items, "next": str(items[-1]["page"]) if len(rows) > limit else None}


def page_json(one: Any) -> dict[str, Any]:
    """Return a page without its text, and how it was read."""
    return {
        **json_values(one, ("label", "via", "language", "width", "height", "seconds")),
        "page": one.number,
        "words": len(one.text.split()) if one.text else 0,
        "characters": len(one.text or ""),
        "error": json.loads(one.error)["error"] if one.error else None,
    }


def pages_of(conn: sa.Connection, row: Any, *, limit: int, after: int = 0) -> Sequence[Any]:
    """Return pages of a document with their text and word boxes, in order."""
    p = pages.c
    return conn.execute(
        sa.select(
            gp.number, gp.error, p.text, p.words, p.blocks, p.width, p.height, p.via, p.label,
            p.language, p.seconds,
        )
        .join(pages, p.id == gp.page_id, isouter=True)
        .where(*_shown(row), gp.number > after)
        .order_by(gp.number)
        .limit(limit)
    ).all()  # fmt: skip


def reuse(text: str | None) -> dict[str, Any]:
    """Return reuse statistics: what was computed, what was reused, and the seconds saved."""
    found: dict[str, int] = json.loads(text or "{}")
    saved = found.pop("milliseconds_reused", 0) / 1000
    kept = {k.removesuffix("_reused"): n for k, n in found.items() if k.endswith("_reused") and n}
    made = {k.removesuffix("_made"): n for k, n in found.items() if k.endswith("_made") and n}
    whole = bool(kept.pop("whole", 0))
    return {"whole": whole, **kept, "made": made, "seconds_saved": round(saved, 3)}


def _documents(tenant: str) -> sa.Select[Any]:
    digest = sa.func.coalesce(d.digest, g.digest)
    return (
        sa.select(
            *(column for column in d if column.name not in ("size", "digest")),
            digest.label("digest"),
            sa.func.coalesce(d.size, contents.c.size).label("size"),
            g.job_id, g.why, g.state.label("generation_state"), g.reused,
            g.settings.label("pipeline"), g.media_type.label("newest_type"),
            g.digest.label("newest_digest"), g.recipe, g.created_at.label("begun_at"),
        )
        .join(
            generations, sa.and_(g.document_id == d.id, g.generation == d.generation), isouter=True
        )
        .join(
            contents,
            sa.and_(contents.c.tenant == d.tenant, contents.c.digest == digest),
            isouter=True,
        )
        .where(d.tenant == tenant)
    )  # fmt: skip


def _filtered(query: sa.Select[Any], filters: Mapping[str, Any]) -> sa.Select[Any]:
    for name, value in filters.items():
        if value is None:
            continue
        if name == "states":
            query = query.where(is_state(d.state, *value))
        elif name == "corpus":
            cd = corpus_documents.c
            query = query.where(
                sa.exists().where(
                    cd.document_id == d.id,
                    cd.corpus_id == corpora.c.id,
                    corpora.c.name == value,
                    corpora.c.tenant == d.tenant,
                )
            )
        elif name == "text":
            query = query.where(substring_filter.document_has(value))
        else:
            query = query.where(d[name] == value)
    return query


def _document(row: Any, names: Mapping[int, list[str]]) -> dict[str, Any]:
    return {
        **masked_values(json_values(row, _DOCUMENT), "source", "uri", "error"),
        "media_type": (media_type := row.media_type or row.newest_type),
        "notice": format.misnamed(row.name, media_type),
        "corpora": names.get(row.id, []),
        "locked": row.state in DOCUMENT_LOCKED,
        "reused": reuse(row.reused),
        "settings": json.loads(row.settings),
        "metadata": json.loads(row.metadata),
    }


def _corpora_of(conn: sa.Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    cd = corpus_documents.c
    rows = conn.execute(
        sa.select(cd.document_id, corpora.c.name)
        .join(corpora, corpora.c.id == cd.corpus_id)
        .where(cd.document_id.in_(list(ids)))
        .order_by(corpora.c.name)
    )
    found: dict[int, list[str]] = {}
    for document_id, name in rows:
        found.setdefault(document_id, []).append(name)
    return found


def _generations(conn: sa.Connection, document_id: int) -> list[dict[str, Any]]:
    return [
        {**masked_values(json_values(row, _GENERATION), "error"), "reused": reuse(row.reused)}
        for row in generations_of(conn, document_id, limit=20)
    ]


def generations_of(conn: sa.Connection, document_id: int, limit: int = 2) -> Sequence[Any]:
    """Return the newest generations of a document, newest first."""
    query = sa.select(generations).where(g.document_id == document_id)
    return conn.execute(query.order_by(g.generation.desc()).limit(limit)).all()


def open_task(conn: sa.Connection, document_id: int, generation: int) -> int | None:
    """Return the open task of a generation that is furthest along."""
    order = sa.case({TaskState.RUNNING.value: 0, TaskState.READY.value: 1}, value=t.state, else_=2)
    found: int | None = conn.scalar(
        sa.select(t.id)
        .where(
            t.document_id == document_id,
            t.generation == generation,
            is_state(t.state, *TASK_OPEN),
        )
        .order_by(order, t.id)
        .limit(1)
    )
    return found


def listed_at_source(
    conn: sa.Connection, tenant: str, source: str, *, after_id: int = 0, limit: int = 1000
) -> list[tuple[int, str, str]]:
    """List (id, uri, name) of the documents of a source that are not marked as gone."""
    rows = conn.execute(
        sa.select(d.id, d.uri, d.name)
        .where(
            d.tenant == tenant,
            d.source == source,
            d.parent_id.is_(None),
            d.gone_at.is_(None),
            d.id > after_id,
        )
        .order_by(d.id)
        .limit(limit)
    )
    return [(row.id, row.uri, row.name) for row in rows]


def page_of(conn: sa.Connection, row: Any, number: int) -> Any | None:
    """Return one page of a document with its text and word boxes, or None."""
    found = pages_of(conn, row, limit=1, after=number - 1) if 0 < number < 2**31 else []
    return found[0] if found and found[0].number == number else None


def neighbours(conn: sa.Connection, row: Any, number: int) -> tuple[int | None, int | None]:
    """Return the numbers of the previous and the next page."""
    before = sa.select(sa.func.max(gp.number)).where(*_shown(row), gp.number < number)
    behind = sa.select(sa.func.min(gp.number)).where(*_shown(row), gp.number > number)
    return conn.scalar(before), conn.scalar(behind)


def chunks_of_page(conn: sa.Connection, row: Any, number: int) -> Sequence[Any]:
    """List the chunks of one page in text order."""
    return conn.execute(_chunks(row).where(gp.number == number).limit(200)).all()


def page_of_chunks(
    conn: sa.Connection, row: Any, *, limit: int = 50, cursor: tuple[int, int] = (0, -1)
) -> dict[str, Any]:
    """List the chunks of a document in text order; the cursor is the last page and ordinal."""
    number, ordinal = cursor
    after = sa.or_(gp.number > number, sa.and_(gp.number == number, s.ordinal > ordinal))
    rows = conn.execute(_chunks(row).where(after).limit(limit + 1)).all()
    names = ("page", "ordinal", "start", "stop", "text", "context", "language", "tokens")
    items = [json_values(each, names) for each in rows[:limit]]
    more = f"{items[-1]['page']}.{items[-1]['ordinal']}" if len(rows) > limit else None
    return {"items": items, "next": more}


def _chunks(row: Any) -> sa.Select[Any]:
    return (
        sa.select(
            gp.number.label("page"),
            s.ordinal,
            s.start,
            s.stop,
            c.id,
            c.text,
            c.context,
            c.language,
            c.tokens,
        )
        .join(generations, sa.and_(g.document_id == gp.document_id, g.generation == gp.generation))
        .join(slices, sa.and_(s.page_id == gp.page_id, s.cut_id == g.cut_id))
        .join(chunks, c.id == s.chunk_id)
        .where(*_shown(row))
        .order_by(gp.number, s.ordinal)
    )
