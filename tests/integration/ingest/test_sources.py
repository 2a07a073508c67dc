"""Jobs of several sources: one that cannot be listed is told of, and holds up no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import pytest

from quire.fetch import network
from quire.fetch.items import SourceOptions
from quire.store.reports import jobs as job_reports
from tests.servers import Asked, FileServer, answer
from tests.shelf import Shelf, open_shelf

ORDERS = [("missing", "x", "y"), ("x", "missing", "y"), ("x", "y", "missing")]


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    for made in open_shelf(request, tmp_path, fetch_allow_private_addresses=True):
        made.put("x/a.txt", "herring words")
        made.put("y/b.txt", "lantern words")
        yield made


class MoodyServer(FileServer):
    """A web server whose faults are for the question what is there, too."""

    def is_for_bytes(self, asked: Asked) -> bool:
        return True


@pytest.fixture
def web() -> Iterator[MoodyServer]:
    with MoodyServer() as server:
        yield server


def told(shelf: Shelf, job_id: int) -> dict[str, Any]:
    """The job as people and programs see it."""
    with shelf.db.read() as conn:
        job = job_reports.job(conn, shelf.app.settings.tenant, job_id, now=0.0)
    assert job is not None
    return job


def places(shelf: Shelf, names: tuple[str, ...]) -> list[str]:
    return [str(shelf.folder / name) for name in names]


def listings(shelf: Shelf) -> list[str]:
    """The places from which files were queued, in that order."""
    return [row.uri.rpartition("/")[2] for row in shelf.rows("documents")]


# --------------------------------------------------------------------- sources that are not there


@pytest.mark.parametrize("with_failure", [False, True], ids=["good", "failing"])
@pytest.mark.parametrize("names", ORDERS, ids=["first", "middle", "last"])
def test_a_source_that_is_missing_is_told_of_and_the_others_are_taken_in(
    shelf: Shelf, names: tuple[str, ...], with_failure: bool
):
    if with_failure:
        shelf.put("y/c.pdf", b"%PDF-1.4 junk")
    job = told(shelf, shelf.ingest(*places(shelf, names)))
    missing = str(shelf.folder / "missing")
    assert shelf.is_found("herring words")
    assert shelf.is_found("lantern words")
    assert job["state"] == "failed"
    reason = f"{missing}: there is no such file or folder. Check the path."
    assert job["result"]["unlisted"] == [{"source": missing, "error": reason}]
    assert job["error"].startswith(f"1 of 3 sources could not be listed: {reason}")
    assert ("1 of 3 files failed; the last: c.pdf: " in job["error"]) == with_failure
    assert (job["progress"], job["is_listing"]) == (1.0, False)
    [task] = [row for row in shelf.rows("tasks") if row.kind == "ingest"]
    assert (task.state, task.attempt) == ("failed", 1)  # what will fail again is not tried again


def test_several_missing_sources_are_counted_and_the_first_of_them_named(shelf: Shelf):
    names = ("m1", "x", "m2", "m3", "m4")
    job = told(shelf, shelf.ingest(*places(shelf, names)))
    assert job["error"].startswith("4 of 5 sources could not be listed: ")
    assert job["error"].endswith("; and 1 more.")
    assert all(f"/{name}: there is no such file" in job["error"] for name in ("m1", "m2", "m3"))
    assert len(job["result"]["unlisted"]) == 4
    assert shelf.is_found("herring words")


def test_the_only_source_of_a_job_is_told_of_without_a_count(shelf: Shelf):
    missing = str(shelf.folder / "missing")
    job = told(shelf, shelf.ingest(missing))
    assert job["error"] == f"{missing}: there is no such file or folder. Check the path."
    assert job["files"] == {}


def test_a_retry_lists_the_source_that_failed_and_no_other(shelf: Shelf):
    job = shelf.ingest(*places(shelf, ("x", "missing", "y")))
    shelf.put("missing/m.txt", "mooring words")
    shelf.put("x/late.txt", "late words")  # a new listing of x would find it
    shelf.retry(job)
    shelf.drain()
    assert listings(shelf) == ["a.txt", "b.txt", "m.txt"]
    ended = told(shelf, job)
    assert (ended["state"], ended["error"], ended["progress"]) == ("completed", None, 1.0)
    assert ended["result"] == {"new": 3}
    assert shelf.is_found("mooring words")


def test_a_retry_that_finds_the_source_missing_again_says_so_again(shelf: Shelf):
    job = shelf.ingest(*places(shelf, ("x", "missing")))
    first = told(shelf, job)["error"]
    shelf.retry(job)
    shelf.drain()
    assert told(shelf, job)["error"] == first
    assert told(shelf, job)["state"] == "failed"


def test_documents_of_a_source_that_cannot_be_listed_are_not_marked_as_gone(shelf: Shelf):
    sources = places(shelf, ("x", "y"))
    shelf.ingest(*sources)
    (shelf.folder / "y").rename(shelf.folder / "away")
    job = told(shelf, shelf.ingest(*sources))
    assert job["error"].startswith("1 of 2 sources could not be listed: ")
    assert {row.gone_at for row in shelf.rows("documents")} == {None}
    assert shelf.is_found("lantern words")


# --------------------------------------------------------------------- sources that answer later


def test_a_source_that_answers_later_is_tried_again_while_the_others_go_on(
    shelf: Shelf, web: MoodyServer
):
    url = web.put("/late.txt", b"mooring words", content_type="text/plain")
    web.faults = [answer(429, retry_after="200")]
    job = shelf.submit(*places(shelf, ("x",)), url, *places(shelf, ("missing", "y")))
    shelf.step()
    assert shelf.rows("tasks", kind="ingest")[0].state == "blocked"
    between = told(shelf, job)
    assert "2 of 4 sources could not be listed" in between["error"]
    assert (between["state"], between["is_listing"]) == ("running", True)
    shelf.step(2)
    assert shelf.is_found("herring words")
    assert shelf.is_found("lantern words")
    # What is refused for good is not asked for again with what may answer later.
    shelf.put("missing/m.txt", "too late")
    shelf.put("x/late.txt", "too late")
    shelf.drain()
    ended = told(shelf, job)
    assert listings(shelf) == ["a.txt", "b.txt", "late.txt"]
    assert shelf.is_found("mooring words")
    assert [each["source"] for each in ended["result"]["unlisted"]] == [
        str(shelf.folder / "missing")
    ]
    assert ended["error"].startswith("1 of 4 sources could not be listed: ")
    assert len(shelf.rows("attempts", task_id=shelf.rows("tasks", kind="ingest")[0].id)) == 2


def test_a_source_that_never_answers_is_given_up_after_the_tries_of_the_task(
    shelf: Shelf, web: MoodyServer
):
    url = web.put("/never.txt", b"mooring words")
    web.always = answer(503, retry_after="200")
    job = shelf.ingest(url, *places(shelf, ("x",)))
    shelf.drain()
    ended = told(shelf, job)
    [task] = shelf.rows("tasks", kind="ingest")
    assert (task.state, task.attempt) == ("failed", task.max_attempts)
    assert ended["state"] == "failed"
    assert "1 of 2 sources could not be listed: " in ended["error"]
    assert "HTTP 503 from the server" in ended["error"]
    web.always = None
    shelf.retry(job)
    shelf.drain()
    assert told(shelf, job)["state"] == "completed"
    assert shelf.is_found("mooring words")


def test_the_secret_of_a_url_is_not_told_in_the_error(shelf: Shelf, web: MoodyServer):
    secret = f"{web.url}/none.pdf?signature=hush"
    job = told(shelf, shelf.ingest(secret, *places(shelf, ("x",))))
    assert f"{web.url}/none.pdf" in job["error"]
    assert "hush" not in job["error"]


def test_an_unknown_host_is_given_up_at_once_and_a_silent_name_server_is_not(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
):
    real, codes = socket.getaddrinfo, [socket.EAI_NONAME, socket.EAI_AGAIN]

    def resolve(host: Any, *args: Any, **more: Any) -> Any:
        if host == "misspelt.example":
            raise socket.gaierror(codes[0], "no")
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    job = told(shelf, shelf.ingest("https://misspelt.example/a.pdf"))
    [task] = [row for row in shelf.rows("tasks") if row.job_id == job["id"]]
    assert (job["state"], task.attempt) == ("failed", 1)
    assert "misspelt.example: there is no such host" in job["error"]
    del codes[0]
    with pytest.raises(httpcore.ConnectError):  # which is retried
        network.resolve("misspelt.example", 443, SourceOptions())
