"""Takes note of what a source lists, and decides in the same transaction what is to be indexed.

One call handles a page of a listing: whatever the number of items, a handful of statements.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.admission import Decision, KnownDocument, decide
from quire.model.records import Owner
from quire.model.states import DOCUMENT_LOCKED, TASK_OPEN, DocumentState, GenerationState
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import corpus_documents, documents, generations
from quire.store.db.schema.queue import is_state, tasks

d, g = documents.c, generations.c
_NEW = (
    "id", "owner_id", "tenant", "uri", "name", "folder", "parent_id", "source", "listed_at", "seen",
    "state", "generation", "settings", "created_at", "queued_at",
)  # fmt: skip
_GENERATION = (
    "document_id", "generation", "tenant", "job_id", "state", "why", "settings", "created_at",
)  # fmt: skip


class ListedFile(NamedTuple):
    """A file as it is listed now."""

    uri: str
    name: str
    seen: str
    folder: str = ""
    parent_id: int | None = None


class AdmissionRequest(NamedTuple):
    """What all items of a listing have in common."""

    owner: Owner
    job_id: int
    source: str
    settings: str  # of the pipeline, as canonical JSON
    corpus_ids: tuple[int, ...] = ()
    is_forced: bool = False


class Admitted(NamedTuple):
    """What became of one item."""

    document_id: int
    generation: int
    is_taken: bool
    why: str


def admit(
    conn: sa.Connection, wish: AdmissionRequest, items: Sequence[ListedFile], *, now: Instant
) -> list[Admitted]:
    """Note the items, and give those that are to be indexed a generation of their own."""
    if not items:
        return []
    # Two listings of one folder would insert the same documents.
    dialect.advisory_lock(conn, f"admit {wish.owner.tenant}")
    known = known_documents(conn, wish.owner.tenant, [item.uri for item in items])
    verdicts = [
        decide_for(wish.settings, known.get(item.uri), item.seen, is_forced=wish.is_forced, now=now)
        for item in items
    ]
    fresh = [item for item in items if item.uri not in known]
    ids = dict(
        zip(
            (item.uri for item in fresh),
            dialect.reserve_ids(conn, documents, len(fresh)) if fresh else (),
            strict=True,
        )
    )
    _insert(conn, wish, fresh, ids, now)
    _touch(conn, wish, [known[i.uri].id for i in items if i.uri in known], now)
    again = [
        (known[item.uri].id, item)
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.is_taken and item.uri in known
    ]
    _requeue(conn, again, now)
    admitted = [
        Admitted(ids[item.uri], 1, True, verdict.why)
        if item.uri in ids
        else Admitted(known[item.uri].id, known[item.uri].generation + verdict.is_taken, *verdict)
        for item, verdict in zip(items, verdicts, strict=True)
    ]
    own = {k.id: document_settings(wish.settings, k.overrides) for k in known.values()}
    _open_generations(conn, wish, own, [a for a in admitted if a.is_taken], now)
    add_to_corpora(conn, wish.corpus_ids, [a.document_id for a in admitted])
    return admitted


def decide_for(
    settings: str, known: KnownDocument | None, seen: str, *, is_forced: bool, now: Instant
) -> Decision:
    """Decide about one item under the settings that hold for its document."""
    wanted = settings if known is None else document_settings(settings, known.overrides)
    return decide(known, seen, wanted, is_forced=is_forced, now=now.wall)


def document_settings(settings: str, overrides: str) -> str:
    """Return the pipeline's settings with those that the document has of its own."""
    if overrides == "{}":
        return settings
    return canonical_json(json.loads(settings) | json.loads(overrides))


def known_documents(
    conn: sa.Connection, tenant: str, uris: Sequence[str], *, lock: bool = True
) -> dict[str, KnownDocument]:
    """Return what is known of the documents at these places, their rows locked if wanted."""
    wanted = dialect.json_rows(conn, "wanted", {"uri": "text"})
    open_task = sa.exists().where(
        tasks.c.document_id == d.id,
        tasks.c.generation == d.generation,
        is_state(tasks.c.state, *TASK_OPEN),
    )
    # Asked for locked documents only: of most there are neither tasks nor a question.
    is_open = sa.case((is_state(d.state, *DOCUMENT_LOCKED), open_task), else_=sa.false())
    query = (
        sa.select(
            d.id, d.state, d.generation, d.live_generation, d.seen, g.settings,
            is_open.label("has_open_task"),
            sa.func.coalesce(
                sa.case((is_state(d.state, DocumentState.INDEXING), d.processing_started_at)),
                d.queued_at, d.created_at,
            ),
            d.settings.label("overrides"),
            d.uri,
        )
        .join(wanted, wanted.c.uri == d.uri)
        .join(
            generations,
            sa.and_(g.document_id == d.id, g.generation == d.generation),
            isouter=True,
        )
        .where(d.tenant == tenant)
        .order_by(d.id)
    )  # fmt: skip
    rows = conn.execute(
        query.with_for_update(of=documents) if lock else query,
        {"wanted": dialect.encode_rows([[uri] for uri in uris])},
    )
    return {row.uri: KnownDocument(*row[:-1]) for row in rows}


