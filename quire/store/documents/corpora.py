"""Corpora: named sets of documents with the settings of their pipeline."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import TASK_OPEN
from quire.store.db import bulk, dialect
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
    """A corpus with its settings, those that differ from the defaults."""

    id: int
    name: str
    settings: dict[str, Any]


def get_or_create(conn: sa.Connection, tenant: str, name: str, *, now: Instant) -> Corpus:
    """Return a tenant's corpus, made with default settings if it is missing."""
    row = _found(conn, tenant, name)
    if row is None:
        create(conn, tenant, name, {}, now=now)
        row = _found(conn, tenant, name)
    assert row is not None  # noqa: S101
    return Corpus(row.id, row.name, json.loads(row.settings))


def find(conn: sa.Connection, tenant: str, name: str) -> Corpus | None:
    """Return a tenant's corpus if it exists."""
    row = _found(conn, tenant, name)
    return None if row is None else Corpus(row.id, row.name, json.loads(row.settings))


def _found(conn: sa.Connection, tenant: str, name: str) -> Any:
    return conn.execute(sa.select(corpora).where(c.tenant == tenant, c.name == name)).one_or_none()


def create(
    conn: sa.Connection, tenant: str, name: str, settings: Mapping[str, Any], *, now: Instant
) -> bool:
    """Create a corpus; returns whether it was not there before."""
    rows = bulk.insert_missing(
        conn,
        corpora,
        ("tenant", "name", "settings", "created_at"),
        [[tenant, name, json.dumps(dict(settings), sort_keys=True), now.wall]],
        ("id",),
    )
    return bool(rows)


def change(conn: sa.Connection, corpus_id: int, settings: Mapping[str, Any]) -> None:
    """Replace a corpus's settings."""
    conn.execute(
        sa.update(corpora)
        .where(c.id == corpus_id)
        .values(settings=json.dumps(dict(settings), sort_keys=True))
    )


def delete(conn: sa.Connection, corpus_id: int) -> int:
    """Delete a corpus; returns how many documents were in it, which stay."""
    cd = corpus_documents.c
    left = conn.execute(sa.delete(corpus_documents).where(cd.corpus_id == corpus_id)).rowcount
    conn.execute(sa.delete(corpora).where(c.id == corpus_id))
    return left


def list_all(conn: sa.Connection, tenant: str) -> list[dict[str, Any]]:
    """List a tenant's corpora with the number of their documents."""
    count = sa.select(sa.func.count()).where(corpus_documents.c.corpus_id == c.id).scalar_subquery()
    rows = conn.execute(
        sa.select(c.id, c.name, c.settings, count).where(c.tenant == tenant).order_by(c.name)
    )
    return [
        {"id": i, "name": name, "settings": json.loads(settings), "documents": total}
        for i, name, settings, total in rows
    ]


def of_document(conn: sa.Connection, document_id: int) -> list[int]:
    """List the corpora that a document is in."""
    cd = corpus_documents.c
    return list(conn.scalars(sa.select(cd.corpus_id).where(cd.document_id == document_id)))


def set_growing(conn: sa.Connection, job_id: int, *, is_growing: bool) -> None:
    """Say whether a job's list of files still grows: no fraction is shown while it does."""
    conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(is_growing=is_growing))


def delete_documents(
    conn: sa.Connection, tenant: str, ids: Sequence[int], *, now: Instant
) -> list[int]:
    """Delete documents with the files inside them; returns the ids of all that went.

    A document stays while something works on it or on a file inside it. Pages are collected later.
    """
    if not ids:
        return []
    parents = _inside(conn, ids)
    every = sorted({*ids, *parents})
    dialect.lock_rows(conn, documents, every)
    at_work = sa.exists().where(tasks.c.document_id == d.id, is_state(tasks.c.state, *TASK_OPEN))
    rows = conn.execute(
        sa.select(d.id, at_work).where(dialect.id_in(conn, d.id, "ids"), d.tenant == tenant),
        {"ids": dialect.encode_ids(conn, every)},
    )
    is_busy = {row[0]: bool(row[1]) for row in rows}
    staying = _with_parents([each for each, busy in is_busy.items() if busy], parents)
    going = {each for each in ids if each in is_busy} - staying
    for each, parent in parents.items():
        if parent in going:
            going.add(each)
    _delete(conn, sorted(going))
    return sorted(going)


def _inside(conn: sa.Connection, ids: Sequence[int]) -> dict[int, int]:
    """Return the parents of all files that lie inside these documents, outer files first.

    One that a source of its own lists as well is not among them.
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
    conn.execute(sa.delete(documents).where(dialect.id_in(conn, d.id, "going")), going)
