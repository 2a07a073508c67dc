"""Documents embedded by an endpoint, from the file to the search, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from quire.clock import SystemClock
from quire.control.search import search
from quire.ingest import resources
from quire.model.pipeline import Pipeline
from quire.text.embed import embedder
from tests.embedding import Server, serving, vectors
from tests.integration.processes import Site
from tests.shelf import FUSED, Shelf, open_shelf
from tests.waiting import stays, until

FAR = {**FUSED, "embedder": "openai:small"}
LIMITS: dict[str, Any] = {"embed_requests_per_minute": 6_000.0, "embed_tokens_per_minute": 6e6}


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Iterator[Shelf]:
    for one in open_shelf(request, tmp_path):
        settings = one.app.settings
        one.app.settings = replace(settings, embed_url=server.url, embed_api_key="k", **LIMITS)
        yield one


def found(shelf: Shelf, query: str, mode: str = "vector") -> dict[str, Any]:
    """Search as a command or the API does."""
    settings = asdict(shelf.app.settings)

    def opened(name: str) -> embedder.Embedder:
        return resources.embedder_of(settings, Pipeline(embedder=name))

    return search(shelf.db, "default", query, mode=mode, embedder=opened)


def forget_opened() -> None:
    """Do as a process does that has just started."""
    embedder._opened.cache_clear()


def test_an_endpoint_that_is_overloaded_embeds_documents_and_the_query(
    shelf: Shelf, server: Server
):
    shelf.put("a.txt", "tide")
    shelf.put("b.txt", "The harbour master writes the tides into a ledger.")
    server.script += [(429, {"Retry-After": "0.05"}, {"error": "slow down"})]
    job = shelf.ingest(settings=FAR)
    assert shelf.job(job).state == "completed"
    assert [(row.name, row.dimensions) for row in shelf.rows("models")] == [("openai:small", 3)]
    assert shelf.ledger("b.txt")["vectors_made"] == 1
    # Vectors of the double are told apart by the length of their text.
    answer = found(shelf, "moon")
    assert (answer["mode"], answer.get("note")) == ("vector", None)
    assert answer["items"][0]["name"] == "a.txt"
    assert server.asked[-1]["input"] == ["moon"]
    assert {each["Authorization"] for each in server.headers} == {"Bearer k"}
    assert [path.suffix for path in shelf.app.settings.home.glob("embed-*")] == [".ratelimit"]


def test_a_task_that_waits_for_the_limit_says_so_once_and_a_query_does_not_wait(
    shelf: Shelf, server: Server
):
    shelf.put("a.txt", "tide")
    shelf.ingest(settings=FAR)
    [pace] = shelf.app.settings.home.glob("embed-*.ratelimit")
    shelf.put("b.txt", "harbour")
    owe(pace, requests=400)  # of 6,000 a minute: four seconds, longer than reading the file takes
    job = shelf.ingest(settings=FAR)
    assert shelf.job(job).state == "completed"
    told = [row.detail for row in shelf.rows("events") if row.name == "progress"]
    assert len([each for each in told if "waits for the rate limit" in each]) == 1
    owe(pace, requests=1_900)  # of 6,000 a minute: nineteen seconds
    assert found(shelf, "moon").get("note") is None
    shelf.app.settings = replace(shelf.app.settings, embed_requests_per_minute=1.0)
    assert "longer than a query may" in found(shelf, "moon")["note"]


def test_a_job_that_waits_for_the_limit_is_stopped_and_no_child_is_killed_for_it(
    embedded: Site, server: Server, tmp_path: Path
):
    worker = embedded.worker(embed_url=server.url, embed_requests_per_minute=1)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"tide {name}")
    job = embedded.submit("ingest", sources=[str(tmp_path / "*.txt")], settings=FAR)

    def both_wait() -> bool:
        # A child that still reads its file may well be killed.
        running = embedded.rows("tasks", state="running")
        return ["waits for the rate" in str(row.message) for row in running] == [True, True]

    until(both_wait, what=embedded.logs)
    children = psutil.Process(worker.pid).children()
    embedded.stop(job)
    until(lambda: not embedded.rows("tasks", state="running"), what=embedded.logs)
    assert embedded.job(job).state == "stopped"
    assert stays(lambda: all(child.is_running() for child in children), during=1.0)
    assert len(server.asked) == 2  # what a limit of one has in store, and one on credit


def owe(pace: Path, requests: int) -> None:
    """Write down that others have sent so many requests more than there were."""
    boot, _, _, *tokens = pace.read_text().split()
    now = SystemClock().now().lease
    pace.write_text(" ".join([boot, str(-requests), str(now), *tokens]))


def test_dimensions_are_asked_for_once_and_then_those_of_the_model_row(
    shelf: Shelf, server: Server
):
    shelf.put("a.txt", "tide")
    shelf.ingest(settings=FAR)
    assert [asked["input"] for asked in server.asked] == [["dimensions"], ["tide"]]
    forget_opened()
    shelf.put("b.txt", "harbour")
    shelf.ingest(settings=FAR)
    assert [asked["input"] for asked in server.asked[2:]] == [["harbour"]]
    forget_opened()
    shelf.put("c.txt", "ledger")
    server.script += [(200, {}, vectors(["ledger"], 4))]
    shelf.ingest(settings=FAR)
    assert "expected 3, got 4" in shelf.document("c.txt").error
    forget_opened()
    server.script += [(200, {}, vectors(["moon"], 4))]
    assert "returns 4 dimensions" in found(shelf, "moon", "hybrid")["note"]


def test_without_an_endpoint_a_document_fails_with_what_to_set(shelf: Shelf):
    shelf.app.settings = replace(shelf.app.settings, embed_url="")
    shelf.put("a.txt", "tide")
    shelf.ingest(settings=FAR)
    assert "Set QUIRE_EMBED_URL" in shelf.document("a.txt").error
