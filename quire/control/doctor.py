"""Check every invariant of the database, for all tenants.

An examination changes nothing. `mend` does, where what is right can be derived without a doubt.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quire import home as homes
from quire import secret_key
from quire.clock import Instant
from quire.errors import Gone, SchemaAhead
from quire.fetch.blobs.backend import Blobs
from quire.ingest import document_words, resources
from quire.model.pipeline import Pipeline
from quire.store.access import secrets
from quire.store.db import dialect, migrate
from quire.store.db.engine import Database
from quire.store.db.schema import access as access_tables
from quire.store.doctor import document_invariants, open_secrets, queue_invariants, repair
from quire.store.doctor.invariants import derived, violators
from quire.store.documents import pages
from quire.store.documents.gc import used_blobs
from quire.text.embed.openai import OpenAIEmbedder

#: Examples that a violation lists.
SHOWN = 5
#: A read transaction checks further invariants for this long. A long one would hold back VACUUM
#: and the checkpoints of SQLite's WAL.
TRANSACTION_SECONDS = 0.25
ALL = (
    *queue_invariants.INVARIANTS,
    *document_invariants.INVARIANTS,
    *derived(access_tables.TABLES),
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: how often, and examples."""

    name: str
    count: int
    examples: list[int | str]
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check."""

    checked: int
    violations: list[Violation] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether every invariant holds."""
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {"healthy": self.is_healthy, **asdict(self)}


def examine(
    db: Database,
    *,
    sweep_interval: float = 10.0,
    blobs: "Blobs | None" = None,
    deep: bool = False,
    home: Path | None = None,
) -> Report:
    """Check every invariant in short read transactions; what the next sweep repairs is ignored.

    Things that other processes mend at their next sweep may take two of `sweep_interval` seconds.
    With `blobs`, their files are looked for; `deep` hashes all of their bytes again. With `home`,
    it must be closed to other users of this machine.
    """
    if (outdated := _schema(db)) is not None:
        # The queries of this release do not fit the tables of another.
        return Report(1, [outdated])
    found: list[Violation] = []
    left = list(reversed(ALL))
    while left:
        with db.read() as conn:
            dialect.lift_timeouts(conn)
            now = db.now(conn)
            clocks = {"wall": now.wall, "lease": now.lease, "slack": 2 * sweep_interval}
            until = time.monotonic() + TRANSACTION_SECONDS
            while left and time.monotonic() < until:
                each = left.pop()
                count, examples = violators(conn, each, clocks, limit=SHOWN)
                if count:
                    found.append(Violation(each.name, count, examples, each.sentence))
    if blobs is not None:
        found += _files(db, blobs, deep)
    if home is not None:
        found += _modes(home)
    found += _open_secrets(db)
    return Report(2 + len(ALL) + (blobs is not None) + (home is not None), found)


def repair_derived(db: Database, settings: Mapping[str, Any]) -> dict[str, int]:
    """Recompute derived data that is wrong; returns how many rows, by invariant.

    `settings` say how to reach the endpoint of an embedder.
    """
    from quire.text import fields, words

    # As the full-text index of this database tokenizes a text of a language.
    analyse = words.fts5_input if db.stems_words else words.tsvector_input
    acts: dict[str, Callable[[Any, Instant], int]] = {
        "documents.locked": repair.fail_abandoned,
        "chunks.words": lambda conn, now: repair.index_missing_chunks(conn, analyse),
        "pages.heads": lambda conn, now: repair.index_page_heads(conn, fields.heads),
        "generations.counts": lambda conn, now: repair.recount(conn),
        "documents.summary": lambda conn, now: repair.copy_live_summary(conn),
    }
    repaired = {}
    for name, act in acts.items():
        total = 0
        while count := db.write(act):
            total += count
        if total:
            repaired[name] = total
    if indexed := document_words.index_missing(db):
        repaired["documents.words"] = indexed
    if embedded := _embed_missing(db, settings):
        repaired["chunks.vectors"] = embedded
    if sealed := _seal_open(db, settings):
        repaired["secrets.open"] = sealed
    if (home := settings.get("home")) and (closed := homes.close_to_others(Path(home))):
        repaired["home.modes"] = closed
    return repaired


