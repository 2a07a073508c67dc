"""What it costs to ingest again: files that did not change, and one page of a long PDF."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from quire.bench.figures import Figure, at_most
from quire.bench.ingest_corpus import long_pdf, small_texts
from quire.bench.ingest_running import CHILDREN, mill, shelf
from quire.bench.ingest_sizes import IngestSizes
from quire.bench.site import Site
from quire.errors import Refused
from quire.store import embedded


def again(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest a folder of small files, then again without a change."""
    folder = shelf(site.folder, "small-")
    files = small_texts(folder, sizes.small_files)
    with mill(site) as running:
        first = running.ingest(folder)
        known = running.bed.count("documents")
        spans = [running.ingest(folder).seconds for _ in range(sizes.again_rounds)]
        if running.bed.count("documents") != known:
            raise Refused("bench: an unchanged folder made documents.")
    count = len(files)
    note = f"{count:,} text files, {CHILDREN} children"
    yield Figure("small files, first time", count / first.seconds, "files/s", note=note)
    beside = median(_walked(folder) for _ in range(sizes.again_rounds))
    yield Figure(
        "unchanged files, again",
        median(spans) / count * 1e3,
        "ms/file",
        bare=beside / count * 1e3,
        target=at_most(1.0),
        note=f"{count:,} files; bare: size and time of each, compared in SQLite",
    )


def _walked(folder: Path) -> float:
    """Return the seconds to list files and to compare each with a row of a table."""
    connection = embedded.sqlite_module().connect(":memory:")
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


def edit(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest a long PDF, change one page of it, and ingest it again."""
    path = long_pdf(shelf(site.folder, "edited-") / "long.pdf", sizes.edit_pages)
    with mill(site) as running:
        first = running.ingest(path)
        _change_page(path, sizes.edit_pages // 2)
        second = running.ingest(path)
        read = "SELECT count(*) FROM tasks WHERE kind = 'ingest.range' AND job_id ="
        [(tasks,)] = running.bed.rows(f"{read} {second.job_id}")
        spans = "SELECT coalesce(sum(to_page - from_page + 1), 0) FROM tasks WHERE job_id ="
        [(pages,)] = running.bed.rows(f"{spans} {second.job_id}")
    share = 100 * second.seconds / first.seconds
    note = f"{second.seconds:.2f} of {first.seconds:.2f} s; {pages} pages read by {tasks} tasks"
    name = f"one page of {sizes.edit_pages:,} edited, of the first ingest"
    yield Figure(name, share, "%", target=at_most(5.0), note=note)


def _change_page(path: Path, number: int) -> None:
    """Draw one more line on a page, and let another program write the whole file anew."""
    import pikepdf

    with pikepdf.open(path, allow_overwriting_input=True) as pdf:
        line = b"BT /F0 8 Tf 56 20 Td (This sentence was added later.) Tj ET"
        pdf.pages[number - 1].contents_add(pdf.make_stream(line))
        pdf.save(path)
