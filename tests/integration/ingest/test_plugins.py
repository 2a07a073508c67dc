"""Parsers and sources of plugins, from a file at its place to its text in the store."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from quire import Item, Page, Permanent, parser, plugins, source
from quire.control import corpora, documents, ingest, search
from quire.demo import samples
from quire.errors import BadInput
from quire.fetch.blobs.backend import open_blobs
from quire.model.contracts import MARK
from tests.integration.processes import Site
from tests.shelf import PLAIN, Shelf
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]

EPUB = "application/epub+zip"


@parser(EPUB, name="epub", suffixes=(".epub",), version=1)
def epub(path: Path) -> Iterator[Page]:
    with zipfile.ZipFile(path) as book:
        chapters = sorted(name for name in book.namelist() if name.endswith(".xhtml"))
        if not chapters:
            raise Permanent(f"{path.name}: has no chapters.")
        for number, name in enumerate(chapters, start=1):
            text = re.sub(r"<[^>]+>", " ", book.read(name).decode())
            yield Page(number, text.strip(), label=name)


@parser("application/pdf", name="operators")
def operators(path: Path) -> Iterator[str]:
    """A second reader of PDF: the strings that are shown, as the drawing commands have them."""
    import pikepdf

    with pikepdf.open(path) as pdf:
        for page in pdf.pages:
            shown = [
                bytes(each.operands[0])
                for each in pikepdf.parse_content_stream(page)
                if str(each.operator) == "Tj"
            ]
            yield "read by operators: " + b" ".join(shown).decode("latin-1")


@source("cupboard")
class Cupboard:
    """Three files in memory."""

    files: ClassVar[dict[str, bytes]] = {}
    reads: ClassVar[list[str]] = []

    def items(self, url: str) -> Iterator[Item]:
        for name, content in self.files.items():
            yield Item(f"{url}/{name}", name, len(content), version=str(hash(content)))

    def read(self, item: Item, start: int) -> Iterator[bytes]:
        self.reads.append(item.name)
        yield self.files[item.name][start:]


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, home: Path) -> Iterator[Shelf]:
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    shelf = Shelf(home / "home", home / "in", url)
    for each in (epub, operators, Cupboard):
        shelf.app.registry.put(getattr(each, MARK))
    plugins.equip(shelf.app.registry)
    Cupboard.files = {f"{name}.txt": f"the {name} text".encode() for name in ("one", "two", "six")}
    Cupboard.reads = []
    yield shelf
    shelf.assert_healthy()
    shelf.close()
    plugins.equip(plugins.Registry())


def hits(shelf: Shelf, words: str) -> list[tuple[str, int]]:
    found = search.search(shelf.db, "default", words, mode="text")["items"]
    return [(hit["name"], hit["page"]) for hit in found]


def book(*chapters: str) -> bytes:
    members: dict[str, str | bytes] = {"meta": "x"}
    members |= {f"{at}.xhtml": f"<p>{text}</p>" for at, text in enumerate(chapters, start=1)}
    return samples.zipped(members)


def test_a_book_is_read_by_a_plugin_and_found_by_its_page(shelf: Shelf):
    shelf.put("whale.epub", book("Call me Ishmael", "The chapel", "A bosom friend"))
    shelf.put("plain.txt", "nothing of the sea")
    job_id = shelf.ingest()
    assert shelf.job(job_id).state == "completed"
    assert hits(shelf, "chapel") == [("whale.epub", 2)]
    assert shelf.texts("whale.epub") == ["Call me Ishmael", "The chapel", "A bosom friend"]
    assert shelf.generation("whale.epub").media_type == EPUB
    labels = {row.text: row.label for row in shelf.rows("pages")}
    assert labels["A bosom friend"] == "3.xhtml"
    assert shelf.listed(shelf.ingest()) == {"unchanged": 2}


def test_the_same_book_is_not_read_again_and_a_later_version_of_the_parser_reads_it(shelf: Shelf):
    shelf.put("a.epub", book("Call me Ishmael"))
    shelf.ingest()
    shelf.put("b.epub", book("Call me Ishmael"))
    shelf.ingest()
    assert shelf.ledger("b.epub")["whole_reused"] == 1
    later = parser(EPUB, name="epub", suffixes=(".epub",), version=2)(lambda path: ["Later"])
    shelf.app.registry.put(getattr(later, MARK))
    try:
        shelf.ingest(force=True)
    finally:
        shelf.app.registry.put(getattr(epub, MARK))
    assert shelf.texts("a.epub") == ["Later"]


def test_a_second_parser_of_pdf_is_chosen_by_name_for_the_types_it_reads(shelf: Shelf):
    pages = [samples.text_page([f"page {n} of the report"]) for n in range(1, 15)]
    shelf.put("report.pdf", samples.pdf(pages))
    shelf.put("note.txt", "a note")
    shelf.ingest()
    assert shelf.texts("report.pdf")[0].strip() == "page 1 of the report"
    assert len(shelf.tasks("range")) == 2
    shelf.ingest(settings={**PLAIN, "parser": "operators"})
    assert len(shelf.tasks("range")) == 2  # a plugin reads a file in one go
    assert shelf.texts("report.pdf")[13].startswith("read by operators: page 14 of")
    assert shelf.texts("note.txt") == ["a note"]
    shelf.ingest()
    assert shelf.texts("report.pdf")[13].strip() == "page 14 of the report"
    assert shelf.ledger("report.pdf").get("pages_made", 0) == 0


def test_a_parser_that_is_not_known_fails_the_job_with_those_that_are(shelf: Shelf):
    shelf.put("note.txt", "a note")
    said = "parser: 'pdfx' is not known here. Known: auto, epub, operators."
    reach = shelf.app.settings.for_children
    with pytest.raises(BadInput, match=re.escape(said)):
        ingest.check_request([str(shelf.folder)], reach, settings={"parser": "pdfx"})
    with pytest.raises(BadInput, match=re.escape(said)):
        corpora.create(shelf.app.caller, "reports", {"parser": "pdfx"})
    corpora.create(shelf.app.caller, "reports", {"parser": "epub"})
    with pytest.raises(BadInput, match=re.escape(said)):
        corpora.change(shelf.app.caller, "reports", {"parser": "pdfx"})
    job_id = shelf.ingest(settings={**PLAIN, "parser": "pdfx"})
    assert shelf.job(job_id).state == "failed"
    assert said in shelf.job(job_id).error
    assert shelf.rows("documents") == []


def test_a_parser_that_went_away_fails_the_document_and_says_so(shelf: Shelf):
    shelf.put("note.txt", "a note")
    shelf.submit(settings={**PLAIN, "parser": "epub"})
    shelf.step()
    del shelf.app.registry.parsers["epub"]
    shelf.drain()
    assert shelf.document("note.txt").state == "failed"
    assert "'epub' is not known here. Known: auto, operators." in shelf.document("note.txt").error
    shelf.app.registry.put(getattr(epub, MARK))
    with pytest.raises(BadInput, match="'pdfx' is not known"):
        documents.reindex(shelf.app.caller, shelf.document("note.txt").id, {"parser": "pdfx"})
    shelf.ingest()
    assert shelf.document("note.txt").state == "success"


def test_a_book_that_the_plugin_refuses_fails_alone_under_its_own_name(shelf: Shelf):
    shelf.put("good.epub", book("text"))
    shelf.put("empty.epub", book())
    job_id = shelf.ingest()
    assert shelf.job(job_id).state == "completed"
    assert shelf.document("empty.epub").error == "empty.epub: has no chapters."
    assert len(shelf.tasks("document")) == len(shelf.rows("attempts")) - 1
    assert shelf.document("good.epub").state == "success"


def test_a_parser_that_kills_its_process_costs_its_document_only(shelf: Shelf):
    shelf.put("good.epub", book("text"))
    shelf.put("poison.epub", book("poison"))
    shelf.submit()
    shelf.step()
    [poison] = shelf.rows("documents", name="poison.epub")

    def crash(lease: Any) -> str | None:
        is_poison = json.loads(lease.payload).get("document") == poison.id
        return "crashed" if is_poison else None

    assert shelf.drain_with(crash) == 3
    assert shelf.document("poison.epub").state == "failed"
    assert shelf.document("good.epub").state == "success"


def test_three_files_of_a_plugins_source_are_taken_in_and_listed_again_as_unchanged(shelf: Shelf):
    url = "cupboard://kitchen"
    first = shelf.ingest(url)
    assert shelf.listed(first) == {"new": 3}
    assert hits(shelf, "six") == [("six.txt", 1)]
    assert sorted(Cupboard.reads) == ["one.txt", "six.txt", "two.txt"]
    assert shelf.listed(shelf.ingest(url)) == {"unchanged": 3}
    assert len(Cupboard.reads) == 3
    Cupboard.files |= {"six.txt": b"the seventh text"}
    del Cupboard.files["one.txt"]
    assert shelf.listed(shelf.ingest(url)) == {"changed": 1, "gone": 1, "unchanged": 1}
    assert hits(shelf, "seventh") == [("six.txt", 1)]


def test_a_look_before_ingesting_and_the_doctor_know_the_source(shelf: Shelf):
    reach = shelf.app.settings.for_children
    url = "cupboard:kitchen"
    assert ingest.check_source(url, reach) == (
        True, [f"{url}: can be listed; files found: 3.", "one.txt: can be read."],
    )  # fmt: skip
    order = ingest.check_request([url], reach, settings=PLAIN)
    assert {each.verdict for each in ingest.preview(shelf.app.caller, reach, order)} == {"new"}
    shelf.ingest(url, settings=order.settings)
    assert {each.verdict for each in ingest.preview(shelf.app.caller, reach, order)} == {"same"}


def test_one_page_of_a_book_can_be_read_here_and_now(shelf: Shelf):
    shelf.put("whale.epub", book("Call me Ishmael", "The chapel"))
    shelf.ingest()
    blobs = open_blobs({"home": shelf.app.settings.home})
    found = documents.read_page(shelf.app.caller, blobs, shelf.document("whale.epub").id, 2)
    assert found.page == Page(2, "The chapel", label="2.xhtml")


PLUGIN = """
import os, signal, zipfile
from quire import Item, parser, source

