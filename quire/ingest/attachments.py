"""The files inside a message: kept as blobs, and taken in as documents of their own."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from quire.ingest.listing import spawn_document
from quire.model.pipeline import Pipeline
from quire.store.documents import admission, corpora, generations
from quire.store.queue import owners


class Inside(NamedTuple):
    """A file inside a file, kept as a blob."""

    name: str
    digest: str
    size: int


def kept(path: Path, keep: Callable[[bytes, str], str], check: Callable[[], None]) -> list[Inside]:
    """Keep what is attached to a message; `keep` takes the bytes and a label, and names them."""
    from quire.parse.mail import attachments

    found = []
    for at, each in enumerate(attachments(path)):
        check()
        name = keep(each.content, f"attached-{at}")
        found.append(Inside(each.name, name, len(each.content)))
    return found


def take_in(
    tx: Any, begun: generations.Build, pipeline: Pipeline, job_id: int, inside: list[Inside]
) -> None:
    """Queue the files inside a message; those that it had before and has no more are gone."""
    sightings = [
        admission.ListedFile(f"{begun.uri}#{at}/{each.name}", each.name, each.digest, "", begun.id)
        for at, each in enumerate(inside, start=1)
    ]
    payloads = [{"digest": each.digest, "size": each.size} for each in inside]
    gone = admission.mark_missing_attachments(
        tx.connection, begun.id, [each.uri for each in sightings], now=tx.now
    )
    if pipeline.propagate_deletions:
        corpora.delete_documents(tx.connection, begun.tenant, gone, now=tx.now)
    wish = admission.AdmissionRequest(
        owners.by_id(tx.connection, begun.owner_id), job_id, begun.uri,
        admission.canonical_json(asdict(pipeline)),
        tuple(corpora.of_document(tx.connection, begun.id)),
    )  # fmt: skip
    admitted = admission.admit(tx.connection, wish, sightings, now=tx.now)
    for one, payload in zip(admitted, payloads, strict=True):
        if one.is_taken:
            spawn_document(tx, one, payload)
