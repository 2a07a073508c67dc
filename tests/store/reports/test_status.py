"""`quire status` reads an embedded database without SQLAlchemy: the same answer, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.app import App
from quire.clock import FakeClock, Instant
from quire.control import jobs as verbs
from quire.control import queries
from quire.control import status as control
from quire.errors import DatabaseUnavailable
from quire.model.context import TaskContext
from quire.model.contracts import job
from quire.model.records import WorkerRow
from quire.store.queue import workers
from quire.testing import drain, scratch_app

WORKER = WorkerRow("w-1", "here", 7, "boot", "", "/none", "default", 2, "running", 0, 0, None)


@job("flaky", max_attempts=3, backoff=1.0)
def flaky(ctx: TaskContext, down: bool = False) -> None:
    """Meet an outage if asked to."""
    if down:
        raise DatabaseUnavailable("service: down")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    opened = scratch_app(tmp_path, flaky, clock=FakeClock())
    yield opened
    opened.close()


def read(app: App) -> dict[str, Any] | None:
    assert app.db.path is not None
    caller = app.caller
    return control.read_without_sqlalchemy(
        app.db.path,
        caller.tenant,
        now=app.db.clock.now(),
        lease=app.db.lease_seconds,
        is_alive=caller.is_alive,
    )


def register(app: App, **other: Any) -> None:
    row = WORKER._replace(**other)
    app.db.write(lambda conn, now: workers.register(conn, row, ["flaky"], now=now))


def test_both_ways_to_read_the_status_agree(app: App):
    assert read(app) == queries.status(app.caller)
    app.submit("flaky")
    drain(app)
    app.submit("flaky")
    verbs.stop(app.caller, [app.submit("flaky")])
    verbs.pause(app.caller, "flaky")
    register(app)
    found = read(app)
    assert found == queries.status(app.caller)
    assert found["jobs"]["stopped"] == found["jobs"]["completed"] == 1
    assert found["paused"] == ["flaky"] and [each["id"] for each in found["workers"]] == ["w-1"]


@pytest.mark.parametrize("how", ["broker", "queue", "outage"])
def test_a_possible_problem_is_left_to_the_whole_report(app: App, how: str):
    if how == "outage":
        app.submit("flaky", down=True)
        drain(app, limit=1)
    else:
        app.submit("flaky")
        register(app, **({"broker": "redis://there"} if how == "broker" else {"queues": "other"}))
    assert queries.status(app.caller)["problems"]
    assert read(app) is None


@pytest.mark.parametrize("key", ["schema_version", "schema_oldest.999", "move.to"])
def test_a_database_of_another_release_or_place_is_left_to_the_store(app: App, key: str):
    assert read(app) is not None
    with app.db.begin() as conn:
        conn.exec_driver_sql(f"INSERT OR REPLACE INTO meta(key, value) VALUES ('{key}', '999')")
    assert read(app) is None


def test_a_missing_or_foreign_file_is_left_to_the_store_and_not_created(tmp_path: Path):
    path = tmp_path / "quire.db"
    now = Instant(0.0, 0.0)

    def ask() -> Any:
        return control.read_without_sqlalchemy(
            path, "default", now=now, lease=60.0, is_alive=lambda *_, **__: False
        )

    assert ask() is None and not path.exists()
    path.write_text("not a database, but long enough to have a header " * 9)
    assert ask() is None