@parser("application/epub+zip", name="epub", suffixes=(".epub",))
def epub(path):
    if b"poison" in path.read_bytes():
        os.kill(os.getpid(), signal.SIGSEGV)
    yield "a safe chapter"

@source("cupboard")
class Cupboard:
    def items(self, url):
        for name in ("good.epub", "poison.epub"):
            yield Item(f"{url}/{name}", name)

    def read(self, item, start):
        yield b"PK\\x03\\x04" + item.name.encode()
"""


def test_a_real_worker_reads_by_plugins_and_outlives_a_parser_that_crashes(embedded: Site):
    path = embedded.home / "cupboard_plugin.py"
    path.write_text(PLUGIN)
    worker = embedded.worker(plugins=str(path))
    job_id = embedded.submit("ingest", sources=["cupboard:x"], settings=PLAIN)

    def seen() -> bool:
        good = embedded.rows("documents", name="good.epub", state="success")
        return bool(good) and "crashed" in embedded.outcomes(job_id)

    until(seen, within=60, what=lambda: f"{embedded.outcomes(job_id)} {embedded.logs()}")
    assert worker.popen.poll() is None
    assert [row.text for row in embedded.rows("chunks")] == ["a safe chapter"]
    embedded.stop(job_id)
    assert worker.leave() == 0
    embedded.assert_healthy()


def test_the_commands_know_the_parsers_and_sources_of_plugins(
    quire: Run, home: Path, monkeypatch: pytest.MonkeyPatch
):
    path = home / "cupboard_commands.py"
    path.write_text(PLUGIN)
    monkeypatch.setenv("QUIRE_PLUGINS", str(path))
    listed = quire("ingest", "cupboard:x", "--dry-run", "--json").json
    assert listed["counts"] == {"new": 2}
    told = quire("doctor", "--source", "cupboard:x")
    assert (told.code, told.out.splitlines()[-1]) == (0, "good.epub: can be read.")
    assert quire("corpus", "create", "books", "--set", "parser=epub").code == 0
    for command in (
        ("ingest", "cupboard:x", "--set", "parser=nope"),
        ("corpus", "create", "other", "--set", "parser=nope"),
        ("corpus", "set", "books", "parser=nope"),
    ):
        ended = quire(*command)
        assert (ended.code, "Known: auto, epub." in ended.err) == (2, True)
    monkeypatch.delenv("QUIRE_PLUGINS")
    assert "unknown source type 'cupboard'" in quire("ingest", "cupboard:x").err
