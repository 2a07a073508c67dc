"""Attachments: the files inside an e-mail, indexed as documents of their own."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from quire.ingest import resources
from quire.ingest.fetch import DocumentFile, store_bytes
from quire.model.context import TaskContext
from quire.parse import formats
from quire.store import Transaction
from quire.store.documents import admission, corpora
from quire.store.queue import owners


class StoredAttachment(NamedTuple):
    """An attachment, stored as a blob."""

    name: str
    digest: str
    size: int


def extract(ctx: TaskContext, file: DocumentFile) -> list[StoredAttachment] | None:
    """Store the attachments of a file as blobs; None if its type cannot have any."""
    if file.media_type not in formats.MESSAGES:
        return None
    reader = resources.reader(ctx, file.build.tenant)
    found = []
    for at, each in enumerate(reader.attachments(file.path, file.media_type)):
        ctx.check()
        digest = store_bytes(ctx, file.build.tenant, each.content, f"attached-{at}")
        found.append(StoredAttachment(each.name, digest, len(each.content)))
    return found


def take_turn(
    tx: Transaction, file: DocumentFile, found: Sequence[StoredAttachment] | None
) -> None:
    """Wait until this file may admit its attachments, before its own document is locked."""
    if found is not None:
        admission.take_turn(tx.connection, file.build.tenant)


def queue(
    tx: Transaction, file: DocumentFile, job_id: int, found: Sequence[StoredAttachment] | None
) -> None:
    """Queue new and changed attachments; mark those that the file no longer has as missing."""
    if found is None:
        return
    conn, build = tx.connection, file.build
    listed = [
        admission.ListedFile(
            f"{build.uri}#{at}/{each.name}", each.name, each.digest, "", build.document_id
        )
        for at, each in enumerate(found, start=1)
    ]
    missing = admission.mark_missing_attachments(
        conn, build.document_id, [each.uri for each in listed], now=tx.now
    )
    if file.pipeline.propagate_deletions:
        corpora.delete_documents(conn, build.tenant, missing, now=tx.now)
    request = admission.AdmissionRequest(
        owner=owners.by_id(conn, build.owner_id),
        job_id=job_id,
        source=build.uri,
        settings=admission.canonical_json(asdict(file.pipeline)),
        corpus_ids=tuple(corpora.of_document(conn, build.document_id)),
        retry_failed=True,  # its message is new, changed or retried itself
    )
    admitted = admission.admit(conn, request, listed, now=tx.now)
    for one, each in zip(admitted, found, strict=True):
        if one.should_index:
            resources.spawn_document(tx, one, {"digest": each.digest, "size": each.size})
