"""How long a search takes over many chunks: by words, by vectors, and by both.

The chunks get into the tables by the functions that the pipeline uses, a few thousand at a time;
nothing is parsed. On PostgreSQL they are copied, and indexed when all are there. One document of
a hundred is in a corpus, so that a search can be narrowed to it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Figure, at_least, at_most, percentile
from benchmarks.ingest import stocking
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.stock import Library
from benchmarks.site import Bed, Site
from quire.control.search import search
from quire.model.search import Model
from quire.store.search import vectors
from quire.text.embed.embedder import Embedder, open_embedder

_BATCH = 10  # documents of one transaction
_MODES = ("text", "vector", "hybrid")
_SCOPES = {"": None, ", corpus of 1 %": stocking.CORPUS}
_HITS = 10
_NEAR = 2e-6  # scores are shown with six digits


class Span(NamedTuple):
    """Seconds of one search, and of the processors that it kept busy, here and in the server."""

    whole: float
    busy: float


Spans = dict[tuple[str, str], list[Span]]


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Fill a database and ask it one question after another."""
    embedder = open_embedder()
    with site.bed() as bed:
        library = Library(embedder)
        model = fill(bed, sizes.chunks, embedder, library)
        questions = library.questions(sizes.queries + 1)
        spans = _asked(bed, questions)
        count = bed.count("chunks")
        recall = None
        if bed.app.db.path is None:  # SQLite compares with every vector
            recall = _recall(bed, model, embedder, questions[: sizes.exact_queries])
    note = f"{count:,} chunks, {sizes.queries} questions of 2 to 6 words, 10 hits with snippets"
    for (mode, scope), found in spans.items():
        name = f"search by {mode}{scope}"
        whole, busy = [span.whole for span in found], [span.busy for span in found]
        yield Figure(f"{name}, p50", percentile(whole, 0.5) * 1e3, "ms", note=note)
        yield Figure(f"{name}, p95", percentile(whole, 0.95) * 1e3, "ms", None, at_most(50.0), note)
        told = "less disturbed by other programs"
        yield Figure(f"{name}, p95, processor", percentile(busy, 0.95) * 1e3, "ms", note=told)
    if recall is not None:
        note = f"{sizes.exact_queries} questions, hits that are among the {_HITS} nearest of all"
        yield Figure("recall@10 by vector", recall, "", None, at_least(0.95), note)


def _asked(bed: Bed, questions: Sequence[str]) -> Spans:
    spans: Spans = {(mode, scope): [] for scope in _SCOPES for mode in _MODES}
    busy = _busy_clock(bed)
    for number, question in enumerate(questions):
        for (mode, scope), found in spans.items():
            began, worked = time.perf_counter(), busy()
            _hits(bed, question, mode, _SCOPES[scope])
            if number:  # the first one loads the model and reads the vectors
                found.append(Span(time.perf_counter() - began, busy() - worked))
    return spans


def _busy_clock(bed: Bed) -> Callable[[], float]:
    """Return a clock of processor time: of this process, and of its session in a server here."""
    place = None
    if bed.app.db.path is None:
        # Searches come one after another, so that all of them have the one session of the pool.
        pid = bed.rows("SELECT pg_backend_pid()")[0][0]
        place = Path(f"/proc/{pid}/schedstat")

    def busy() -> float:
        own = time.process_time()
        if place is None or not place.exists():
            return own
        return own + int(place.read_text().split()[0]) / 1e9

    return busy


def _hits(bed: Bed, question: str, mode: str, corpus: str | None = None) -> list[dict[str, Any]]:
    app = bed.app
    found = search(app.db, app.settings.tenant, question, mode=mode, corpus=corpus, limit=_HITS)
    return list(found["items"])


def _recall(bed: Bed, model: Model, embedder: Embedder, questions: Sequence[str]) -> float:
    """Return which share of the hits are as near as the tenth nearest of all vectors."""
    good = 0
    for question in questions:
        point = embedder.embed([question])[0].tobytes()
        with bed.app.db.read() as conn:
            last = vectors.exact_cosines(conn, model, point, _HITS)[-1]
        good += sum(hit["score"] >= last - _NEAR for hit in _hits(bed, question, "vector"))
    return good / (_HITS * len(questions))


def fill(bed: Bed, count: int, embedder: Embedder, library: Library) -> Model:
    """Put live documents with so many chunks into a database."""
    db, tenant = bed.app.db, bed.app.settings.tenant
    ids = db.write(partial(stocking.begin, tenant, embedder))
    volumes = library.volumes(count)
    while some := list(islice(volumes, _BATCH)):
        db.write(partial(stocking.insert, tenant, ids, some))
    stocking.complete(db, ids.model)
    return ids.model
