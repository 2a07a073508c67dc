"""Uploads: stores received files as blobs and indexes them by one ingest job."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.clock import Instant
from quire.control import jobs, queries
from quire.control.caller import Caller
from quire.errors import BadInput, Gone, QuireError
from quire.model.pipeline import Pipeline, parsed
from quire.model.records import DEFAULT_PRIORITY, Submission
from quire.parse import plugin_parser
from quire.store import Connection
from quire.store.documents import admission, corpora, pages
from quire.store.documents.gc import GRACE
from quire.store.queue import kinds, owners

if TYPE_CHECKING:
    from quire.fetch.blobs.backend import Blobs

#: The source of uploaded documents.
SOURCE = "upload:"
MAX_FILES = 1000
MAX_CORPUS_NAME = 100
_KIND = "ingest.document"
#: Seconds between two holds of the blobs that are being stored.
HOLD_SECONDS = GRACE / 4


class UploadedFile(NamedTuple):
    """A file that was received completely, still in its partial file."""

    name: str
    digest: str
    size: int
    part: Path

    @property
    def uri(self) -> str:
        """The URI: the same bytes under the same name are the same document."""
        return f"{SOURCE}{self.digest}/{self.name}"


def upload(
    caller: Caller,
    blobs: "Blobs",
    received: Sequence[UploadedFile],
    *,
    corpus: str | None = None,
    settings: Mapping[str, Any] | None = None,
    key: str | None = None,
    priority: int = DEFAULT_PRIORITY,
) -> dict[str, Any]:
    """Store the files and submit one job that indexes them; return the job and its documents.

    A file with the name and bytes of an existing document is not indexed again.
    """
    corpus = queries.corpus_for(caller, corpus)
    unique = list({each.uri: each for each in received}.values())
    _check(unique, corpus)
    given = parsed(settings or {})
    plugin_parser.require(Pipeline().merged(given).parser)
    with _held(caller, [each.digest for each in unique]):
        for each in unique:
            _store_blob(caller, blobs, each)
    uploads = [{"name": one.name, "digest": one.digest, "size": one.size} for one in unique]
    payload = {"sources": [], "corpus": corpus, "settings": given, "uploads": uploads}

    def before(conn: Connection) -> tuple[int, ...]:
        admission.take_turn(conn, caller.tenant)
        admission.known_documents(conn, caller.tenant, [one.uri for one in unique])
        return ()

    def then(conn: Connection, ids: list[int], now: Instant) -> None:
        _admit(caller, conn, ids[0], unique, corpus, given, now)

    submission = Submission("ingest", payload, priority)
    [job_id] = jobs.submit(caller, [submission], key=key, before=before, then=then, is_own=True)
    with caller.db.read() as conn:
        standing = admission.known_documents(
            conn, caller.tenant, [one.uri for one in unique], lock=False
        )
    documents = [
        {"id": standing[one.uri].id, "name": one.name, "state": standing[one.uri].state}
        for one in unique
        if one.uri in standing
    ]
    return {"id": job_id, "documents": documents}


def _check(received: Sequence[UploadedFile], corpus: str | None) -> None:
    if not received:
        raise BadInput("upload: it contains no file. Nothing was stored.")
    if len(received) > MAX_FILES:
        raise BadInput(
            f"upload: {len(received):,} files (maximum {MAX_FILES:,}). Nothing was stored."
        )
    # One empty file among others costs that file: its document fails.
    if not any(each.size for each in received):
        raise BadInput(f"{received[0].name}: is empty (0 bytes). Nothing was stored.")
    if corpus is not None and not (corpus.isprintable() and 0 < len(corpus) <= MAX_CORPUS_NAME):
        raise BadInput(
            f"corpus: the name must have 1 to {MAX_CORPUS_NAME} printable characters. "
            "Nothing was stored."
        )


def _store_blob(caller: Caller, blobs: "Blobs", one: UploadedFile) -> None:
    """Store a file as a blob; its row first, which protects it from the garbage collector."""
    caller.db.write(
        lambda conn, now: pages.put_content(conn, caller.tenant, one.digest, one.size, now.wall)
    )
    if one.part.exists():
        blobs.put(one.part, one.digest, is_own=True)


@contextmanager
def _held(caller: Caller, digests: Sequence[str]) -> Iterator[None]:
    """Keep blobs from being collected: nothing refers to them before the job is submitted.

    Storing many files in a bucket may take longer than the collector's grace.
    """
    is_over = threading.Event()

    def hold() -> None:
        while not is_over.wait(HOLD_SECONDS):
            # Else it may work the next time; `_admit` looks whether it did.
            with suppress(QuireError):
                caller.db.write(lambda conn, now: pages.hold_contents(conn, caller.tenant, digests))

    thread = threading.Thread(target=hold, name="hold-uploads", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _admit(
    caller: Caller,
    conn: Connection,
    job_id: int,
    received: Sequence[UploadedFile],
    corpus: str | None,
    given: Mapping[str, Any],
    now: Instant,
) -> None:
    held = pages.hold_contents(conn, caller.tenant, [one.digest for one in received])
    if gone := [one.name for one in received if one.digest not in held]:
        raise Gone(
            f"{gone[0]}: was garbage collected before all files of the upload were stored. "
            "Nothing was queued; upload them again."
        )
    owner = owners.lock_or_create(conn, caller.tenant, caller.user)
    inside = corpora.get_or_create(conn, caller.tenant, corpus, now=now) if corpus else None
    pipeline = Pipeline().merged({**(inside.settings if inside else {}), **given})
    request = admission.AdmissionRequest(
        owner,
        job_id,
        SOURCE,
        admission.canonical_json(asdict(pipeline)),
        (inside.id,) if inside else (),
        retry_failed=True,  # who sends a file again asks for it
    )
    files = [admission.ListedFile(one.uri, one.name, one.digest) for one in received]
    admitted = admission.admit(conn, request, files, now=now)
    taken = [
        (made, {"digest": one.digest, "size": one.size})
        for made, one in zip(admitted, received, strict=True)
        if made.should_index
    ]
    if _KIND not in kinds.by_name(conn):
        kinds.announce(conn, [caller.known()[_KIND]])
    admission.queue_uploads(conn, owner, job_id, kinds.by_name(conn)[_KIND], taken, now=now)
