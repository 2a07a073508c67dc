"""The Python client, and commands that use a server instead of the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire import client, errors
from quire.app import App
from quire.client import Client
from quire.control import access
from quire.settings import load
from tests.api.serving import Served, served

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]


@pytest.fixture
def at(home: Path) -> Iterator[Served]:
    with served(home=home) as one:
        yield one


@pytest.fixture
def api(at: Served) -> Iterator[Client]:
    with Client(at.url) as one:
        yield one


def test_every_problem_becomes_the_error_it_was():
    assert list(client.BY_TITLE.values()) == list(errors.STATUS)  # no title stands for two


def test_jobs_are_submitted_shown_listed_and_changed(api: Client):
    ids = [api.submit("errand.long", {"seconds": n}, priority=7) for n in range(3)]
    one = api.job(ids[0])
    assert (one["kind"], one["payload"], one["priority"]) == ("errand.long", {"seconds": 0}, 7)
    assert api.stop(ids[0], why="not now")["state"] == "stopped"
    assert api.resume(ids[0])["state"] == "pending"
    assert api.reprioritise(ids[0], 2)["priority"] == 2
    assert api.cancel(ids[1])["state"] == "cancelled"
    assert api.retry(ids[1])["state"] == "pending"
    assert "text" in api.explain(ids[0])
    assert [job["id"] for job in api.jobs(kind="errand.long")] == ids[::-1]
    assert [job["id"] for job in api.jobs(state="stopped")] == []
    api.cancel(ids[2])
    api.delete(ids[2])
    with pytest.raises(errors.NotFound, match="no such job"):
        api.job(ids[2])
    assert api.status()["jobs"]["pending"] == 2


def test_all_pages_of_a_list_are_gone_through(
    api: Client, at: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client, "PAGE", 2)
    ids = [at.app.submit("noop") for _ in range(5)]
    assert [job["id"] for job in api.jobs()] == ids[::-1]
    assert api.page_of_jobs(limit=2)["next"] == str(ids[3])


def test_the_same_key_makes_a_job_once(api: Client):
    assert api.submit("errand", key="k") == api.submit("errand", key="k")
    with pytest.raises(errors.Conflict):
        api.submit("errand", {"other": 1}, key="k")
    assert api.submit("errand") != api.submit("errand")


def test_errors_are_those_of_quire(api: Client, at: Served):
    with pytest.raises(errors.UnknownKind, match="Known kinds"):
        api.submit("never heard of")
    with pytest.raises(errors.BadInput):
        api.submit("errand", priority=99)
    with pytest.raises(errors.NotFound):
        api.document(1)
    job_id = api.submit("errand")
    with pytest.raises(errors.Conflict, match="Stop it first"):
        api.delete(job_id)


def test_a_server_that_is_not_there_is_transient(home: Path):
    with Client("http://127.0.0.1:9") as api, pytest.raises(errors.Transient, match="quire up"):
        api.status()


@pytest.mark.parametrize("url", ["http://[nowhere", "localhost:8750", "ftp://x", "http://"])
def test_an_address_that_is_none_is_said_so(url: str):
    with pytest.raises(errors.BadInput, match="not an address"):
        Client(url)


def test_a_token_is_needed_and_its_scope_counts(home: Path):
    with served(home=home, api_auth=True) as at:
        access.ensure_admin(at.app.caller)
        token = access.create_token(at.app.caller, "t", ["read"])["token"]
        with Client(at.url) as api, pytest.raises(errors.NotSignedIn):
            api.status()
        with Client(at.url, "quire_wrong") as api, pytest.raises(errors.NotSignedIn):
            api.status()
        with Client(at.url, token) as api:
            assert api.status()["jobs"]
            with pytest.raises(errors.Forbidden):
                api.submit("errand")


def test_events_are_followed_over_a_restart_of_the_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.05)
    with served(home=home) as at:
        port = int(at.url.rpartition(":")[2])
        with Client(at.url) as api:
            events = api.events()
            got: list[str] = []
            first = threading.Thread(target=lambda: got.append(next(events)["name"]))
            first.start()
            while first.is_alive():
                at.happen("before")
                first.join(0.05)
            at.stop()
            at.happen("while it was away")
            again = App(load({}, home=home, api_auth=False, api_requests_per_minute=0))
            second = Served(again, port).start()
            names = [next(events)["name"] for _ in range(1)]
            while names[-1] == "before":
                names.append(next(events)["name"])
            assert names[-1] == "while it was away"
            events.close()  # type: ignore[attr-defined]
            second.stop()
            again.close()


def test_files_are_sent_and_found(api: Client, at: Served, tmp_path: Path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("The quick brown fox jumps over the lazy dog.")
    two.write_text("Pack my box with five dozen liquor jugs.")
    alone = api.upload(one)
    both = api.upload(one, two, corpus="animals")
    assert [each["name"] for each in both["documents"]] == ["one.txt", "two.txt"]
    _work(at.app, [alone["id"], both["id"]])
    found = api.search("liquor jugs", mode="text", corpus="animals")
    assert [hit["name"] for hit in found["items"]] == ["two.txt"]
    assert {each["name"] for each in api.documents()} == {"one.txt", "two.txt"}
    document_id = found["items"][0]["document_id"]
    assert api.document(document_id)["state"] == "success"
    with pytest.raises(errors.BadInput, match="Nothing was sent"):
        api.upload(tmp_path / "missing.txt")


@pytest.fixture
def remote(at: Served, quire: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Commands in a home without a database, with a server."""
    monkeypatch.setenv("QUIRE_URL", at.url)
    monkeypatch.setenv("QUIRE_HOME", str(tmp_path / "elsewhere"))
    return quire


