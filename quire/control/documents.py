"""The verbs on documents: re-index, delete, save, read one page.

Each takes a `Caller`; those that need the bytes of a document also take where blobs are kept.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.clock import Instant
from quire.control import jobs
from quire.control.caller import Caller, verb
from quire.control.queries import missing_document
from quire.errors import Conflict, Gone, NotFound, TooLarge
from quire.model.pages import Page, PageFailure
from quire.model.pipeline import Pipeline, parsed
from quire.model.records import DEFAULT_PRIORITY, Submission
from quire.model.states import DOCUMENT_LOCKED
from quire.parse import plugin_parser
from quire.store import Connection
from quire.store.documents import corpora
from quire.store.documents import pages as stored
from quire.store.documents import reindex as again
from quire.store.documents.admission import canonical_json
from quire.store.queue import owners
from quire.store.reports import documents as reports

if TYPE_CHECKING:
    from quire.fetch.blobs.backend import Blobs

#: Words of a document in PAWLs format, in an answer of the API.
MOST_WORDS = 500_000
_PAGES = 20  # that are read at a time: each may have 2,000,000 characters


class Reading(NamedTuple):
    """A page that was read in this process."""

    page: Page | PageFailure
    seconds: float


def row_of(conn: Connection, caller: Caller, document_id: int) -> Any:
    """Return a document's row, or raise NotFound."""
    corpus_id = caller.corpus.id if caller.corpus else None
    row = reports.row_of(conn, caller.tenant, document_id, corpus_id)
    if row is None:
        raise missing_document(document_id)
    return row


def reindex(
    caller: Caller,
    document_id: int,
    given: Mapping[str, Any],
    *,
    force: bool = False,
    priority: int = DEFAULT_PRIORITY,
) -> int:
    """Index a document again as a new generation; returns the job.

    `given` settings become the document's own. One that is at work is only begun anew by `force`.
    """
    if "parser" in given:
        plugin_parser.require(str(given["parser"]))
    payload = {"document": document_id, "force": True, "settings": parsed(given)}

    def before(conn: Connection) -> list[int]:
        # Or it could be deleted, or be queued by another, after it was read.
        return again.lock(conn, caller.tenant, document_id)

    def then(conn: Connection, ids: list[int], now: Instant) -> None:
        row = row_of(conn, caller, document_id)
        if row.state in DOCUMENT_LOCKED and not force:
            raise Conflict(
                f"document {document_id}: {row.state} by job {row.job_id}. Nothing was "
                "changed. Wait for it, or restart it with --force."
            )
        settings, overrides = _settings(conn, caller, row, given)
        owner = owners.lock_or_create(conn, caller.tenant, caller.user)
        again.enqueue(conn, owner, ids[0], row, settings, overrides, now=now)

    with caller.db.read() as conn:
        row_of(conn, caller, document_id)
    submission = Submission("ingest", payload, priority)
    [job_id] = jobs.submit(caller, [submission], before=before, then=then, is_own=True)
    return job_id


def _settings(
    conn: Connection, caller: Caller, row: Any, given: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the settings of the document's corpus, and its own settings."""
    own = json.loads(row.settings) | parsed(given)
    told: dict[str, Any] = json.loads(row.pipeline or "{}")
    inside = corpora.of_document(conn, row.id)
    for each in corpora.list_all(conn, caller.tenant) if len(inside) == 1 else ():
        if each["id"] == inside[0]:
            told = each["settings"]
    pipeline = Pipeline().merged(told)
    pipeline.merged(own)
    return canonical_json(asdict(pipeline)), canonical_json(own)


@verb
def delete(caller: Caller, conn: Connection, now: Instant, document_id: int) -> None:
    """Delete a document and the files inside it; pages and files are garbage-collected later."""
    row = row_of(conn, caller, document_id)
    if not corpora.delete_documents(conn, caller.tenant, [document_id], now=now):
        raise Conflict(
            f"document {document_id}: {row.state} by job {row.job_id}. It can be deleted when "
            "no job is working on it or on a file inside it. Wait, or cancel the job first: "
            f"quire job cancel {row.job_id}"
        )


def save(
    caller: Caller, blobs: "Blobs", document_id: int, target: Path, *, replace: bool = False
) -> Path:
    """Write the original file to a path, or under its own name into a folder."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
    return blobs.save_as(_digest(row), row.name, target, replace=replace)


def pages(
    caller: Caller, document_id: int, *, limit: int = 50, cursor: int | None = None
) -> dict[str, Any]:
    """List the pages of a document and how each was read."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        return reports.list_pages(conn, row, limit=limit, cursor=cursor)


def tokens(caller: Caller, document_id: int, version: int, *, most: int | None = None) -> Any:
    """Return the words of a document with their bounding boxes, in PAWLs format.

    Raises TooLarge if it has more than so many words.
    """
    from quire.parse import word_boxes

    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        return word_boxes.pawls(_pages_of(conn, row, most), version)


def _pages_of(conn: Connection, row: Any, most: int | None) -> Iterator[Page]:
    from quire.parse import word_boxes

    after = words = 0
    while found := reports.pages_of(conn, row, limit=_PAGES, after=after):
        for one in found:
            words += word_boxes.count(one.words or b"")
            if most is not None and words > most:
                raise TooLarge(
                    f"document {row.id}: has more than {most:,} words. Read those of each page, or "
                    f"all of them on the server: quire document tokens {row.id}"
                )
            yield Page(
                one.number, one.text or "", one.words or b"", one.width or 0.0,
                one.height or 0.0, one.via or "none", one.label, blocks=one.blocks or b"",
            )  # fmt: skip
        after = found[-1].number


def read_page(caller: Caller, blobs: "Blobs", document_id: int, number: int) -> Reading:
    """Read one page in this process, as a task would, for debugging."""
    from quire.ingest.fetch import options_of
    from quire.parse import file_type, formats
    from quire.parse.pdf import reader as pdf

    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        digest = row.newest_digest or _digest(row)
        size = stored.size_of(conn, caller.tenant, digest)
    path = blobs.checked_path(digest, size or 0)
    media_type = row.newest_type or file_type.detect(path, row.name)
    options = options_of(Pipeline().merged(json.loads(row.pipeline or "{}")))
    outline = formats.inspect(path, media_type, options)
    first, last = (1, 1) if outline.unit == "whole" else (number, number)
    is_there = number > 0 and (outline.unit == "whole" or number <= outline.length)
    began = time.perf_counter()
    try:
        for page in formats.read(path, media_type, options, first, last) if is_there else ():
            if page.number == number:
                return Reading(page, time.perf_counter() - began)
    finally:
        pdf.close()
    raise no_page(document_id, number)


def no_page(document_id: int, number: int) -> NotFound:
    """Return the error for a page that a document does not have."""
    return NotFound(
        f"document {document_id}: has no page {number}. `quire document pages {document_id}` "
        "lists them."
    )


def _digest(row: Any) -> str:
    if not row.digest:
        raise Gone(
            f"document {row.id}: its file was never fetched. "
            f"Index it: quire document reindex {row.id}"
        )
    return str(row.digest)
