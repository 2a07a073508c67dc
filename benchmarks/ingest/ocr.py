"""Seconds a page of scans beside a bare loop of the same engine, and whether turned pages read."""

import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure, at_least, at_most
from benchmarks.ingest.prose import Prose
from benchmarks.ingest.running import CHILDREN, Mill, mill, shelf
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.site import Site
from quire.demo import samples
from quire.errors import Refused
from quire.parse import ocr

TURNS = (90, 180, 270)
_FEW_LETTERS = 250
_WARM_BYTES = 350 << 20  # a child with the models loaded has more


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Read scans of one page each, upright ones for the time and turned ones for the words."""
    if not ocr.is_installed():
        raise Refused("bench: RapidOCR is not installed. Run: pip install 'quire[ocr]'.")
    folder = shelf(site.folder, "scans-")
    texts = _scans(folder / "upright", [0] * sizes.scans, sizes.scan_letters)
    turned = _scans(folder / "turned", TURNS, _FEW_LETTERS)
    _scans(folder / "warm", [0] * CHILDREN, _FEW_LETTERS)
    beside = _bare(sorted((folder / "upright").iterdir()), sorted((folder / "warm").iterdir()))
    with mill(site, is_warm=False) as running:
        running.warm(_warm_scans, _WARM_BYTES)
        took = running.ingest(folder / "upright")
        running.ingest(folder / "turned")
        upright, on_side = _recall(running, texts), _recall(running, turned)
    each = took.seconds / sizes.scans
    note = f"{sizes.scans} pages, {CHILDREN} children; bare: detection and lines, no turning"
    yield Figure("OCR of a page", each, "s/page", bare=beside / sizes.scans, note=note)
    share = each / (beside / sizes.scans)
    yield Figure("OCR of a page, of the bare loop", share, "×", target=at_most(1.25))
    yield Figure("words read, upright scans", upright, "", target=at_least(0.95))
    note = f"turned by {TURNS[0]}, {TURNS[1]} and {TURNS[2]} degrees"
    yield Figure("words read, turned scans", on_side, "", None, at_least(0.95), note)


def _warm_scans(folder: Path, each: int) -> None:
    """Write pages to load the models with; a page that was read before would load nothing."""
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


def _recall(running: Mill, texts: dict[str, str]) -> float:
    """Return the share of the words that the pages have."""
    rows = running.bed.rows(
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
    """Return the seconds that a pool needs, each member with the model loaded."""
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
