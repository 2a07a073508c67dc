"""Admission: records the files that a source lists and decides which of them are indexed.

One call handles a page of a listing in one transaction, with a fixed number of statements.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.admission import Decision, KnownDocument, decide
from quire.model.pipeline import Pipeline
from quire.model.records import About, KindRow, Owner
from quire.model.states import DOCUMENT_LOCKED, TASK_OPEN, DocumentState, GenerationState
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import corpus_documents, documents, generations
from quire.store.db.schema.queue import is_state, tasks
from quire.store.documents import quotas
from quire.store.documents.transition import move_documents, move_generations
from quire.store.queue import dependencies, new_tasks

d, g = documents.c, generations.c
_NEW = (
    "id", "owner_id", "tenant", "uri", "name", "folder", "parent_id", "source", "listed_at", "seen",
    "state", "generation", "settings", "created_at", "queued_at",
)  # fmt: skip
_GENERATION = (
    "document_id", "generation", "tenant", "job_id", "state", "why", "settings", "created_at",
)  # fmt: skip


class ListedFile(NamedTuple):
    """A file as its source lists it."""

    uri: str
    name: str
    seen: str  # what changes with the content: size, time, ETag or checksum
    folder: str = ""
    parent_id: int | None = None


class AdmissionRequest(NamedTuple):
    """What all files of a listing have in common."""

    owner: Owner
    job_id: int
    source: str
    settings: str  # of the corpus, as canonical JSON
    corpus_ids: tuple[int, ...] = ()
    is_forced: bool = False
    retry_failed: bool = False  # also failed files that have not changed


class Admitted(NamedTuple):
    """The outcome for one file."""

    document_id: int
    generation: int
    should_index: bool
    why: str


def admit(
    conn: sa.Connection, request: AdmissionRequest, items: Sequence[ListedFile], *, now: Instant
) -> list[Admitted]:
    """Record the files, and add a generation for each one that is to be indexed."""
    if not items:
        return []
    take_turn(conn, request.owner.tenant)
    known = known_documents(conn, request.owner.tenant, [item.uri for item in items])
    decisions = [
        decide_for(
            request.settings,
            known.get(item.uri),
            item.seen,
            is_forced=request.is_forced,
            retry_failed=request.retry_failed,
            now=now,
        )
        for item in items
    ]
    new = [item for item in items if item.uri not in known]
    new_ids = dialect.reserve_ids(conn, documents, len(new)) if new else ()
    ids = {item.uri: new_id for item, new_id in zip(new, new_ids, strict=True)}
    _insert(conn, request, new, ids, now)
    if new:
        quotas.require(conn, request.owner.tenant, "documents", added=len(new))
    _set_listed(conn, request, [known[i.uri].id for i in items if i.uri in known], now)
    changed = [
        (known[item.uri], item)
        for item, decision in zip(items, decisions, strict=True)
        if decision.should_index and item.uri in known
    ]
    _requeue(conn, "queue", [each for each in changed if not each[0].is_locked], now)
    _requeue(conn, "requeue", [each for each in changed if each[0].is_locked], now)
    admitted = [
        Admitted(ids[item.uri], 1, True, decision.why)
        if item.uri in ids
        else Admitted(
            known[item.uri].id, known[item.uri].generation + decision.should_index, *decision
        )
        for item, decision in zip(items, decisions, strict=True)
    ]
    settings = {k.id: document_settings(request.settings, k.overrides) for k in known.values()}
    _add_generations(conn, request, settings, [a for a in admitted if a.should_index], now)
    add_to_corpora(conn, request.corpus_ids, [a.document_id for a in admitted])
    return admitted


def take_turn(conn: sa.Connection, tenant: str) -> None:
    """Admit the files of a tenant one transaction after another; before any document is locked.

    Two concurrent listings of a folder would insert the same documents.
    """
    dialect.advisory_lock(conn, f"admit {tenant}")


def decide_for(
    settings: str,
    known: KnownDocument | None,
    seen: str,
    *,
    is_forced: bool,
    retry_failed: bool,
    now: Instant,
) -> Decision:
    """Decide about one file under the settings of its document."""
    wanted = settings if known is None else document_settings(settings, known.overrides)
    if known is not None and known.settings not in (None, wanted):
        known = known._replace(settings=completed(known.settings or ""))
    return decide(known, seen, wanted, is_forced=is_forced, retry_failed=retry_failed, now=now.wall)


def completed(settings: str) -> str:
    """Return stored settings with the defaults of those that an earlier release did not have."""
    return canonical_json(asdict(Pipeline()) | json.loads(settings))


def document_settings(settings: str, overrides: str) -> str:
    """Return the settings of the corpus, overridden by those of the document."""
    if overrides == "{}":
        return settings
    return canonical_json(json.loads(settings) | json.loads(overrides))


def known_documents(
    conn: sa.Connection, tenant: str, uris: Sequence[str], *, lock: bool = True
) -> dict[str, KnownDocument]:
    """Return the documents with these URIs; `lock` locks their rows."""
    wanted = dialect.json_rows(conn, "wanted", {"uri": "text"})
    open_task = sa.exists().where(
        tasks.c.document_id == d.id,
        tasks.c.generation == d.generation,
        is_state(tasks.c.state, *TASK_OPEN),
    )
    # Only asked for locked documents, which are few.
    is_open = sa.case((is_state(d.state, *DOCUMENT_LOCKED), open_task), else_=sa.false())
    query = (
        sa.select(
            d.id, d.state, d.generation, d.live_generation, d.seen, g.settings,
            is_open.label("has_open_task"),
            sa.func.coalesce(
                sa.case((is_state(d.state, DocumentState.INDEXING), d.processing_started_at)),
                d.queued_at, d.created_at,
            ).label("since"),
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
    return {uri: KnownDocument(*rest) for *rest, uri in rows}


def _insert(
    conn: sa.Connection,
    request: AdmissionRequest,
    new: Sequence[ListedFile],
    ids: dict[str, int],
    now: Instant,
) -> None:
    o = request.owner
    rows = [
        [
            ids[i.uri], o.id, o.tenant, i.uri, i.name, i.folder, i.parent_id, request.source,
            now.wall, i.seen, DocumentState.QUEUED.value, 1, "{}", now.wall, now.wall,
        ]
        for i in new
    ]  # fmt: skip
    if rows:
        bulk.bulk_insert(conn, documents, _NEW, rows)


def _set_listed(
    conn: sa.Connection, request: AdmissionRequest, ids: Sequence[int], now: Instant
) -> None:
    """Record that the source still lists these documents."""
    if ids:
        conn.execute(
            sa.update(documents)
            .where(dialect.id_in(conn, d.id, "ids"))
            .values(listed_at=now.wall, source=request.source, gone_at=None),
            {"ids": dialect.encode_ids(conn, sorted(ids))},
        )


def _requeue(
    conn: sa.Connection,
    move: str,
    changed: Sequence[tuple[KnownDocument, ListedFile]],
    now: Instant,
) -> None:
    if not changed:
        return
    columns = {"id": "int", "name": "text", "folder": "text", "seen": "text"}
    c = dialect.json_rows(conn, "changed", columns).c
    rows = sorted([known.id, item.name, item.folder, item.seen] for known, item in changed)
    conn.execute(
        move_documents(
            move,
            d.id == c.id,
            generation=d.generation + 1,
            name=c.name,
            folder=c.folder,
            seen=c.seen,
            queued_at=now.wall,
            error=None,
        ),
        {"changed": dialect.encode_rows(rows)},
    )


def _add_generations(
    conn: sa.Connection,
    request: AdmissionRequest,
    settings: Mapping[int, str],
    taken: Sequence[Admitted],
    now: Instant,
) -> None:
    if not taken:
        return
    dropped = dialect.json_rows(conn, "dropped", {"id": "int", "generation": "int"})
    # Only those of stuck documents: no task works on them any more.
    conn.execute(
        move_generations(
            "drop",
            g.document_id == dropped.c.id,
            g.generation < dropped.c.generation,
            error="overtaken",
            finished_at=now.wall,
        ),
        {"dropped": dialect.encode_rows([[a.document_id, a.generation] for a in taken])},
    )
    rows = [
        [
            a.document_id, a.generation, request.owner.tenant, request.job_id,
            GenerationState.BUILDING.value, a.why, settings.get(a.document_id, request.settings),
            now.wall,
        ]
        for a in taken
    ]  # fmt: skip
    bulk.bulk_insert(conn, generations, _GENERATION, rows)


def queue_uploads(
    conn: sa.Connection,
    owner: Owner,
    job_id: int,
    kind: KindRow,
    taken: Sequence[tuple[Admitted, Mapping[str, Any]]],
    *,
    now: Instant,
) -> None:
    """Add a task for each uploaded file, with its payload, to a job that was just created.

    They depend on the first task of the job, so whatever delays the job (another job of its owner,
    a pause) delays them too.
    """
    if not taken:
        return
    t = tasks.c
    first = conn.execute(sa.select(t.id, t.priority).where(t.job_id == job_id)).one()
    new = [
        new_tasks.NewTask(
            job_id,
            kind,
            first.priority,
            payload=json.dumps({"document": one.document_id, **payload}),
            parent_id=first.id,
            waits=1,
            about=About.whole(one.document_id, one.generation),
        )
        for one, payload in taken
    ]
    cost = sum(each.cost for each in new)
    ids = new_tasks.add_to_job(conn, owner, job_id, new, added_cost=cost, now=now)
    dependencies.add(conn, [(None, first.id, task_id, "cancel") for task_id in ids])
    conn.execute(sa.update(tasks).where(t.id == first.id).values(has_successors=True))


def add_to_corpora(
    conn: sa.Connection, corpus_ids: Sequence[int], document_ids: Sequence[int]
) -> None:
    """Add documents to corpora that they are not in yet."""
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

    Those at or below a path that the listing skipped are not marked. Returns how many were marked
    now, and the ids of all missing ones, including those of earlier listings.
    """
    rows = conn.execute(
        sa.select(d.id, d.uri).where(
            d.tenant == tenant,
            d.source == source,
            d.listed_at < listed_before,
            d.parent_id.is_(None),
        )
    ).all()
    below = tuple(f"{path.removesuffix('/')}/" for path in except_below)
    ids = sorted(row.id for row in rows if not f"{row.uri}/".startswith(below))
    return _set_gone(conn, ids, now), ids


def mark_missing_attachments(
    conn: sa.Connection, parent_id: int, uris: Sequence[str], *, now: Instant
) -> list[int]:
    """Mark the attachments that a file no longer has; return their ids."""
    held = conn.execute(
        sa.select(d.id, d.uri).where(d.parent_id == parent_id, d.gone_at.is_(None))
    ).all()
    missing = sorted(row.id for row in held if row.uri not in set(uris))
    _set_gone(conn, missing, now)
    return missing


def _set_gone(conn: sa.Connection, ids: Sequence[int], now: Instant) -> int:
    mine = dialect.id_in(conn, d.id, "ids")
    marked = sa.update(documents).where(mine, d.gone_at.is_(None)).values(gone_at=now.wall)
    return conn.execute(marked, {"ids": dialect.encode_ids(conn, ids)}).rowcount


def canonical_json(settings: dict[str, Any]) -> str:
    """Encode settings so that equal settings are equal strings."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))
