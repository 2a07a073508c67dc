"""Pages a second of whole PDFs beside the bare loop, and what each stage costs a page."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.figures import Figure, at_least
from benchmarks.ingest import bare as ingest_bare
from benchmarks.ingest.bare import Bare
from benchmarks.ingest.corpus import long_pdf, pdfs
from benchmarks.ingest.running import CHILDREN, mill, shelf
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.site import Site
from quire.errors import BadInput
from quire.model.pages import Page
from quire.model.pipeline import Pipeline, text_digest
from quire.store.documents import generations, pages
from quire.store.search import vectors

_SHARE = at_least(0.80)


class Ours(NamedTuple):
    """One run: pages in a second, and milliseconds of processor time a page."""

    rate: float
    busy: float


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest the same files by the bare loop and by Quire, in turns."""
    files = _files(site, sizes)
    bare = [_bare(site, files)]
    ours: dict[bool, list[Ours]] = {False: [], True: []}
    for _ in range(sizes.rounds):
        ours[False].append(_run(site, files, has_pictures=False))
        bare.append(_bare(site, files))
    ours[True].append(_run(site, files, has_pictures=True))
    for has_pictures, found in ours.items():
        yield from _figures(f"{len(files)} PDFs", has_pictures, found, bare)
    yield from _stages(site, sizes, bare[-1])


def _bare(site: Site, files: Sequence[Path]) -> Bare:
    with site.bed() as bed:
        return ingest_bare.run(files, bed.home, CHILDREN)


def _shares(ours: Sequence[Ours], bare: Sequence[Bare]) -> list[float]:
    """Compare each run with the bare loops before and after it: machines are slow for a while."""
    beside = [(one.rate + other.rate) / 2 for one, other in pairwise(bare)]
    if len(ours) < len(beside):  # one that ran after all of them
        beside = [median(beside)]
    return [one.rate / other for one, other in zip(ours, beside, strict=True)]


def _figures(
    files: str, has_pictures: bool, ours: Sequence[Ours], bare: Sequence[Bare]
) -> Iterator[Figure]:
    name = f"PDF pages, {'with' if has_pictures else 'without'} thumbnails"
    rate, beside = median(one.rate for one in ours), median(one.rate for one in bare)
    note = f"{files}, {bare[0].pages:,} pages, {CHILDREN} children, word boxes, durable"
    yield Figure(name, rate, "pages/s", bare=beside, note=note)
    target = None if has_pictures else _SHARE
    shares = _shares(ours, bare)
    note = f"{min(shares):.2f} to {max(shares):.2f}, each beside the loops before and after it"
    yield Figure(f"{name}, of the bare loop", median(shares), "×", target=target, note=note)
    busy = median(one.busy for one in ours)
    beside = median(one.busy / one.pages * 1e3 for one in bare)
    note = "the worker and its children; less disturbed by other programs"
    yield Figure(f"{name}, processor time", busy, "ms/page", bare=beside, note=note)


def _files(site: Site, sizes: IngestSizes) -> list[Path]:
    if sizes.corpus is None:
        return pdfs(shelf(site.folder, "corpus-"), sizes.files, sizes.pages)
    found = sorted(sizes.corpus.rglob("*.pdf"))
    if not found:
        raise BadInput(f"--corpus {sizes.corpus}: there is no PDF in it.")
    return found


def _run(site: Site, files: Sequence[Path], *, has_pictures: bool) -> Ours:
    """Ingest the files by a warm worker, and count the pages that became searchable."""
    with mill(site) as running:
        took = running.ingest(files[0].parent, may_fail=True, thumbnails=has_pictures)
        query = (
            "SELECT coalesce(sum(g.pages), 0) FROM generations g JOIN documents d "
            "ON d.id = g.document_id AND d.live_generation = g.generation WHERE g.job_id ="
        )
        [(pages,)] = running.bed.rows(f"{query} {took.job_id}")
        return Ours(float(pages) / took.seconds, took.busy / max(pages, 1) * 1e3)


# ---------------------------------------------------------------------- stages


def _stages(site: Site, sizes: IngestSizes, bare: Bare) -> Iterator[Figure]:
    """Time the pipeline's own steps on one PDF in this process, by ranges as a task does."""
    folder = shelf(site.folder, "stages-")
    path = long_pdf(folder / "timed.pdf", sizes.stage_pages, seed=17)
    other = long_pdf(folder / "warm.pdf", 12, seed=18)
    with site.bed() as bed:
        _timed(bed.app.db, other, 12)
        spent = _timed(bed.app.db, path, sizes.stage_pages)
    for name, seconds in spent.items():
        beside = bare.stages.get(name)
        yield Figure(
            f"stage {name}",
            seconds / sizes.stage_pages * 1e3,
            "ms/page",
            bare=None if beside is None else beside / bare.pages * 1e3,
            note="one process; bare: a share of two" if beside is not None else "one process",
        )


class _Clock:
    """Adds up the seconds of each stage."""

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
        cut: _Cut = clock("chunk", _Cut, read)
        points = clock("embed", embedder.embed, [text for text, _, _ in cut.texts.values()])
        packed = {key: row.tobytes() for key, row in zip(cut.texts, points, strict=True)}
        clock("store", _store, db, path.name, read, cut, packed)
    pdf.close()
    return clock.spent


class _Cut:
    """The pages of one task, cut as the pipeline does it."""

    def __init__(self, read: Sequence[Page]) -> None:
        from quire.text import language, words
        from quire.text.chunk import ChunkOptions, pieces

        pipeline = Pipeline()
        options = ChunkOptions(pipeline.chunk_tokens, pipeline.overlap)
        self.texts: dict[str, tuple[str, str, int]] = {}
        self.words: dict[str, str] = {}
        self.cuttings: list[pages.PageChunks] = []
        for page in read:
            tongue = language.detect(page.text)
            found = pieces(page.text, options)
            texts = [page.text[piece.start : piece.stop] for piece in found]
            digests = [text_digest(text) for text in texts]
            for piece, text, digest in zip(found, texts, digests, strict=True):
                self.texts[digest] = (text, tongue, piece.tokens)
                self.words[digest] = words.indexed(text, tongue)
            self.cuttings.append(pages.PageChunks(found, digests))


def _store(db: Any, name: str, read: Sequence[Page], cut: _Cut, packed: dict[str, bytes]) -> None:
    """Write what a task of the pipeline writes, but for the leaves of its document."""
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
