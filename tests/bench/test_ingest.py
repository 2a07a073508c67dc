"""The measurements of ingestion: they end, report every figure, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import tempfile
from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.ingest import bare, command
from benchmarks.ingest.prose import Prose
from benchmarks.ingest.sample_files import lengths, long_pdf, pdfs, small_texts
from benchmarks.ingest.sizes import QUICK
from quire.errors import BadInput
from quire.parse import ocr

pytestmark = pytest.mark.bench

TINY = dataclasses.replace(
    QUICK,
    files=3,
    pages=8,
    stage_pages=3,
    small_files=5,
    again_rounds=1,
    edit_pages=20,
    memory_pages=(2, 4),
    firsts=2,
    chunks=600,
    queries=3,
    scans=1,
    reports=3,
    scan_letters=60,
)
WITHOUT_OCR = [name for name in command.MEASURES if name != "ocr"]


def figures_of(names: list[str], database: str = "embedded") -> dict[str, float]:
    report = runner.run(database, names, TINY, is_quick=True, measures=command.MEASURES)
    assert report["failures"] == []
    assert {name for _, name, _ in report["figures"]} == set(names)
    figures = [figure for _, _, figure in report["figures"]]
    assert len({figure.name for figure in figures}) == len(figures)
    assert all(figure.value >= 0 for figure in figures)
    return {figure.name: figure.value for figure in figures}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["embedded", "postgres"])
def test_each_measurement_reports_its_figures(database: str, request: pytest.FixtureRequest):
    if database == "postgres":
        database = request.getfixturevalue("pg_url")
    found = figures_of(WITHOUT_OCR, database)
    assert found["PDF pages, without thumbnails"] > 0
    assert found["memory of a child, 4 pages"] > 10
    assert found["recall@5, worded alike, keyword"] > 0.9


@pytest.mark.timeout(300)
@pytest.mark.skipif(not ocr.is_installed(), reason="RapidOCR is not installed")
def test_scans_are_read_however_they_lie():
    found = figures_of(["ocr"])
    assert found["words read, upright scans"] > 0.8
    assert found["words read, rotated scans"] > 0.8


def test_nothing_is_left_in_the_folder_for_temporary_files():
    place = Path(tempfile.gettempdir())
    before = set(place.glob("quire-bench-*"))
    figures_of(["search"])
    assert set(place.glob("quire-bench-*")) <= before
    assert multiprocessing.active_children() == []


def test_an_unknown_measurement_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="pages, again"):
        command.main(only=["speed"])


def test_a_corpus_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="no such folder"):
        command.main(corpus=tmp_path / "none")


def test_the_made_files_are_the_same_every_time(tmp_path: Path):
    def digest(folder: Path) -> str:
        folder.mkdir()
        files = [*pdfs(folder, 3, 9), long_pdf(folder / "long.pdf", 2), *small_texts(folder, 3)]
        whole = b"".join(path.read_bytes() for path in files)
        return hashlib.sha256(whole).hexdigest()

    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_pages_are_shared_out_unevenly_and_wholly():
    shares = lengths(64, 1_700)
    assert sum(shares) == 1_700
    assert len(shares) == 64
    assert max(shares) > 5 * (1_700 / 64)
    assert min(shares) >= 1


def test_a_page_has_as_much_text_as_asked_for():
    text = "\n".join(Prose(3).page(3_000))
    assert 2_500 < len(text) < 3_800


def test_the_bare_loop_cuts_at_spaces_and_loses_no_word():
    text = Prose(4).paragraph(5_000)
    pieces = bare.chunks(text, 700)
    assert " ".join(pieces).split() == text.split()
    assert max(map(len, pieces)) <= 700
