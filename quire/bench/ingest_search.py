"""How long a search takes over many chunks: by words, by vectors, and by both.

The chunks get into the tables by the functions that the pipeline uses, a few thousand at a time;
nothing is parsed. Vectors are those of real chunks with some noise, as only their number counts.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.bench.figures import Figure, at_most, percentile
from quire.bench.ingest_prose import Prose, pooled
from quire.bench.ingest_sizes import IngestSizes
from quire.bench.site import Bed, Site
from quire.control.search import search
from quire.model.pages import Page, Piece
from quire.model.pipeline import Pipeline, text_digest
from quire.model.search import Model
from quire.store import admit, documents, leaves, owners, pages, vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_PAGES = 100  # of a document
_BATCH = 10  # documents of one transaction
_CUTS = 3  # chunks of a page
_SAMPLE = 500  # chunks that are embedded


class _Ids(NamedTuple):
    """What all documents of the stock share."""

    cut: int
    model: Model
    settings: str


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Fill a database and ask it one question after another."""
    with site.bed() as bed:
        fill(bed, sizes.chunks)
        bed.run("ANALYZE")
        spans = _asked(bed, sizes.queries)
        count = bed.count("chunks")
    note = f"{count:,} chunks, {sizes.queries} questions of 2 to 6 words, 10 hits with snippets"
    for mode, found in spans.items():
        for share, target in ((0.5, None), (0.95, at_most(50.0))):
            name = f"search by {mode}, p{share * 100:.0f}"
            yield Figure(name, percentile(found, share) * 1e3, "ms", None, target, note)


def _asked(bed: Bed, count: int) -> dict[str, list[float]]:
    spans: dict[str, list[float]] = {"text": [], "vector": [], "fused": []}
    prose, dice = Prose(1), random.Random(2)  # noqa: S311
    for number in range(count + 1):
        words = dice.sample(prose.paragraph(200).split(), dice.randint(2, 6))
        for mode, found in spans.items():
            began = time.perf_counter()
            search(bed.app.db, bed.app.settings.tenant, " ".join(words), mode=mode)
            if number:  # the first one loads the model and reads the vectors
                found.append(time.perf_counter() - began)
    return spans


def fill(bed: Bed, count: int) -> None:
    """Put live documents with so many chunks into a database."""
    from quire.text.embed import open_embedder

    embedder = open_embedder()
    ids = bed.app.db.write(lambda conn, now: _shared(conn, embedder))
    texts = pooled(23, paragraphs=_CUTS, sentences=10)
    points = embedder.embed([next(texts)[0] for _ in range(_SAMPLE)])
    noise = random.Random(9)  # noqa: S311
    total = -(-count // (_PAGES * _CUTS))
    for first in range(0, total, _BATCH):
        numbers = range(first, min(first + _BATCH, total))
        stock = _Stock(numbers, texts, points, noise.randrange(2**32))
        bed.app.db.write(partial(_insert, bed.app.settings.tenant, ids, stock))


def _shared(conn: Any, embedder: Any) -> _Ids:
    pipeline = Pipeline()
    model_id = vectors.register(conn, embedder.name, embedder.dimensions)
    cut_id = documents.cut_of(conn, "bench", admit.canonical(pipeline.cut()))
    model = Model(model_id, embedder.name, embedder.dimensions)
    return _Ids(cut_id, model, admit.canonical(asdict(pipeline)))


class _Stock:
    """The pages of some documents, with their chunks and vectors."""

    def __init__(
        self,
        numbers: Sequence[int],
        texts: Iterator[list[str]],
        points: "npt.NDArray[np.float32]",
        seed: int,
    ) -> None:
        self.uris = [f"bench:document-{number}" for number in numbers]
        self.fresh: list[pages.ReadPage] = []
        self.cuttings: dict[str, pages.Cutting] = {}
        self.texts: dict[str, tuple[str, str, int]] = {}
        for uri in self.uris:
            for number in range(1, _PAGES + 1):
                self._add(f"{uri} {number}", number, next(texts))
        self.vectors = dict(zip(self.texts, _noisy(points, len(self.texts), seed), strict=True))

    def _add(self, key: str, number: int, paragraphs: Sequence[str]) -> None:
        text = "\n".join(paragraphs)
        self.fresh.append(pages.ReadPage(key, Page(number, text), "en", 0.0))
        found, start = [], 0
        for each in paragraphs:
            self.texts[text_digest(each)] = (each, "en", len(each) // 4)
            found.append(Piece(start, start + len(each), len(each) // 4))
            start += len(each) + 1
        self.cuttings[key] = pages.Cutting(found, [text_digest(each) for each in paragraphs])


def _noisy(points: "npt.NDArray[np.float32]", count: int, seed: int) -> list[bytes]:
    import numpy as np

    dice = np.random.default_rng(seed)
    chosen = points[dice.integers(0, len(points), count)]
    made = chosen + dice.normal(0, 0.02, chosen.shape).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return [row.tobytes() for row in made]


def _insert(tenant: str, ids: _Ids, stock: _Stock, conn: Any, now: Any) -> None:
    owner = owners.locked(conn, tenant, "bench")
    wish = admit.Wish(owner, 0, "bench:", ids.settings)
    sightings = [admit.Sighting(uri, uri.rpartition(":")[2], "") for uri in stock.uris]
    admitted = admit.admit(conn, wish, sightings, now=now)
    page_ids = pages.put(conn, tenant, stock.fresh, 0)
    chosen = {digest: text for digest, (text, _, _) in stock.texts.items()}
    chunk_ids = pages.put_chunks(conn, tenant, stock.texts, chosen, 0)
    by_page = {page_ids[key]: cutting for key, cutting in stock.cuttings.items()}
    pages.put_slices(conn, ids.cut, by_page, chunk_ids)
    pages.put_vectors(conn, tenant, ids.model.id, stock.vectors)
    conn.exec_driver_sql("UPDATE documents SET state = 'indexing' WHERE state = 'queued'")
    for one, uri in zip(admitted, stock.uris, strict=True):
        named = {"cut_id": ids.cut, "model_id": ids.model.id, "media_type": "text/plain"}
        documents.describe(conn, one.document_id, one.generation, digest=uri, **named)
        filled = [(n, f"{uri} {n}", page_ids[f"{uri} {n}"], None) for n in range(1, _PAGES + 1)]
        leaves.fill(conn, one.document_id, one.generation, filled)
        documents.swap(conn, one.document_id, one.generation, now=now)
