"""What a person is told while work cannot go on: by pages, API and commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire import testing
from quire.model.contracts import in_queues
from quire.model.records import WorkerRow
from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.queue import doorbells, kinds, workers
from tests.web.conftest import Front

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]

BROKER = "redis://broker:6379/0"
WORKER = WorkerRow(
    id="w-served", host="far", pid=1, boot_id="b", pid_start="1", lock_path="/nowhere",
    queues="default", concurrency=2, state="running", started_at=0.0, heartbeat_at=0.0,
    stopped_at=None, broker=BROKER,
)  # fmt: skip
TOLD = f"The broker at {BROKER} has not answered since"
INSTEAD = "workers poll the database"


def serve(db: Database, error: str | None) -> None:
    """A live worker whose broker answered a moment ago, or did not."""

    def act(conn: Any, now: Any) -> None:
        workers.register(conn, WORKER, ["noop"], now=now)
        doorbells.record_broker(conn, BROKER, ["default"], now=now, error=error)

    db.write(act)


def test_pages_and_api_say_that_the_broker_does_not_answer_and_what_happens(each_front: Front):
    visitor = each_front.visitor()
    serve(each_front.shelf.db, None)
    assert f"notified of new tasks by the broker at {BROKER}." in visitor.get("/workers").text
    assert BROKER not in visitor.get("/").text
    assert visitor.client.get("/api/status").json()["broker"]["problem"] is None

    serve(each_front.shelf.db, "TimeoutError: timed out")
    for place in ("/", "/workers"):
        text = visitor.get(place).text
        assert TOLD in text
        assert "(TimeoutError: timed out)" in text
        assert INSTEAD in text
    told = visitor.client.get("/api/status").json()["broker"]
    assert told["problem"].startswith(TOLD)
    assert told["error"] == "TimeoutError: timed out"


def test_pages_and_api_say_that_the_bucket_was_away_until_tasks_get_further(each_front: Front):
    visitor, shelf = each_front.visitor(), each_front.shelf
    shelf.put("a.txt", "words")
    shelf.submit()
    away = "s3://files: putting a file, the store does not answer (503)."
    [lease] = testing._claim(shelf.app, "default")
    shelf.end(lease, "outage", error=away)
    for place in ("/", "/workers"):
        assert away in visitor.get(place).text
    [told] = visitor.client.get("/api/status").json()["problems"]
    assert away in told and "does not count as an attempt" in told
    stranger = each_front.visitor(tenant="other")
    assert away not in stranger.get("/").text
    assert stranger.client.get("/api/status").json()["problems"] == []
    shelf.drain()
    assert away not in visitor.get("/").text


def test_pages_and_api_name_a_queue_with_work_that_no_worker_serves(each_front: Front):
    visitor, shelf = each_front.visitor(), each_front.shelf
    serve(shelf.db, None)
    moved = in_queues(shelf.app.registry.kinds.values(), {"ingest": "slow"})
    shelf.db.write(lambda conn, now: kinds.announce(conn, moved))
    told = "Queue 'slow' has ready tasks, but no running worker serves it. They serve default."
    shelf.submit()
    for place in ("/", "/workers"):
        assert told in visitor.get(place).text
        assert told not in each_front.visitor(tenant="other").get(place).text


def test_commands_say_so_too(quire: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    assert quire("migrate").code == 0
    db = open_database(f"sqlite:///{home / 'quire.db'}")
    serve(db, "TimeoutError: timed out")
    db.close()
    monkeypatch.setenv("COLUMNS", "300")
    status = quire("status")
    assert TOLD in status.out, status.err
    assert TOLD in quire("doctor").out
    assert quire("status", "--json").json["broker"]["problem"].startswith(TOLD)
