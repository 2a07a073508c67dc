"""Documents for store tests: admitted, filled and swapped in by the store's own functions.

A line of a page's text is a chunk. Equal lines are one chunk, equal texts one page.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.fetch.blobs.folder import BlobFolder
from quire.ingest import document_words
from quire.model.outcomes import Lease
from quire.model.pages import ChunkSpan, Page
from quire.model.pipeline import text_digest
from quire.store.documents import admission, corpora, generation_pages, generations, pages
from quire.store.queue import owners
from quire.store.search import vectors
from quire.text import fields, words
from tests.store.stage import Stage, ending

DIMENSIONS = 4
SOURCE = "folder"


class Filing(NamedTuple):
    """One generation of a document, with the job and the task that work on it."""

    document_id: int
    generation: int
    job_id: int
    task_id: int


class Shelf:
    """The documents of one tenant on a stage; with a folder, their blobs are files in it."""

    def __init__(self, stage: Stage, folder: Path | None = None, *, tenant: str = "default"):
        self.stage = stage
        self.db = stage.db
        self.tenant = tenant
        self.blobs = None if folder is None else BlobFolder(folder)
        self._leases: dict[int, Lease] = {}

    def file(self, name: str, *texts: str, **how: Any) -> Filing:
        """Take in a document with these pages; it is live afterwards."""
        filing = self.queue(name, **{k: how.pop(k) for k in ("seen", "corpus") if k in how})
        self.begin(filing)
        self.fill(filing, texts, **how)
        self.swap(filing)
        return filing

    def queue(
        self, name: str, *, seen: str | None = None, corpus: str = "", parent_id: int | None = None
    ) -> Filing:
        """Admit a document, whose task waits; `seen` is by default something not seen before."""
        job_id = self.stage.one()
        task_id = self.stage.task(job_id).id
        seen = f"job {job_id}" if seen is None else seen

        def act(conn: sa.Connection, now: Instant) -> admission.Admitted:
            owner = owners.lock_or_create(conn, self.tenant, "ada")
            within = (
                (corpora.get_or_create(conn, self.tenant, corpus, now=now).id,) if corpus else ()
            )
            wish = admission.AdmissionRequest(owner, job_id, SOURCE, "{}", within)
            sighting = admission.ListedFile(
                name, name.rsplit("/", 1)[-1], seen, parent_id=parent_id
            )
            [one] = admission.admit(conn, wish, [sighting], now=now)
            conn.execute(
                sa.text("UPDATE tasks SET document_id = :d, generation = :g WHERE id = :t"),
                {"d": one.document_id, "g": one.generation, "t": task_id},
            )
            return one

        one = self.db.write(act)
        assert one.should_index, one
        return Filing(one.document_id, one.generation, job_id, task_id)

    def begin(self, filing: Filing) -> None:
        """Claim the task, and lock the document for its work."""
        self._leases |= {lease.task_id: lease for lease in self.stage.claim(limit=1000)}
        self.db.write(
            lambda conn, now: generations.start(conn, filing.task_id, filing.document_id, now=now)
        )

    def fill(
        self,
        filing: Filing,
        texts: Sequence[str],
        *,
        errors: Mapping[int, str] | None = None,
        cut: str = "lines",
        model: str | None = "toy",
        content: bytes | None = None,
    ) -> None:
        """Store pages, chunks and vectors, and the leaves that name them; errors by page number."""
        content = "\f".join(texts).encode() if content is None else content
        digest = self.put_content(content)

        def act(conn: sa.Connection, now: Instant) -> None:
            cut_id = generations.chunking_id(conn, cut, "{}")
            model_id = None if model is None else vectors.register(conn, model, DIMENSIONS)
            generations.record_inputs(
                conn, filing.document_id, filing.generation, digest=digest, recipe=f"{cut} {model}",
                media_type="text/plain", cut_id=cut_id, model_id=model_id,
            )  # fmt: skip
            ids = self._put_pages(conn, texts, cut_id, model_id, filing.task_id)
            bad = dict(errors or {})
            filled = [
                (n, key_of(text), None if n in bad else ids[key_of(text)], bad.get(n))
                for n, text in enumerate(texts, start=1)
            ]
            generation_pages.fill(conn, filing.document_id, filing.generation, filled)

        self.db.write(act)

    def put_content(self, content: bytes) -> str:
        """Keep some bytes, as the row of a blob and, with a folder, as its file."""
        digest = hashlib.sha256(content).hexdigest()
        self.db.write(
            lambda conn, now: pages.put_content(conn, self.tenant, digest, len(content), now.wall)
        )
        if self.blobs is not None:
            part = self.blobs.part_path(digest)
            part.write_bytes(content)
            self.blobs.put(part, digest)
        return digest

    def put_page(self, text: str) -> int:
        """Store a page that no document has."""
        key = key_of(text)
        fresh = [pages.ReadPage(key, Page(1, text), "en", 0.5)]
        return self.db.write(lambda conn, now: pages.put(conn, self.tenant, fresh, 1)[key])

    def _put_pages(
        self,
        conn: sa.Connection,
        texts: Sequence[str],
        cut_id: int,
        model_id: int | None,
        task_id: int,
    ) -> dict[str, int]:
        fresh = [
            pages.ReadPage(key_of(text), Page(1, text), "en", 0.5, fields.heads(text, "en"))
            for text in sorted({*texts})
        ]
        ids = pages.put(conn, self.tenant, fresh, task_id)
        cuttings = {ids[key_of(text)]: cutting(text) for text in texts}
        lines = {line: text_digest(line) for text in texts for line in text.split("\n") if line}
        index = words.fts5_input if self.db.path is not None else words.tsvector_input
        chunk_ids = pages.put_chunks(
            conn,
            self.tenant,
            {digest: (line, "en", len(line.split())) for line, digest in lines.items()},
            {digest: index(line, "en") for line, digest in lines.items()},
            task_id,
        )
        pages.put_slices(conn, cut_id, cuttings, chunk_ids)
        if model_id is not None:
            found = {digest: vector_of(digest) for digest in lines.values()}
            pages.put_vectors(conn, self.tenant, model_id, found)
        return ids

    def swap(self, filing: Filing) -> generations.SwapResult:
        """Make the generation live, or let it fail, and end its task."""
        mine = filing.document_id, filing.generation
        counted = document_words.count(self.db, *mine)

        def act(conn: sa.Connection, now: Instant) -> generations.SwapResult:
            swapped = generations.swap(conn, *mine, now=now)
            if swapped.failure is None:
                document_words.put(conn, *mine, counted)
            return swapped

        found = self.db.write(act)
        self.end(filing)
        return found

    def end(self, filing: Filing, move: str = "finish", outcome: str = "done") -> None:
        """Settle the task of a filing."""
        self.stage.settle(ending(self._leases.pop(filing.task_id), move, outcome))

    def texts(self, table: str) -> list[str]:
        """List the texts of all pages or chunks."""
        return sorted(row.text for row in self.stage.rows(table))


def key_of(text: str) -> str:
    """Return the key under which a text is a page."""
    return text_digest("page " + text)


def cutting(text: str) -> pages.PageChunks:
    """Cut a text at its line ends."""
    pieces, digests, start = [], [], 0
    for line in text.split("\n"):
        if line:
            pieces.append(ChunkSpan(start, start + len(line), len(line.split())))
            digests.append(text_digest(line))
        start += len(line) + 1
    return pages.PageChunks(pieces, digests)


def vector_of(digest: str) -> bytes:
    """Return some vector for a chunk, the same each time."""
    return struct.pack(f"{DIMENSIONS}f", *(1.0 + each for each in digest.encode()[:DIMENSIONS]))
