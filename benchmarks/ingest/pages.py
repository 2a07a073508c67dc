"""Pages per second for whole PDFs, compared with the bare loop, and the cost of each stage."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.figures import Figure, at_least
from benchmarks.ingest import bare as ingest_bare
from benchmarks.ingest.bare import Bare
from benchmarks.ingest.sample_files import long_pdf, pdfs
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import CHILDREN, ingest_worker, temporary_folder
from benchmarks.installation import Backend
from quire.errors import BadInput
from quire.model.pages import Page
from quire.model.pipeline import Pipeline, text_digest
from quire.store.documents import generations, pages
from quire.store.search import vectors

#: Of the bare loop, which makes no thumbnails: without them, and with them.
_SHARES = {False: at_least(0.85), True: at_least(0.75)}
_BOXED_SHARE = at_least(0.95)


class Ours(NamedTuple):
    """One run of Quire: pages per second, and milliseconds of CPU time per page."""

    rate: float
    cpu: float


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest the same files with the bare loop and with Quire, alternating."""
    files = _files(backend, sizes)
    bare = [_bare(backend, files)]
    ours: dict[bool, list[Ours]] = {False: [], True: []}
    for _ in range(sizes.rounds):
        for has_thumbnails in (False, True):
            ours[has_thumbnails].append(_run(backend, files, has_thumbnails=has_thumbnails))
            bare.append(_bare(backend, files))
    for has_thumbnails, found in ours.items():
        yield from _figures(f"{len(files)} PDFs", has_thumbnails, found, bare)
    yield from _stages(backend, sizes, bare[-1])