def _embed_missing(db: Database, settings: Mapping[str, Any]) -> int:
    """Embed the chunks without a vector, by the models of their generations."""
    total, last = 0, 0
    while True:
        with db.read() as conn:
            rows = repair.chunks_to_embed(conn, last)
        if not rows:
            return total
        last = rows[-1].id
        by_model: dict[tuple[Any, ...], dict[str, str]] = {}
        for row in rows:
            of = (row.tenant, row.model_id, row.name, row.dimensions, row.settings)
            by_model.setdefault(of, {})[row.digest] = row.text
        for of, texts in by_model.items():
            total += _embed(db, settings, *of, texts)


def _embed(
    db: Database,
    settings: Mapping[str, Any],
    tenant: str,
    model_id: int,
    name: str,
    dimensions: int,
    pipeline: str,
    texts: Mapping[str, str],
) -> int:
    embedder = resources.embedder_of(settings, Pipeline().merged(json.loads(pipeline)))
    if isinstance(embedder, OpenAIEmbedder) and not embedder.dimensions:
        embedder.dimensions = dimensions
    if embedder.name != name:
        return 0  # its vectors could not be compared; the violation stays
    rows = embedder.embed(list(texts.values()), lambda _: None)
    found = {digest: row.tobytes() for digest, row in zip(texts, rows, strict=True)}
    db.write(lambda conn, now: pages.put_vectors(conn, tenant, model_id, found))
    return len(found)


def _files(db: Database, blobs: Blobs, deep: bool) -> list[Violation]:
    """Check that the files of all blobs in use exist, if the storage is reachable."""
    if wrong := blobs.probe():
        return [Violation("blobs.store", len(wrong), ["QUIRE_BLOBS"], " ".join(wrong))]
    bad: list[int | str] = []
    for some in used_blobs(db):
        sizes = blobs.sizes([digest for digest, _ in some])
        bad += [
            digest
            for digest, size in some
            if sizes.get(digest) != size or (deep and not _is_whole(blobs, digest))
        ]
    how = "with the bytes that it is named after" if deep else "with its size"
    sentence = f"The file of every blob that a document uses is there, {how}."
    return [Violation("blobs.files", len(bad), bad[:SHOWN], sentence)] if bad else []


def _modes(home: Path) -> list[Violation]:
    """Check that other users of this machine cannot read the home: an earlier Quire let them."""
    bad: list[int | str] = [str(each) for each in homes.open_to_others(home)]
    sentence = "Only its user may read the home. `quire doctor --repair` closes it."
    return [Violation("home.modes", len(bad), bad[:SHOWN], sentence)] if bad else []


def _open_secrets(db: Database) -> list[Violation]:
    """Look for secrets of URLs that an earlier Quire stored in clear."""
    bad: list[int | str] = [*open_secrets.find(db)]
    sentence = (
        "Passwords and signatures of source URLs are stored sealed. `quire doctor --repair` seals "
        "those of earlier releases."
    )
    return [Violation("secrets.open", len(bad), bad[:SHOWN], sentence)] if bad else []


def _seal_open(db: Database, settings: Mapping[str, Any]) -> int:
    if next(open_secrets.find(db), None) is None:
        return 0
    ring = secret_key.load(settings)
    return open_secrets.repair(db, lambda tenant: secrets.sealer(db, ring, tenant))


def _is_whole(blobs: Blobs, digest: str) -> bool:
    try:
        return blobs.verify(digest)
    except (OSError, ValueError, Gone):
        return False


def _schema(db: Database) -> Violation | None:
    with db.read() as conn:
        found, last = migrate.version(conn), migrate.versions()[-1]
        try:
            if not migrate.count_missing(conn):
                return None
            why = "; run `quire migrate`"
        except SchemaAhead:
            why = ": a later Quire wrote it"
    sentence = f"The schema is version {last}. It is {found}{why}."
    return Violation("schema.version", 1, [found], sentence)
