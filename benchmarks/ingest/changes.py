"""Time to ingest again: unchanged files, and a long PDF with one edited page."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, at_most
from benchmarks.ingest.sample_files import long_pdf, small_texts
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import CHILDREN, ingest_worker, temporary_folder
from benchmarks.installation import Backend
from quire.errors import Refused
from quire.store.db import sqlite

_EDITS = 5


def again(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest a folder of small files, then ingest it again unchanged."""
    folder = temporary_folder(backend.folder, "small-")
    files = small_texts(folder, sizes.small_files)
    with ingest_worker(backend) as running:
        first = running.ingest(folder)
        known = running.installation.count("documents")
        spans = [running.ingest(folder).seconds for _ in range(sizes.again_rounds)]
        if running.installation.count("documents") != known:
            raise Refused("bench: an unchanged folder created documents.")
    count = len(files)
    note = f"{count:,} text files, {CHILDREN} children"
    yield Figure("small files, first time", count / first.seconds, "files/s", note=note)
    baseline = median(_walked(folder) for _ in range(sizes.again_rounds))
    yield Figure(
        "unchanged files, again",
        median(spans) / count * 1e3,
        "ms/file",
        bare=baseline / count * 1e3,
        target=at_most(1.0),
        note=f"{count:,} files; bare: compares size and time of each in SQLite",
    )


def _walked(folder: Path) -> float:
    """Return the seconds to list files and compare each with a row of a table."""
    connection = sqlite.sqlite_module().connect(":memory:")
    connection.execute("CREATE TABLE seen (path TEXT PRIMARY KEY, size INT, mtime INT)")
    rows = list(_listed(folder))
    connection.executemany("INSERT INTO seen VALUES (?, ?, ?)", rows)
    began = time.perf_counter()
    query = "SELECT 1 FROM seen WHERE path = ? AND size = ? AND mtime = ?"
    same = sum(connection.execute(query, row).fetchone() is not None for row in _listed(folder))
    seconds = time.perf_counter() - began
    connection.close()
    return seconds if same == len(rows) else 0.0


def _listed(folder: Path) -> Iterator[tuple[str, int, int]]:
    for path in folder.rglob("*.txt"):
        stat = path.stat()
        yield str(path), stat.st_size, stat.st_mtime_ns


def edit(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest a long PDF, then repeatedly change one page and ingest it again."""
    path = long_pdf(temporary_folder(backend.folder, "edited-") / "long.pdf", sizes.edit_pages)
    with ingest_worker(backend) as running:
        first = running.ingest(path)
        edits = []
        for number in range(1, _EDITS + 1):
            _change_page(path, sizes.edit_pages * number // (_EDITS + 1))
            edits.append(running.ingest(path))
        read = "SELECT count(*) FROM tasks WHERE kind = 'ingest.range' AND job_id >"
        [(tasks,)] = running.installation.rows(f"{read} {first.job_id}")
    shares = [100 * each.seconds / first.seconds for each in edits]
    name = f"one page of {sizes.edit_pages:,} edited, share of the first ingest"
    told = ", ".join(f"{share:.1f}" for share in shares)
    note = f"of {first.seconds:.2f} s; each: {told} %; {tasks} range tasks"
    yield Figure(name, median(shares), "%", target=at_most(5.0), note=note)
    cpu = median(each.cpu for each in edits)
    note = "the worker and its children"
    yield Figure(f"{name}, CPU time", 100 * cpu / first.cpu, "%", note=note)


def _change_page(path: Path, number: int) -> None:
    """Add a line to a page, and let another program (qpdf) rewrite the whole file."""
    import pikepdf

    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        line = b"BT /F0 8 Tf 56 20 Td (This sentence was added later.) Tj ET"
        pdf.pages[number - 1].contents_add(pdf.make_stream(line))
        pdf.save(path)
