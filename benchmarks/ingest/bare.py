"""The bare loop of ingestion: only the libraries (PDFium text, fixed chunks, WordLlama, SQLite).

It has no queue, no retries, no word boxes and no reuse, and does not flush to disk, so it shows
what the libraries cost. A pool of two processes reads each file by page ranges.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from quire.store.db import sqlite

PAGES = 50  # in one transaction
CHUNK = 1_200  # characters; about the size of the pipeline's chunks
STAGES = ("parse", "chunk", "embed", "store")
_TABLES = """
    CREATE TABLE doc (id INTEGER PRIMARY KEY, name TEXT UNIQUE, pages INT);
    CREATE TABLE chunk (id INTEGER PRIMARY KEY, doc INT, page INT, text TEXT, vec BLOB);
    CREATE INDEX chunk_doc ON chunk (doc);
    CREATE VIRTUAL TABLE chunk_fts USING fts5(text, content=chunk, content_rowid=id);
"""


class Bare(NamedTuple):
    """One run. The seconds of a stage are summed over all processes."""

    pages: int
    seconds: float
    cpu: float  # seconds
    stages: dict[str, float]

    @property
    def rate(self) -> float:
        """Pages per second."""
        return self.pages / self.seconds


class _Range(NamedTuple):
    path: str
    first: int
    last: int


class _Ingested(NamedTuple):
    pages: int
    cpu: float
    stages: list[float]


def run(files: Sequence[Path], folder: Path, workers: int = 2) -> Bare:
    """Ingest PDFs with a pool of processes that are warm before the clock starts."""
    path = str(folder / "bare.db")
    connection = _open(path)
    connection.executescript(_TABLES)
    connection.close()
    ranges = [each for file in files for each in _ranges(file)]
    ranges.sort(key=lambda each: -Path(each.path).stat().st_size)
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _begin, (path,)) as pool:
        pool.map(time.sleep, [0.3] * workers, chunksize=1)
        began = time.perf_counter()
        done = pool.map(_ingest, ranges, chunksize=1)
        seconds = time.perf_counter() - began
    stages = {name: sum(one.stages[at] for one in done) for at, name in enumerate(STAGES)}
    cpu = sum(one.cpu for one in done)
    return Bare(sum(one.pages for one in done), seconds, cpu, stages)


def _ranges(path: Path) -> Iterator[_Range]:
    import pypdfium2

    try:
        opened = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError:  # damaged or encrypted: Quire fails its document
        return iter(())
    count = len(opened)
    opened.close()
    return (_Range(str(path), first, min(first + PAGES, count)) for first in range(0, count, PAGES))


_model: Any = None
_connection: Any = None


def _begin(path: str) -> None:
    global _model, _connection
    import pypdfium2  # noqa: F401
    import wordllama

    folder = Path(wordllama.__file__).parent
    _model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True, dim=256)
    _model.embed(["warm"])
    _connection = _open(path)


def _open(path: str) -> Any:
    connection = sqlite.sqlite_module().connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = normal")
    return connection


def _ingest(span: _Range) -> _Ingested:
    """Read, chunk, embed and store one page range."""
    cpu = time.process_time()
    times = [time.perf_counter()]
    texts = _texts(span)
    times.append(time.perf_counter())
    cut = [(page, chunk) for page, text in enumerate(texts) for chunk in chunks(text)]
    times.append(time.perf_counter())
    found = _model.embed([chunk for _, chunk in cut], batch_size=64) if cut else ()
    times.append(time.perf_counter())
    _insert(span, len(texts), cut, found)
    times.append(time.perf_counter())
    cpu = time.process_time() - cpu
    return _Ingested(len(texts), cpu, [b - a for a, b in pairwise(times)])


def _texts(span: _Range) -> list[str]:
    import pypdfium2

    opened = pypdfium2.PdfDocument(span.path)
    texts = []
    for number in range(span.first, span.last):
        page = opened[number]
        textpage = page.get_textpage()
        texts.append(textpage.get_text_bounded())
        textpage.close()
        page.close()
    opened.close()
    return texts


def chunks(text: str, size: int = CHUNK) -> list[str]:
    """Split a text at the last space before `size` characters, without overlap."""
    found, start = [], 0
    while start < len(text):
        stop = min(len(text), start + size)
        if stop < len(text):
            lower = start + size // 2
            space = max(text.rfind(" ", lower, stop), text.rfind("\n", lower, stop))
            stop = space if space > 0 else stop
        if piece := text[start:stop].strip():
            found.append(piece)
        start = stop
    return found


def _insert(span: _Range, pages: int, cut: Sequence[tuple[int, str]], vectors: Any) -> None:
    connection = _connection
    connection.execute("BEGIN IMMEDIATE")
    name = f"{span.path}#{span.first}"
    doc = connection.execute("INSERT INTO doc (name, pages) VALUES (?, ?)", (name, pages)).lastrowid
    [[last]] = connection.execute("SELECT coalesce(max(id), 0) FROM chunk")
    rows = [
        (last + at, doc, page, text, vector.tobytes())
        for at, ((page, text), vector) in enumerate(zip(cut, vectors, strict=True), start=1)
    ]
    connection.executemany("INSERT INTO chunk VALUES (?, ?, ?, ?, ?)", rows)
    connection.executemany(
        "INSERT INTO chunk_fts (rowid, text) VALUES (?, ?)", [(row[0], row[3]) for row in rows]
    )
    connection.execute("COMMIT")