def test_commands_use_the_server(remote: Run, at: Served, tmp_path: Path):
    [job_id] = [remote("submit", "errand.long", "--arg", "seconds=1", "--json").json["id"]]
    assert at.app.caller.user == "ada"
    assert remote("submit", "errand", "--count", "2", "--json").json == {
        "ids": [job_id + 1, job_id + 2]
    }
    assert remote("jobs", "--json").json["items"][-1]["id"] == job_id
    assert remote("jobs", "--state", "stopped", "--json").json["items"] == []
    assert f"job {job_id}" in remote("job", "show", job_id).out
    assert "stopped" in remote("job", "stop", job_id, "--why", "later").out
    assert remote("job", "show", job_id, "--json").json["error"] == "later"
    assert "resumed" in remote("job", "resume", job_id).out
    assert "cancelled" in remote("job", "cancel", job_id).out
    assert "retried" in remote("job", "retry", job_id).out
    assert "now has priority 2" in remote("job", "priority", job_id, 2).out
    assert remote("job", "show", job_id, "--json").json["priority"] == 2
    assert f"job {job_id}: pending" in remote("job", "explain", job_id).out
    assert remote("status", "--json").json["jobs"]["pending"] == 3
    assert at.url in remote("status").out
    missing = remote("job", "show", 999)
    assert missing.code == 2
    assert "no such job" in missing.err
    assert not (tmp_path / "elsewhere").exists()


def test_files_are_ingested_by_the_server(remote: Run, at: Served, tmp_path: Path):
    folder = tmp_path / "letters"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.txt").write_text(f"Letter number {n} about zebras.")
    (folder / "skip.log").write_text("nothing")
    sent = remote("ingest", folder, "--include", "*.txt", "--no-wait", "--json").json
    assert sent["sent"] == 3
    _work(at.app, sent["ids"])
    assert len(remote("documents", "--json").json["items"]) == 3
    found = remote("search", "zebras", "--mode", "text", "--json").json["items"]
    assert len(found) == 3
    shown = remote("document", "show", found[0]["document_id"])
    assert "success" in shown.out
    for source in ("https://example.com/a.pdf", "s3://bucket/x"):
        refused = remote("ingest", source)
        assert refused.code == 2
        assert "only local files can be uploaded" in refused.err
    assert remote("ingest", folder, "--force").code == 2


@pytest.mark.parametrize("command", [["doctor"], ["corpus", "list"], ["logs", "1"], ["pause", "x"]])
def test_other_commands_say_that_they_need_the_database(remote: Run, command: list[str]):
    ended = remote(*command)
    assert ended.code == 2
    assert "needs the database" in ended.err


def test_a_server_acts_for_the_user_of_the_token_alone(remote: Run):
    ended = remote("submit", "errand", "--user", "bob")
    assert ended.code == 2
    assert "QUIRE_TOKEN" in ended.err


def _work(app: App, job_ids: list[int]) -> None:
    """Run a worker until jobs are over."""
    from tests.integration.processes import Site

    site = Site(app.settings.home)
    try:
        site.worker(plugins="")
        site.until_over(job_ids)
    finally:
        site.close()
