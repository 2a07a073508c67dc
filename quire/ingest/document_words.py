"""Counts the words of a document before its swap, and writes them in the swap's transaction."""

from collections.abc import Collection, Iterable
from functools import partial

from quire.clock import Instant
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.documents import document_words as store
from quire.text import fields
from quire.text.fields import PageEntries


def count(
    db: Database,
    document_id: int,
    generation: int,
    fresh: Iterable[tuple[str, str]] = (),
    besides: Collection[str] = (),
) -> PageEntries:
    """Count the words of the stored pages of a generation, and of `fresh` pages.

    Stored pages whose key is one of `besides` are left out: they are among the fresh ones.
    """
    counted, last = fields.PageWords(), 0
    for text, language in fresh:
        counted.add(text, language)
    while True:
        with db.read() as conn:
            rows = store.page_texts(conn, document_id, generation, last)
        for number, key, text, language in rows:
            last = number
            if key not in besides:
                counted.add(text, language)
        if len(rows) < store.BATCH:
            return counted.entries()


def put(conn: Connection, document_id: int, generation: int, counted: PageEntries) -> None:
    """Write the words of a generation that becomes live, and those of the document's name."""
    subject = store.subject(conn, document_id)
    if subject is None:
        return
    name = fields.name_words(subject.name, subject.metadata)
    store.put(
        conn, subject.tenant, document_id, generation,
        name=name, length=counted.length, entries=counted.entries + fields.name_entries(name),
    )  # fmt: skip


def index_missing(db: Database) -> int:
    """Index the words of live documents that the index lacks; returns how many."""
    done = 0
    while True:
        with db.read() as conn:
            found = store.find_lacking(conn)
        if not found:
            return done
        for document_id, generation in found:
            counted = count(db, document_id, generation)
            done += db.write(partial(_put_if_live, document_id, generation, counted))


def _put_if_live(
    document_id: int, generation: int, counted: PageEntries, conn: Connection, _: Instant
) -> int:
    if not store.lock_live(conn, document_id, generation):
        return 0
    put(conn, document_id, generation, counted)
    return 1
