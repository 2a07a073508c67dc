"""A corpus is indexed again where today's settings and parsers would give something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from quire.control import corpora, corpus_reindex
from quire.control import document_structure as structure
from quire.control.corpus_reindex import Plan
from quire.demo import samples
from quire.errors import NotFound
from quire.parse.pdf.reader import PdfParser
from quire.store.db.schema.documents import pages
from tests.shelf import PLAIN, Shelf, open_shelf

NAME = "harbour"


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    for opened in open_shelf(request, tmp_path):
        corpora.create(opened.app.caller, NAME, {**PLAIN, "ocr": "auto"})
        yield opened


def fill(shelf: Shelf) -> None:
    scan = samples.scanned_page(["The pilot boat leaves at dawn."])
    texts = [samples.text_page([f"Page {n} tells of the tides."]) for n in (1, 2)]
    shelf.put("a.pdf", samples.pdf([*texts, scan]))
    shelf.put("b.txt", "Barrels of cider stand on the quay.")
    shelf.app.submit("ingest", sources=[str(shelf.folder)], corpus=NAME)
    shelf.drain()


def plan(shelf: Shelf) -> Plan:
    return corpus_reindex.plan(shelf.app.caller, NAME, asdict(shelf.app.settings))


def test_nothing_is_outdated_after_an_ingest(shelf: Shelf):
    fill(shelf)
    assert plan(shelf) == Plan(0, 2, 0, 0, 0, 0, 0, 0, 0.0)
    with pytest.raises(NotFound):
        corpus_reindex.start(shelf.app.caller, "unknown")


def test_after_a_change_of_a_parser_its_documents_are_read_again_and_ocr_is_reused(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("rapidocr")
    fill(shelf)
    with shelf.db.begin() as conn:
        conn.execute(sa.update(pages).values(blocks=None))  # as an earlier release left them
    monkeypatch.setattr(PdfParser, "version", 1_000)
    told = plan(shelf)
    assert (told.documents, told.unchanged, told.pages, told.ocr_pages) == (1, 1, 2, 1)
    before = shelf.document("b.txt").generation
    job_id = corpus_reindex.start(shelf.app.caller, NAME)
    assert shelf.is_found("pilot boat")  # the earlier generation is searchable meanwhile
    shelf.drain()
    [job] = [row for row in shelf.rows("jobs") if row.id == job_id]
    assert job.state == "completed"
    ledger = shelf.ledger("a.pdf")
    assert (ledger["ocr_reused"], ledger["pages_made"]) == (1, 2)
    assert shelf.document("b.txt").generation == before
    third = structure.of_page(shelf.app.caller, shelf.document("a.pdf").id, 3)
    assert [each["source"] for each in third["blocks"]] == ["ocr"]
    assert plan(shelf).documents == 0


def test_after_a_change_of_chunks_no_page_is_read_again(shelf: Shelf):
    fill(shelf)
    corpora.change(shelf.app.caller, NAME, {"chunk_tokens": "64"})
    told = plan(shelf)
    assert (told.documents, told.pages, told.kept_pages) == (2, 0, 4)
    corpus_reindex.start(shelf.app.caller, NAME)
    assert plan(shelf).documents == 2  # the job has only been submitted
    shelf.step()
    told = plan(shelf)
    assert (told.documents, told.busy) == (0, 2)
    shelf.drain()
    assert "pages_made" not in shelf.ledger("a.pdf")
    assert plan(shelf) == Plan(0, 2, 0, 0, 0, 0, 0, 0, 0.0)


def test_a_document_that_was_never_indexed_is_counted_apart(shelf: Shelf):
    shelf.put("broken.pdf", b"%PDF-1.4 nothing more")
    fill(shelf)
    assert plan(shelf).not_indexed == 1


def test_another_tenant_neither_plans_nor_starts(shelf: Shelf):
    fill(shelf)
    stranger = replace(shelf.app.caller, tenant="other")
    with pytest.raises(NotFound):
        corpus_reindex.plan(stranger, NAME, asdict(shelf.app.settings))
    with pytest.raises(NotFound):
        corpus_reindex.start(stranger, NAME)
