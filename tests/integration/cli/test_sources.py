"""What `quire ingest` and its relatives say of sources, names and patterns that make trouble."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.app import App
from quire.cli.ingest import follow
from quire.parse.pdf import reader as pdf
from quire.settings import load
from quire.store.queue import kinds
from quire.store.reports import jobs as job_reports
from quire.testing import drain
from tests.servers import FileServer

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]

PLAIN = ("--set", "embedder=none", "--set", "thumbnails=false", "--set", "ocr=never")
JUNK = b"%PDF-1.4 junk"


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUIRE_FETCH_ALLOW_PRIVATE_ADDRESSES", "true")
    place = home / "in"
    place.mkdir()
    (place / "a.txt").write_text("herring words")
    return place


@pytest.fixture
def web() -> Iterator[FileServer]:
    with FileServer() as server:
        yield server


@pytest.fixture
def summed_up(quire: Run, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Ingest in this process, and return the summary that the command ends with."""

    def run(*arguments: object) -> str:
        job_id = quire("ingest", *arguments, *PLAIN, "--no-wait", "--json").json["id"]
        app = App(load(dict(os.environ)))
        app.db.write(lambda conn, now: kinds.announce(conn, app.registry.kinds.values()))
        drain(app)
        with app.db.read() as conn:
            job = job_reports.job(conn, app.settings.tenant, job_id, now=0.0)
        assert job is not None
        follow.say_ending(app, job)
        pdf.close()
        app.close()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("with_failure", [False, True], ids=["good", "failing"])
def test_a_source_that_cannot_be_listed_is_in_the_summary_and_in_what_shows_the_job(
    quire: Run, summed_up: Callable[..., str], folder: Path, web: FileServer, with_failure: bool
):
    if with_failure:
        (folder / "broken.pdf").write_bytes(JUNK)
    reason = f"{web.url}/none.pdf: not found (HTTP 404)."
    said = summed_up(f"{web.url}/none.pdf", folder)
    assert "       1  indexed" in said
    assert "       1  source could not be listed" in said
    assert f"Could not be listed:\n  {reason}" in said
    assert said.count("none.pdf") == 1
    assert "quire job retry 1 --failed --wait" in said
    shown = " ".join(quire("job", "show", 1).out.split())
    assert "1 of 2 sources could not be listed" in shown
    assert "100 %" in shown
    told = quire("job", "show", 1, "--json").json
    assert told["error"].startswith(f"1 of 2 sources could not be listed: {reason}")
    assert ("1 of 2 files failed" in told["error"]) == with_failure
    assert told["result"]["unlisted"] == [{"source": f"{web.url}/none.pdf", "error": reason}]


def test_files_of_the_same_name_are_shown_with_what_tells_them_apart(
    quire: Run, summed_up: Callable[..., str], folder: Path
):
    for place in ("x/deep", "y/deep"):
        (folder / place).mkdir(parents=True)
        (folder / place / "broken.pdf").write_bytes(JUNK)
    said = summed_up(folder)
    for place in ("x/deep/broken.pdf", "y/deep/broken.pdf"):
        assert f"{place}: is damaged" in said
        assert place in quire("documents").out
        assert place in quire("job", "show", 1).out
    assert "in/a.txt" not in quire("documents").out
    names = [each["name"] for each in quire("documents", "--json").json["items"]]
    assert names.count("broken.pdf") == 2  # programs have the URI


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "a bracket is not closed"),
        ("*.[pdf", "a bracket is not closed"),
        ("[z-a]*", "invalid ("),
        ("a//b", "or an empty part"),
        ("../*.pdf", "or an empty part"),
    ],
)
@pytest.mark.parametrize("option", ["--include", "--exclude"])
def test_a_pattern_that_cannot_match_is_refused(
    quire: Run, folder: Path, option: str, pattern: str, why: str
):
    for source in (folder, "https://example.org/a.pdf"):
        ended = quire("ingest", source, option, pattern)
        assert ended.code == 2
        assert why in ended.err


def test_a_pattern_that_matched_nothing_is_named(summed_up: Callable[..., str], folder: Path):
    (folder / "[draft].md").write_text("lantern words")
    said = summed_up(folder, "--include", "*.txt", "--include", "*.dcox", "--include", "[[]*.md")
    assert "       2  indexed" in said
    assert "No file matched: *.dcox\n" in said
    assert said.count("No file matched") == 1


def test_what_was_left_out_is_named_with_the_reason(summed_up: Callable[..., str], folder: Path):
    for number in range(8):
        (folder / f"{number} link").symlink_to("nowhere")
    said = summed_up(folder)
    assert "       8  skipped: not regular files, or not readable" in said
    assert "/0%20link: a symbolic link" in said
    assert said.count("a symbolic link, which is not followed") == 5


def test_a_private_address_is_refused_with_the_setting_that_allows_it(
    quire: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("QUIRE_FETCH_ALLOW_PRIVATE_ADDRESSES")
    said = quire("doctor", "--source", "http://127.0.0.1:9/x.pdf")
    assert said.code == 1
    assert "QUIRE_FETCH_ALLOW_PRIVATE_ADDRESSES=true" in said.out + said.err
