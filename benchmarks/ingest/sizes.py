"""Sizes of the ingestion measurements: a full run, and a quick one that shows that they work."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class IngestSizes:
    """Counts of one run; `corpus` is a folder of PDFs to use instead of generated ones."""

    files: int = 64
    pages: int = 1_700
    rounds: int = 5
    stage_pages: int = 120
    small_files: int = 5_000
    again_rounds: int = 3
    edit_pages: int = 1_000
    memory_pages: tuple[int, int] = (600, 10_000)
    firsts: int = 40
    chunks: int = 100_000
    queries: int = 100
    exact_queries: int = 40
    library_reports: int = 240
    scans: int = 6
    scan_letters: int = 1_000
    reports: int = 60
    corpus: Path | None = None


FULL = IngestSizes()
QUICK = IngestSizes(
    files=16,
    pages=200,
    rounds=1,
    stage_pages=48,
    small_files=300,
    again_rounds=2,
    edit_pages=200,
    memory_pages=(60, 400),
    firsts=8,
    chunks=6_000,
    queries=30,
    exact_queries=20,
    library_reports=40,
    scans=2,
    scan_letters=250,
    reports=12,
)
