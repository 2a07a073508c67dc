"""Corpora: named sets of documents with their settings; deletion of documents."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import TASK_OPEN
from quire.store.db import bulk, dialect, document_entries
from quire.store.db.schema.documents import (
    corpora,
    corpus_documents,
    documents,
    generation_pages,
    generations,
)
from quire.store.db.schema.queue import is_state, jobs, tasks

c, d = corpora.c, documents.c


class Corpus(NamedTuple):
    """A corpus, and those of its settings that differ from the defaults."""

    id: int
    name: str
    settings: dict[str, Any]


def get_or_create(conn: sa.Connection, tenant: str, name: str, *, now: Instant) -> Corpus:
    """Return a corpus of a tenant; create it with default settings if it is missing."""
    found = find(conn, tenant, name)
    if found is None:
        create(conn, tenant, name, {}, now=now)
        found = find(conn, tenant, name)
    assert found is not None  # noqa: S101
    return found


def find(conn: sa.Connection, tenant: str, name: str) -> Corpus | None:
    """Return a corpus of a tenant, if it exists."""
    mine = sa.select(c.id, c.name, c.settings).where(c.tenant == tenant, c.name == name)
    row = conn.execute(mine).one_or_none()
    return None if row is None else Corpus(row.id, row.name, json.loads(row.settings))


def create(
    conn: sa.Connection, tenant: str, name: str, settings: Mapping[str, Any], *, now: Instant
) -> bool:
    """Create a corpus; return whether it is new."""
    rows = bulk.insert_missing(
        conn,
        corpora,
        ("tenant", "name", "settings", "created_at"),
        [[tenant, name, json.dumps(dict(settings), sort_keys=True), now.wall]],
        ("id",),
    )
    return bool(rows)


def change(conn: sa.Connection, corpus_id: int, settings: Mapping[str, Any]) -> None:
    """Replace the settings of a corpus."""
    conn.execute(
        sa.update(corpora)
        .where(c.id == corpus_id)
        .values(settings=json.dumps(dict(settings), sort_keys=True))
    )


def set_synonyms(conn: sa.Connection, corpus_id: int, csv: str | None) -> None:
    """Replace or remove the synonyms of a corpus."""
    conn.execute(sa.update(corpora).where(c.id == corpus_id).values(synonyms=csv))


def synonyms(conn: sa.Connection, tenant: str, corpus_id: int | None = None) -> list[str]:
    """Return the synonyms of a corpus, or of all corpora of a tenant; equal lists once."""
    query = sa.select(c.synonyms).where(c.tenant == tenant, c.synonyms.is_not(None)).order_by(c.id)
    if corpus_id is not None:
        query = query.where(c.id == corpus_id)
    return list(dict.fromkeys(conn.scalars(query)))


def delete(conn: sa.Connection, corpus_id: int) -> int:
    """Delete a corpus; return how many documents were in it. They are not deleted."""
    cd = corpus_documents.c
    left = conn.execute(sa.delete(corpus_documents).where(cd.corpus_id == corpus_id)).rowcount
    conn.execute(sa.delete(corpora).where(c.id == corpus_id))
    return left


def list_all(conn: sa.Connection, tenant: str) -> list[dict[str, Any]]:
    """List the corpora of a tenant, with the number of documents."""
    count = sa.select(sa.func.count()).where(corpus_documents.c.corpus_id == c.id).scalar_subquery()
    rows = conn.execute(
        sa.select(c.id, c.name, c.settings, count).where(c.tenant == tenant).order_by(c.name)
    )
    return [
        {"id": i, "name": name, "settings": json.loads(settings), "documents": total}
        for i, name, settings, total in rows
    ]


def of_document(conn: sa.Connection, document_id: int) -> list[int]:
    """Return the ids of the corpora that a document is in."""
    cd = corpus_documents.c
    return list(conn.scalars(sa.select(cd.corpus_id).where(cd.document_id == document_id)))


def set_growing(conn: sa.Connection, job_id: int, *, is_growing: bool) -> None:
    """Set whether a job is still listing files: until then it has no completion percentage."""
    conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(is_growing=is_growing))


def delete_documents(
    conn: sa.Connection, tenant: str, ids: Sequence[int], *, now: Instant
) -> list[int]:
    """Delete documents and their attachments; return the ids of all that were deleted.

    A document stays while a task works on it or on one of its attachments. Its pages are garbage
    collected later.
    """
    if not ids:
        return []
    parents = _attachments(conn, ids)
    every = sorted({*ids, *parents})
    dialect.lock_rows(conn, documents, every)
    has_task = sa.exists().where(tasks.c.document_id == d.id, is_state(tasks.c.state, *TASK_OPEN))
    rows = conn.execute(
        sa.select(d.id, has_task).where(dialect.id_in(conn, d.id, "ids"), d.tenant == tenant),
        {"ids": dialect.encode_ids(conn, every)},
    )
    is_busy = {document_id: bool(busy) for document_id, busy in rows}
    staying = _with_parents([each for each, busy in is_busy.items() if busy], parents)
    going = {each for each in ids if each in is_busy} - staying
    for each, parent in parents.items():
        if parent in going:
            going.add(each)
    _delete(conn, sorted(going))
    return sorted(going)


def _attachments(conn: sa.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Return attachment → parent for all attachments below these documents, outermost first.

    An attachment that a source lists as well is left out.
    """
    parent = documents.alias("parent")
    query = (
        sa.select(d.id, d.parent_id)
        .join(parent, parent.c.id == d.parent_id)
        .where(dialect.id_in(conn, d.parent_id, "ids"), d.source == parent.c.uri)
        .order_by(d.id)
    )
    parents: dict[int, int] = {}
    level = list(ids)
    while level:
        rows = conn.execute(query, {"ids": dialect.encode_ids(conn, level)}).all()
        fresh = {child: outer for child, outer in rows if child not in parents}
        parents |= fresh
        level = list(fresh)
    return parents


def _with_parents(ids: Sequence[int], parents: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    for each in ids:
        at: int | None = each
        while at is not None and at not in found:
            found.add(at)
            at = parents.get(at)
    return found


def _delete(conn: sa.Connection, ids: Sequence[int]) -> None:
    going = {"going": dialect.encode_ids(conn, ids)}
    for column in (
        generation_pages.c.document_id,
        generations.c.document_id,
        corpus_documents.c.document_id,
    ):
        conn.execute(sa.delete(column.table).where(dialect.id_in(conn, column, "going")), going)
    stays = sa.update(documents).where(dialect.id_in(conn, d.parent_id, "going"))
    conn.execute(stays.values(parent_id=None), going)
    document_entries.delete(conn, ids)
    conn.execute(sa.delete(documents).where(dialect.id_in(conn, d.id, "going")), going)