def sandbox(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest the same files with and without boxes, alternating."""
    files = _files(backend, sizes)
    boxed, plain = [], []
    for _ in range(sizes.rounds):
        boxed.append(_run(backend, files, has_thumbnails=False))
        plain.append(_run(backend, files, has_thumbnails=False, sandbox="off"))
    shares = [one.rate / other.rate for one, other in zip(boxed, plain, strict=True)]
    rates = [median(one.rate for one in some) for some in (boxed, plain)]
    note = (
        f"{len(files)} PDFs, without thumbnails; {rates[0]:,.0f} and {rates[1]:,.0f} pages/s; "
        f"{min(shares):.2f} to {max(shares):.2f}"
    )
    name = "read in a box, share of QUIRE_SANDBOX=off"
    yield Figure(name, median(shares), "×", target=_BOXED_SHARE, note=note)
    cpu = median(one.cpu for one in boxed)
    baseline = median(one.cpu for one in plain)
    yield Figure("read in a box, CPU time", cpu, "ms/page", bare=baseline, note="bare: off")


def _bare(backend: Backend, files: Sequence[Path]) -> Bare:
    with backend.installation() as installation:
        return ingest_bare.run(files, installation.home, CHILDREN)


def _shares(has_thumbnails: bool, ours: Sequence[Ours], bare: Sequence[Bare]) -> list[float]:
    """Compare each run with the bare loops before and after it, as a machine's speed varies."""
    around = [(one.rate + other.rate) / 2 for one, other in pairwise(bare)]
    baseline = around[has_thumbnails::2]  # runs with and without thumbnails alternate
    return [one.rate / other for one, other in zip(ours, baseline, strict=True)]


def _figures(
    files: str, has_thumbnails: bool, ours: Sequence[Ours], bare: Sequence[Bare]
) -> Iterator[Figure]:
    name = f"PDF pages, {'with' if has_thumbnails else 'without'} thumbnails"
    rate, baseline = median(one.rate for one in ours), median(one.rate for one in bare)
    note = f"{files}, {bare[0].pages:,} pages, {CHILDREN} children, word boxes, durable"
    yield Figure(name, rate, "pages/s", bare=baseline, note=note)
    target = _SHARES[has_thumbnails]
    shares = _shares(has_thumbnails, ours, bare)
    note = f"{min(shares):.2f} to {max(shares):.2f}, against the loops before and after each"
    yield Figure(f"{name}, share of the bare loop", median(shares), "×", target=target, note=note)
    cpu = median(one.cpu for one in ours)
    baseline = median(one.cpu / one.pages * 1e3 for one in bare)
    note = "worker and children; less affected by other programs"
    yield Figure(f"{name}, CPU time", cpu, "ms/page", bare=baseline, note=note)


def _files(backend: Backend, sizes: IngestSizes) -> list[Path]:
    if sizes.corpus is None:
        return pdfs(temporary_folder(backend.folder, "corpus-"), sizes.files, sizes.pages)
    found = sorted(sizes.corpus.rglob("*.pdf"))
    if not found:
        raise BadInput(f"--corpus {sizes.corpus}: the folder has no PDF.")
    return found


def _run(
    backend: Backend, files: Sequence[Path], *, has_thumbnails: bool, sandbox: str = "auto"
) -> Ours:
    """Ingest the files with a warm worker, and count the pages that became searchable."""
    with ingest_worker(backend, sandbox=sandbox) as running:
        took = running.ingest(files[0].parent, may_fail=True, thumbnails=has_thumbnails)
        query = (
            "SELECT coalesce(sum(g.pages), 0) FROM generations g JOIN documents d "
            "ON d.id = g.document_id AND d.live_generation = g.generation WHERE g.job_id ="
        )
        [(pages,)] = running.installation.rows(f"{query} {took.job_id}")
        return Ours(float(pages) / took.seconds, took.cpu / max(pages, 1) * 1e3)


# ---------------------------------------------------------------------- stages


def _stages(backend: Backend, sizes: IngestSizes, bare: Bare) -> Iterator[Figure]:
    """Time the pipeline's stages on one PDF in this process, by page ranges as in a task."""
    folder = temporary_folder(backend.folder, "stages-")
    path = long_pdf(folder / "timed.pdf", sizes.stage_pages, seed=17)
    other = long_pdf(folder / "warm.pdf", 12, seed=18)
    with backend.installation() as installation:
        _timed(installation.app.db, other, 12)
        spent = _timed(installation.app.db, path, sizes.stage_pages)
    for name, seconds in spent.items():
        baseline = bare.stages.get(name)
        yield Figure(
            f"stage {name}",
            seconds / sizes.stage_pages * 1e3,
            "ms/page",
            bare=None if baseline is None else baseline / bare.pages * 1e3,
            note="one process; bare: one of two" if baseline is not None else "one process",
        )


class _Clock:
    """Sums the seconds of each stage."""

    def __init__(self, names: Sequence[str]) -> None:
        self.spent = dict.fromkeys(names, 0.0)

    def __call__(self, name: str, act: Callable[..., Any], *given: Any) -> Any:
        began = time.perf_counter()
        found = act(*given)
        self.spent[name] += time.perf_counter() - began
        return found


def _timed(db: Any, path: Path, pages: int) -> dict[str, float]:
    """Return the seconds of each stage for the first pages of a file."""
    from quire.parse import file_type, formats
    from quire.parse.parser import ReadOptions
    from quire.parse.pdf import reader as pdf
    from quire.text.embed.embedder import open_embedder

    clock = _Clock(("look", "parse", "chunk", "embed", "store"))
    embedder, size = open_embedder(), Pipeline().page_size
    clock("look", formats.inspect, path, file_type.PDF)
    for first in range(1, pages + 1, size):
        last = min(first + size - 1, pages)
        unread = formats.read(path, file_type.PDF, ReadOptions(), first, last)
        read: list[Any] = clock("parse", list, unread)
        cut: _Chunked = clock("chunk", _Chunked, read)
        points = clock("embed", embedder.embed, [text for text, _, _ in cut.texts.values()])
        packed = {key: row.tobytes() for key, row in zip(cut.texts, points, strict=True)}
        clock("store", _store, db, path.name, read, cut, packed)
    pdf.close()
    return clock.spent


class _Chunked:
    """The pages of one task, split into chunks as the pipeline does it."""

    def __init__(self, read: Sequence[Page]) -> None:
        from quire.text import language, words
        from quire.text.chunk import ChunkOptions, split

        pipeline = Pipeline()
        options = ChunkOptions(pipeline.chunk_tokens, pipeline.overlap)
        self.texts: dict[str, tuple[str, str, int]] = {}
        self.words: dict[str, str] = {}
        self.cuttings: list[pages.PageChunks] = []
        for page in read:
            tongue = language.detect(page.text)
            found = split(page.text, options)
            texts = [page.text[piece.start : piece.stop] for piece in found]
            digests = [text_digest(text) for text in texts]
            for piece, text, digest in zip(found, texts, digests, strict=True):
                self.texts[digest] = (text, tongue, piece.tokens)
                self.words[digest] = words.fts5_input(text, tongue)
            self.cuttings.append(pages.PageChunks(found, digests))


def _store(
    db: Any, name: str, read: Sequence[Page], cut: _Chunked, packed: dict[str, bytes]
) -> None:
    """Write what a task of the pipeline writes, except the document's generation pages."""
    fresh = [pages.ReadPage(text_digest(f"{name} {page.number}"), page, "en", 0.0) for page in read]

    def act(conn: Any, now: Any) -> None:
        model_id = vectors.register(conn, "bench", 256)
        cut_id = generations.chunking_id(conn, "bench", "{}")
        ids = pages.put(conn, "bench", fresh, 0)
        chunk_ids = pages.put_chunks(conn, "bench", cut.texts, cut.words, 0)
        by_page = {ids[e.key]: c for e, c in zip(fresh, cut.cuttings, strict=True)}
        pages.put_slices(conn, cut_id, by_page, chunk_ids)
        pages.put_vectors(conn, "bench", model_id, packed)

    db.write(act)
