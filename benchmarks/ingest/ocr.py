"""OCR time per scanned page, compared with the bare engine, and recall on rotated pages."""

import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.ingest.prose import Prose
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import CHILDREN, IngestWorker, ingest_worker, temporary_folder
from benchmarks.installation import Backend
from quire.demo import samples
from quire.errors import Refused
from quire.parse import ocr

ROTATIONS = (90, 180, 270)
_FEW_LETTERS = 250
_WARM_BYTES = 350 << 20  # a child that has loaded the models uses more


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest one-page scans: upright ones for the time, rotated ones for the recall."""
    if not ocr.is_installed():
        raise Refused("bench: RapidOCR is not installed. Run: pip install 'quire[ocr]'.")
    folder = temporary_folder(backend.folder, "scans-")
    texts = _scans(folder / "upright", [0] * sizes.scans, sizes.scan_letters)
    turned = _scans(folder / "turned", ROTATIONS, _FEW_LETTERS)
    _scans(folder / "warm", [0] * CHILDREN, _FEW_LETTERS)
    baseline = _bare(sorted((folder / "upright").iterdir()), sorted((folder / "warm").iterdir()))
    with ingest_worker(backend, is_warm=False) as running:
        running.warm(_warm_scans, _WARM_BYTES)
        took = running.ingest(folder / "upright")
        running.ingest(folder / "turned")
        upright, rotated_recall = _recall(running, texts), _recall(running, turned)
    each = took.seconds / sizes.scans
    note = f"{sizes.scans} pages, {CHILDREN} children; bare: detection and recognition, no rotation"
    yield Figure("OCR of a page", each, "s/page", bare=baseline / sizes.scans, note=note)
    share = each / (baseline / sizes.scans)
    yield Figure("OCR of a page, compared with the bare loop", share, "×", target=at_most(1.25))
    yield Figure("words read, upright scans", upright, "", target=at_least(0.95))
    note = f"rotated by {ROTATIONS[0]}, {ROTATIONS[1]} and {ROTATIONS[2]} degrees"
    yield Figure("words read, rotated scans", rotated_recall, "", None, at_least(0.95), note)


def _warm_scans(folder: Path, each: int) -> None:
    """Write new scans that make children load the models; known pages would be reused."""
    _scans(folder / f"{'x' * each}scans", [0] * CHILDREN, _FEW_LETTERS)


def _scans(folder: Path, turns: Sequence[int], letters: int) -> dict[str, str]:
    """Write one-page scans; returns the text of each by name."""
    folder.mkdir(parents=True)
    prose, written = Prose(len(folder.name)), {}
    for number, turned in enumerate(turns):
        name, text = f"{folder.name}-{number}.pdf", prose.paragraph(letters)
        (folder / name).write_bytes(samples.pdf([samples.scanned_page([text], turned)]))
        written[name] = text
    return written


def _recall(running: IngestWorker, texts: dict[str, str]) -> float:
    """Return the share of the words that OCR found."""
    rows = running.installation.rows(
        "SELECT d.name, p.text FROM documents d JOIN leaves l ON l.document_id = d.id "
        "AND l.generation = d.live_generation JOIN pages p ON p.id = l.page_id"
    )
    read = dict(rows)
    asked = [(word, name) for name, text in texts.items() for word in _words(text)]
    known = {name: _words(read.get(name, "")) for name in texts}
    return sum(word in known[name] for word, name in asked) / len(asked)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


# ---------------------------------------------------------------------- bare loop


def _bare(files: Sequence[Path], warm: Sequence[Path]) -> float:
    """Return the seconds of a pool whose processes have loaded the models."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(CHILDREN) as pool:
        pool.map(_read, warm, chunksize=1)
        began = time.perf_counter()
        pool.map(_read, files, chunksize=1)
        return time.perf_counter() - began


def _read(path: Path) -> int:
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    pixels = document[0].render(scale=150 / 72).to_numpy()
    found = ocr.rapidocr()(pixels, use_det=True, use_cls=False, use_rec=True)
    return len(found.txts or ())
