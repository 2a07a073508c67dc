"""Time of keyword, vector and hybrid search over many chunks.

The pipeline's own functions write the chunks, a few thousand at a time; nothing is parsed. On
PostgreSQL they are written with COPY and indexed at the end. One document in a hundred is in a
corpus, to measure searches in a corpus.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from benchmarks.figures import Figure, at_least, at_most, percentile
from benchmarks.ingest import bulk_load
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.synthetic import Generator
from benchmarks.installation import Backend, Installation
from quire.control.search import search
from quire.model.search import Model
from quire.store.db import dialect
from quire.text.embed.embedder import Embedder, open_embedder

_BATCH = 10  # documents in one transaction
_MODES = ("text", "vector", "hybrid")
_SCOPES = {"": None, ", corpus of 1 %": bulk_load.CORPUS}
_HITS = 10
_NEAR = 2e-6  # scores have six digits


class Span(NamedTuple):
    """Seconds of one search, and its CPU seconds in this process and in the server."""

    wall: float
    cpu: float


Spans = dict[tuple[str, str], list[Span]]


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Fill a database and run one query after another."""
    embedder = open_embedder()
    with backend.installation() as installation:
        generator = Generator(embedder)
        model = fill(installation, sizes.chunks, embedder, generator)
        queries = generator.queries(sizes.queries + 1)
        spans = _asked(installation, queries)
        count = installation.count("chunks")
        recall = None
        if installation.app.db.path is None:  # SQLite compares every vector, so its recall is 1
            recall = _recall(installation, model, embedder, queries[: sizes.exact_queries])
    note = f"{count:,} chunks, {sizes.queries} queries of 2 to 6 words, 10 hits with snippets"
    for (mode, scope), found in spans.items():
        name = f"{mode} search{scope}"
        wall, cpu = [span.wall for span in found], [span.cpu for span in found]
        yield Figure(f"{name}, p50", percentile(wall, 0.5) * 1e3, "ms", note=note)
        yield Figure(f"{name}, p95", percentile(wall, 0.95) * 1e3, "ms", None, at_most(50.0), note)
        told = "less affected by other programs"
        yield Figure(f"{name}, p95, CPU time", percentile(cpu, 0.95) * 1e3, "ms", note=told)
    if recall is not None:
        note = f"{sizes.exact_queries} queries; hits that are among the {_HITS} nearest of all"
        yield Figure("recall@10, vector search", recall, "", None, at_least(0.95), note)


def _asked(installation: Installation, queries: Sequence[str]) -> Spans:
    spans: Spans = {(mode, scope): [] for scope in _SCOPES for mode in _MODES}
    cpu_clock = _cpu_clock(installation)
    for number, query in enumerate(queries):
        for (mode, scope), found in spans.items():
            began, cpu = time.perf_counter(), cpu_clock()
            _hits(installation, query, mode, _SCOPES[scope])
            if number:  # the first query loads the model and the vectors
                found.append(Span(time.perf_counter() - began, cpu_clock() - cpu))
    return spans


def _cpu_clock(installation: Installation) -> Callable[[], float]:
    """Return a clock of the CPU time of this process, and of its session in a local server."""
    place = None
    if installation.app.db.path is None:
        # Searches run one after another, so all use the same session of the pool.
        pid = installation.rows("SELECT pg_backend_pid()")[0][0]
        place = Path(f"/proc/{pid}/schedstat")

    def cpu_seconds() -> float:
        own = time.process_time()
        if place is None or not place.exists():
            return own
        return own + int(place.read_text().split()[0]) / 1e9

    return cpu_seconds


def _hits(
    installation: Installation, query: str, mode: str, corpus: str | None = None
) -> list[dict[str, Any]]:
    app = installation.app
    found = search(app.db, app.settings.tenant, query, mode=mode, corpus=corpus, limit=_HITS)
    return list(found["items"])


def _recall(
    installation: Installation, model: Model, embedder: Embedder, queries: Sequence[str]
) -> float:
    """Return the share of hits that are at least as near as the tenth nearest of all vectors."""
    good = 0
    for query in queries:
        point = embedder.embed([query])[0].tobytes()
        with installation.app.db.read() as conn:
            last = _exact_cosine(conn, model, point, _HITS)
        good += sum(hit["score"] >= last - _NEAR for hit in _hits(installation, query, "vector"))
    return good / (_HITS * len(queries))


def _exact_cosine(conn: sa.Connection, model: Model, point: bytes, rank: int) -> float:
    """Return the cosine of the vector that an exact scan of all finds at this rank."""
    dialect.lift_timeouts(conn)
    query = (
        "SELECT 1 - (vector <=> CAST(%s AS vector)) FROM vectors WHERE model_id = %s "
        "ORDER BY 1 DESC LIMIT 1 OFFSET %s"
    )
    given = (dialect.vector_text(point), model.id, rank - 1)
    return float(conn.exec_driver_sql(query, given).scalar_one())


def fill(installation: Installation, count: int, embedder: Embedder, generator: Generator) -> Model:
    """Write live documents with `count` chunks into a database."""
    db, tenant = installation.app.db, installation.app.settings.tenant
    ids = db.write(partial(bulk_load.begin, tenant, embedder))
    documents = generator.documents(count)
    while some := list(islice(documents, _BATCH)):
        db.write(partial(bulk_load.insert, tenant, ids, some))
    bulk_load.complete(db, ids.model)
    return ids.model