def _insert(
    conn: sa.Connection,
    wish: AdmissionRequest,
    fresh: Sequence[ListedFile],
    ids: dict[str, int],
    now: Instant,
) -> None:
    o = wish.owner
    rows = [
        [
            ids[i.uri], o.id, o.tenant, i.uri, i.name, i.folder, i.parent_id, wish.source, now.wall,
            i.seen, DocumentState.QUEUED.value, 1, "{}", now.wall, now.wall,
        ]
        for i in fresh
    ]  # fmt: skip
    if rows:
        bulk.bulk_insert(conn, documents, _NEW, rows)


def _touch(conn: sa.Connection, wish: AdmissionRequest, ids: Sequence[int], now: Instant) -> None:
    """Remember that the source still lists these."""
    if ids:
        conn.execute(
            sa.update(documents)
            .where(dialect.id_in(conn, d.id, "ids"))
            .values(listed_at=now.wall, source=wish.source, gone_at=None),
            {"ids": dialect.encode_ids(conn, sorted(ids))},
        )


def _requeue(conn: sa.Connection, again: Sequence[tuple[int, ListedFile]], now: Instant) -> None:
    if not again:
        return
    a = dialect.json_rows(
        conn, "again", {"id": "int", "name": "text", "folder": "text", "seen": "text"}
    )
    conn.execute(
        sa.update(documents)
        .where(d.id == a.c.id)
        .values(
            state=DocumentState.QUEUED.value,
            generation=d.generation + 1,
            name=a.c.name,
            folder=a.c.folder,
            seen=a.c.seen,
            queued_at=now.wall,
            error=None,
        ),
        {"again": dialect.encode_rows([[i, s.name, s.folder, s.seen] for i, s in sorted(again)])},
    )


def _open_generations(
    conn: sa.Connection,
    wish: AdmissionRequest,
    own: Mapping[int, str],
    taken: Sequence[Admitted],
    now: Instant,
) -> None:
    if not taken:
        return
    dropped = dialect.json_rows(conn, "dropped", {"id": "int", "generation": "int"})
    # Only a takeover finds one: nothing works on it any more.
    conn.execute(
        sa.update(generations)
        .where(
            g.document_id == dropped.c.id,
            g.generation < dropped.c.generation,
            is_state(g.state, GenerationState.BUILDING),
        )
        .values(state=GenerationState.DROPPED.value, error="overtaken", finished_at=now.wall),
        {"dropped": dialect.encode_rows([[a.document_id, a.generation] for a in taken])},
    )
    rows = [
        [
            a.document_id, a.generation, wish.owner.tenant, wish.job_id,
            GenerationState.BUILDING.value, a.why, own.get(a.document_id, wish.settings), now.wall,
        ]
        for a in taken
    ]  # fmt: skip
    bulk.bulk_insert(conn, generations, _GENERATION, rows)


def add_to_corpora(
    conn: sa.Connection, corpus_ids: Sequence[int], document_ids: Sequence[int]
) -> None:
    """Put documents into corpora; those that are in them already are left."""
    pairs = [[c, i] for c in corpus_ids for i in sorted(set(document_ids))]
    bulk.insert_missing(conn, corpus_documents, ("corpus_id", "document_id"), pairs)


def mark_missing(
    conn: sa.Connection,
    tenant: str,
    source: str,
    *,
    listed_before: float,
    except_below: Sequence[str] = (),
    now: Instant,
) -> tuple[int, list[int]]:
    """Mark the documents that a complete listing of their source did not contain.

    What lies at or below a place that the listing left out may still be there. Returns how many
    were marked now, and the ids of all that are missing, those of earlier listings too.
    """
    rows = conn.execute(
        sa.select(d.id, d.uri).where(
            d.tenant == tenant,
            d.source == source,
            d.listed_at < listed_before,
            d.parent_id.is_(None),
        )
    ).all()
    below = tuple(f"{place.removesuffix('/')}/" for place in except_below)
    ids = sorted(row.id for row in rows if not f"{row.uri}/".startswith(below))
    marked = conn.execute(
        sa.update(documents)
        .where(dialect.id_in(conn, d.id, "ids"), d.gone_at.is_(None))
        .values(gone_at=now.wall),
        {"ids": dialect.encode_ids(conn, ids)},
    )
    return marked.rowcount, ids


def mark_missing_attachments(
    conn: sa.Connection, parent_id: int, uris: Sequence[str], *, now: Instant
) -> list[int]:
    """Mark the documents that were inside a file and are not any more."""
    held = conn.execute(
        sa.select(d.id, d.uri).where(d.parent_id == parent_id, d.gone_at.is_(None))
    ).all()
    missing = sorted(row.id for row in held if row.uri not in set(uris))
    if missing:
        conn.execute(sa.update(documents).where(d.id.in_(missing)).values(gone_at=now.wall))
    return missing


def canonical_json(settings: dict[str, Any]) -> str:
    """Write settings so that equal ones are equal texts."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))
