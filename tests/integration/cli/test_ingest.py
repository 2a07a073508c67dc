"""`quire ingest`, `documents`, `document` and `corpus`, as a person meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.app import App
from quire.parse.pdf import reader as pdf
from quire.settings import load
from quire.store.queue import kinds
from quire.testing import drain
from tests import documents as made
from tests.embedding import Server, serving
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run, Start

pytest_plugins = ["tests.integration.cli.cli_command"]

NOBODY = "No worker is running. Start one in another terminal with `quire up`.\n"
#: The command, for which a file is complete sooner.
IMPATIENT = (
    "from functools import partial; from quire.cli import main; "
    "from quire.fetch.sources import watch; watch.STABILITY_SECONDS = 0.5; "
    "watch.find_stable = partial(watch.find_stable, stability=0.5); main()"
)
PLAIN = ("--set", "embedder=none", "--set", "thumbnails=false", "--set", "ocr=never")


@pytest.fixture
def folder(home: Path) -> Path:
    """A folder with two files that can be read and one that cannot."""
    place = home / "in"
    (place / "sub").mkdir(parents=True)
    (place / "a.txt").write_text("The tide turns at noon.")
    (place / "sub" / "b.pdf").write_bytes(made.pdf("Barrels of cider", "stand on the quay"))
    (place / "empty.txt").touch()
    return place


@pytest.fixture
def work(home: Path, quire: Run) -> Callable[[], None]:
    """Do in this process what a worker would do."""

    def run() -> None:
        app = App(load(dict(os.environ)))
        app.db.write(lambda conn, now: kinds.announce(conn, app.registry.kinds.values()))
        drain(app)
        pdf.close()
        app.close()

    return run


@pytest.fixture
def endpoint() -> Iterator[Server]:
    """An endpoint that gives vectors."""
    yield from serving()


def submitted(quire: Run, work: Callable[[], None], *arguments: object) -> int:
    job_id = quire("ingest", *arguments, *PLAIN, "--no-wait", "--json").json["id"]
    work()
    return int(job_id)


# ---------------------------------------------------------------------- ingest


def test_without_a_worker_it_runs_its_own_and_sums_up(quire: Run, folder: Path):
    ended = quire("ingest", folder, *PLAIN)
    assert ended.code == 1
    assert "job 1 completed with errors after" in ended.out
    assert "2  indexed" in ended.out
    assert "1  failed" in ended.out
    assert "empty.txt: is empty (0 bytes)." in ended.out
    assert "quire job retry 1 --failed --wait" in ended.out
    assert "3 of 3 files done, 1 failed" in ended.err
    assert quire("status", "--json").json["workers"] == []
    again = quire("ingest", folder / "a.txt", *PLAIN, "--json")
    assert again.code == 0
    assert again.json["state"] == "completed"
    assert again.json["result"] == {"unchanged": 1}
    whole = quire("ingest", folder, *PLAIN)
    assert (whole.code, "1  failed before and unchanged" in whole.out) == (1, True)
    assert "quire ingest --retry-failed SOURCE" in whole.out


def test_its_own_worker_serves_every_queue_that_a_kind_is_in(
    quire: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("QUIRE_ROUTES", "ingest.document=pages")
    ended = quire("ingest", folder / "a.txt", *PLAIN)
    assert ended.code == 0, ended
    assert "1  indexed" in ended.out


def test_a_failed_file_is_tried_again_with_a_worker_of_its_own(
    quire: Run, work: Callable[[], None], folder: Path
):
    submitted(quire, work, folder)
    [bad] = quire("documents", "--failed", "--json").json["items"]
    (folder / "empty.txt").write_text("not any more")
    ended = quire("job", "retry", 1, "--file", bad["id"], "--wait")
    assert ended.code == 0, ended
    assert f"document {bad['id']} of job 1 retried." in ended.out
    assert quire("job", "show", 1, "--json").json["files"] == {"success": 3}
    assert quire("job", "retry", 1, "--file", bad["id"]).code == 2


def test_the_children_of_a_worker_keep_the_limits_of_an_endpoint(
    quire: Run, folder: Path, endpoint: Server, monkeypatch: pytest.MonkeyPatch
):
    far = (*PLAIN, "--set", "embedder=openai:small")
    monkeypatch.setenv("QUIRE_EMBED_URL", endpoint.url)
    monkeypatch.setenv("QUIRE_EMBED_REQUESTS_PER_MINUTE", "6000")
    endpoint.script += [(429, {"Retry-After": "0.1"}, {})]
    ended = quire("ingest", folder / "a.txt", *far)
    assert (ended.code, ended.err.count("QUIRE_EMBED_URL")) == (0, 0), ended
    [pace] = folder.parent.glob("embed-*.ratelimit")
    before = pace.read_text()
    found = quire("search", "tide", "--mode", "vector", "--json").json
    assert [hit["name"] for hit in found["items"]] == ["a.txt"]
    assert pace.read_text() != before  # the query counts too


def test_an_embedder_without_its_endpoint_is_warned_of(quire: Run, folder: Path):
    missing = "no endpoint is set here. Set QUIRE_EMBED_URL"
    assert missing in quire("corpus", "create", "far", "--set", "embedder=openai:small").err
    assert missing in quire("corpus", "set", "far", "embedder=openai:large").err
    assert missing in quire("ingest", folder, "--set", "embedder=openai:small", "--dry-run").err
    assert missing not in quire("corpus", "set", "far", "embedder=none").err


def test_nothing_is_submitted_that_could_never_work(quire: Run, folder: Path):
    for arguments, reason in (
        (["nowhere"], "there is no such file or folder"),
        (["nowhere/*.pdf"], "there is no such file or folder"),
        (["ftp://host/x"], "unknown source type 'ftp'"),
        ([folder, "--set", "colour=red"], "'colour': unknown"),
        ([folder, "--set", "overlap"], "not KEY=VALUE"),
        ([folder, "--priority", 11], "priority: 11"),
    ):
        ended = quire("ingest", *arguments)
        assert ended.code == 2
        assert reason in ended.err
        assert ended.err.count("\n") == 1
    assert not (folder.parent / "quire.db").exists()


def test_sources_are_made_absolute(quire: Run, folder: Path):
    quire("ingest", "in", "in/*.txt", "https://example.test/x.pdf", "--no-wait")
    payload = quire("job", "show", 1, "--json").json["payload"]
    assert payload["sources"] == [str(folder), f"{folder}/*.txt", "https://example.test/x.pdf"]
    assert payload["options"] == {"include": [], "exclude": [], "hidden": False}
    assert (payload["corpus"], payload["force"], payload["settings"]) == (None, False, {})


def test_a_dry_run_tells_and_changes_nothing(
    quire_on_each: Run, work: Callable[[], None], folder: Path
):
    quire = quire_on_each
    first = quire("ingest", folder, "--dry-run")
    assert first.out.splitlines()[-1] == "3 new. Nothing was fetched or stored."
    assert not (folder.parent / "quire.db").exists()
    submitted(quire, work, folder)
    (folder / "a.txt").write_text("Other words.")
    (folder / "c.txt").write_text("One more.")
    (folder / "sub" / "b.pdf").unlink()
    second = quire("ingest", folder, *PLAIN, "--dry-run", "--json").json
    assert second["counts"] == {"changed": 1, "new": 1, "failed": 1, "gone": 1}
    [gone] = [each for each in second["items"] if each["verdict"] == "gone"]
    assert gone["name"] == "b.pdf"
    assert len(quire("jobs", "--json").json["items"]) == 1
    assert quire("ingest", folder, "--include", "*.pdf", "--dry-run").out.startswith("nothing.")


def test_ctrl_c_stops_the_job_and_says_how_to_go_on(start: Start, quire: Run, home: Path):
    place = home / "many"
    place.mkdir()
    for number in range(250):
        (place / f"{number:03}.txt").write_text(f"text number {number}")
    with start("ingest", str(place), *PLAIN) as process:
        until(lambda: _files(quire).get("success", 0) > 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "job 1 stopped. Finished files are kept." in err
    assert "quire job resume 1 --wait" in err
    job = quire("job", "show", 1, "--json").json
    assert job["state"] == "stopped"
    assert job["files"]["pending"] > 0
    assert quire("status", "--json").json["workers"] == []
    held = quire("ingest", place / "249.txt", *PLAIN, "--wait")
    assert "1  already queued" in held.out
    assert "quire job explain 1" in held.out
    assert quire("job", "resume", 1, "--wait").code == 0
    assert _items(quire, "jobs")[-1]["files"] == {"success": 250}
    assert {each["generation"] for each in _items(quire, "documents")} == {1}


def test_its_own_worker_ends_with_it_even_by_kill(start: Start, quire: Run, folder: Path):
    with start("ingest", str(folder), *PLAIN) as process:
        until(lambda: _alive(quire))
        process.kill()
        process.communicate(timeout=60)
        until(lambda: not _alive(quire))


def test_a_job_that_another_worker_runs_goes_on_after_ctrl_c(
    start: Start, quire: Run, folder: Path
):
    with start("worker"):
        until(lambda: _alive(quire))
        quire("pause", "ingest")
        with start("ingest", str(folder), *PLAIN) as process:
            until(lambda: quire("jobs", "--json").json["items"])
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert "job 1 keeps running. Follow it with: quire job show 1 --watch" in err
    assert quire("job", "show", 1, "--json").json["state"] == "pending"


def test_on_a_server_without_a_worker_it_says_so_and_goes_on_when_one_comes(
    start: Start, quire: Run, folder: Path, pg_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("QUIRE_DATABASE_URL", pg_url)
    with start("ingest", str(folder / "a.txt"), *PLAIN) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == NOBODY
        with start("worker"):
            out, err = process.communicate(timeout=60)
        assert (process.returncode, NOBODY in err) == (0, False), err
        assert "1  indexed" in out
    assert quire("search", "tide", "--json").json["items"][0]["name"] == "a.txt"


def test_who_waits_is_told_when_the_last_worker_goes(start: Start, quire: Run, folder: Path):
    with start("worker") as worker:
        until(lambda: _alive(quire))
        quire("pause", "ingest")
        with start("ingest", str(folder), *PLAIN) as process:
            assert process.stderr is not None
            # It follows the job, so it has seen the worker: else it would start one of its own.
            assert process.stderr.readline() == "waiting for a worker\n"
            worker.send_signal(signal.SIGTERM)
            assert NOBODY in iter(process.stderr.readline, "")


def test_a_run_without_changes_starts_no_worker(
    quire: Run, folder: Path, home: Path, work: Callable[[], None]
):
    (folder / "empty.txt").unlink()
    quire("ingest", folder, *PLAIN, "--no-wait")
    work()
    again = quire("ingest", folder, *PLAIN)
    assert again.code == 0
    assert again.out.startswith("job 2 completed")
    assert "2  unchanged since they were indexed" in again.out
    (folder / "a.txt").unlink()
    gone = quire("ingest", folder, *PLAIN, "--json")
    assert (gone.code, gone.json["result"]) == (0, {"gone": 1, "unchanged": 1})
    assert not (home / "ingest.log").exists()  # where a worker of the command writes
    assert quire("doctor").code == 0
    (folder / "c.txt").write_text("New.")
    assert quire("ingest", folder, *PLAIN, "--json").json["result"]["new"] == 1
    assert (home / "ingest.log").exists()


def test_a_watched_folder_gives_what_has_settled(start: Start, quire: Run, folder: Path):
    (folder / "empty.txt").unlink()
    with start("ingest", str(folder), *PLAIN, "--watch", code=IMPATIENT) as process:
        until(lambda: _documents(quire) == {"a.txt": "success", "b.pdf": "success"})
        (folder / "late.txt").write_text("It came later.")
        until(lambda: _documents(quire).get("late.txt") == "success")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Watching." in out
    assert "1 file from" in out


def _files(quire: Run) -> dict[str, int]:
    items = _items(quire, "jobs")
    return items[0]["files"] if items else {}


def _documents(quire: Run) -> dict[str, str]:
    return {each["name"]: each["state"] for each in _items(quire, "documents")}


def _items(quire: Run, what: str) -> list[Any]:
    ended = quire(what, "--json")
    return list(ended.json["items"]) if ended.code == 0 else []


def _alive(quire: Run) -> bool:
    ended = quire("status", "--json")
    return ended.code == 0 and any(each["alive"] for each in ended.json["workers"])


# ---------------------------------------------------------------------- documents


def test_documents_are_listed_shown_and_explained(
    quire_on_each: Run, work: Callable[[], None], folder: Path
):
    quire = quire_on_each
    submitted(quire, work, folder, "--corpus", "tales")
    head, *lines = quire("documents").out.splitlines()
    assert head.split() == ["ID", "NAME", "TYPE", "STATE", "PAGES", "CHUNKS", "CORPORA", "DETAIL"]
    assert [line.split()[1:3] for line in lines] == [
        ["b.pdf", "pdf"],
        ["empty.txt", "unknown"],
        ["a.txt", "text"],
    ]
    assert [d["name"] for d in quire("documents", "--state", "failed", "--json").json["items"]] == [
        "empty.txt"
    ]
    page = quire("documents", "--corpus", "tales", "--limit", 2, "--json").json
    assert page["next"] == "2"
    assert quire("documents", "--source", folder, "--json").json["next"] is None
    shown = quire("document", "show", 3).out
    assert "document 3  b.pdf  success" in shown
    assert "1 (generation 1 is searchable)" in shown
    assert "First indexed as version 1." in quire("document", "explain", 3).out
    assert "quire job retry 1 --file 2" in quire("document", "explain", 2).out
    assert "2 success, 1 failed" in quire("status").out
    job = quire("job", "show", 1).out
    assert "job 1  ingest  completed with errors" in job
    assert "3 of 3 files done, 1 failed" in job
    assert quire("job", "explain", 1).out.startswith("job 1: completed with errors.")
    assert quire("job", "show", 1, "--wait").code == 1
    assert "1 of 3 files failed; the last: empty.txt: is empty (0 bytes)." in job
    assert "Traceback" not in job


def test_a_document_is_saved_read_and_its_words_exported(
    quire_on_each: Run, work: Callable[[], None], folder: Path, home: Path
):
    quire = quire_on_each
    submitted(quire, work, folder)
    assert quire("document", "save", 3, home / "copy.pdf").code == 0
    assert (home / "copy.pdf").read_bytes() == (folder / "sub" / "b.pdf").read_bytes()
    again = quire("document", "save", 3, home / "copy.pdf")
    assert (again.code, "already exists" in again.err) == (2, True)
    assert quire("document", "save", 3, home / "copy.pdf", "--force").code == 0
    nowhere = quire("document", "save", 3, home / "nodir" / "x.pdf")
    assert (nowhere.code, "no such folder" in nowhere.err) == (2, True)
    read = quire("document", "read", 3, "--page", 2, "--text").out
    assert "page 2: 4 words (text)" in read
    assert "stand on the quay" in read
    assert quire("document", "read", 3, "--page", 9).code == 2
    pages = quire("document", "pages", 3, "--json").json["items"]
    assert [each["words"] for each in pages] == [3, 4]
    plain = quire("document", "tokens", 3).json
    assert plain[0]["tokens"][0]["text"] == "Barrels"
    assert quire("document", "tokens", 3, "--version", 2).json["v"] == 2
    assert quire("document", "tokens", 3, "--version", 3).code == 2


def test_a_document_is_indexed_again_and_deleted(
    quire_on_each: Run, work: Callable[[], None], folder: Path
):
    quire = quire_on_each
    submitted(quire, work, folder)
    assert "job 2 reindexes" in quire("document", "reindex", 3).out
    refused = quire("document", "reindex", 3)
    assert (refused.code, "--force" in refused.err) == (2, True)
    deleted = quire("document", "delete", 3)
    assert (deleted.code, "quire job cancel 2" in deleted.err) == (2, True)
    made = quire("document", "reindex", 3, "--force", "--json").json
    # The third; PostgreSQL gives the id of a try that was refused to nobody else.
    latest = [job["id"] for job in quire("jobs", "--json").json["items"]]
    assert (made, len(latest)) == ({"id": latest[0]}, 3)
    work()
    one = quire("document", "show", 3, "--json").json
    assert (one["generation"], one["live_generation"], one["state"]) == (3, 3, "success")
    assert one["reused"]["whole"] is True
    assert quire("document", "delete", 3).out == "document 3 deleted.\n"
    for arguments in (["show", 3], ["explain", 3], ["delete", 3], ["show", 10**30]):
        ended = quire("document", *arguments)
        assert (ended.code, "no such document" in ended.err) == (2, True)
    assert quire("document", "show", "x").code == 2


def test_an_empty_list_says_how_to_begin(quire_on_each: Run):
    quire = quire_on_each
    quire("migrate")
    assert quire("documents").out == "No documents yet. Try: quire ingest FOLDER\n"
    assert quire("documents", "--failed").out == "No document matches.\n"
    assert quire("documents", "--corpus", "x").code == 2
    assert quire("documents", "--state", "lost").code == 2


# ---------------------------------------------------------------------- corpora and sources


def test_a_corpus_from_creation_to_deletion(
    quire_on_each: Run, work: Callable[[], None], folder: Path
):
    quire = quire_on_each
    assert quire("corpus", "create", "tales", "--set", "chunk_tokens=200").code == 0
    assert quire("corpus", "create", "tales").code == 2
    assert "--corpus 'a/b c'\n" in quire("corpus", "create", "a/b c").out
    assert "quire corpus set 'a/b c' KEY=VALUE" in quire("corpus", "create", "a/b c").err
    assert quire("corpus", "delete", "a/b c").code == 0
    submitted(quire, work, folder / "a.txt", "--corpus", "tales")
    shown = quire("corpus", "show", "tales").out
    assert "corpus tales: 1 document" in shown
    assert "Maximum tokens per chunk." in shown
    said = quire("corpus", "set", "tales", "overlap=16", "chunk_tokens=200").out
    assert said.startswith("corpus tales: overlap=16.")
    assert "at the next `quire ingest`" in said
    assert "no page is parsed again" in said
    assert "Nothing was changed" in quire("corpus", "set", "tales", "overlap=16").out
    assert quire("corpus", "set", "tales", "overlap=5000").code == 2
    [one] = quire("corpus", "list", "--json").json["items"]
    assert one["settings"] == {"chunk_tokens": 200, "overlap": 16}
    assert "1 document kept." in quire("corpus", "delete", "tales").out
    assert "No corpora yet" in quire("corpus", "list").out


def test_doctor_says_whether_a_source_can_be_read(quire: Run, folder: Path):
    well = quire("doctor", "--source", folder)
    assert (well.code, "can be listed; files found: 3." in well.out) == (0, True)
    away = quire("doctor", "--source", "http://127.0.0.1:9/x.pdf", "--json")
    assert (away.code, away.json["is_readable"]) == (1, False)
    assert quire("doctor", "--source", "nowhere").code == 2
    assert not (folder.parent / "quire.db").exists()


def test_help_loads_nothing_heavy(home: Path):
    heavy = ("httpx", "numpy", "pypdfium2", "sqlalchemy", "rich", "kreuzberg", "wordllama")
    code = (
        "import sys; sys.argv = ['quire', 'ingest', '--help']\n"
        "from quire.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"import json; print(json.dumps([n for n in {heavy!r} if n in sys.modules]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=home, check=True
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == []
