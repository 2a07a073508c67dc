"""Whether the process lives and can serve, and what it answers while the database is away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from quire.store.db import sqlite, transfer_markers
from tests import postgres
from tests.api.serving import Served, served, stream
from tests.waiting import until

ROUTES = ("/readyz", "/metrics", "/api/jobs", "/api/jobs/1", "/api/status", "/api/events")


def assert_away(at: Served) -> None:
    """Every route says that the database is away and when to come back; the process lives."""
    for path in ROUTES:
        answer = at.http.get(path)
        assert answer.status_code == 503, (path, answer.text)
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.json()["detail"]
    answer = at.http.post("/api/jobs", json={"kind": "errand"})
    assert answer.status_code == 503, answer.text
    assert at.http.get("/healthz").json() == {"status": "alive"}


def test_a_server_that_can_serve_says_so_to_anyone(home: Path):
    with served(home=home, api_auth=True) as at:
        assert at.http.get("/healthz").status_code == 200
        assert at.http.get("/readyz").json() == {"status": "ready"}


def test_postgres_that_goes_away_is_503_everywhere_and_comes_back(
    pg_server: postgres.Server, home: Path
):
    with served(home=home, database_url=pg_server.url) as at:
        assert at.http.get("/readyz").status_code == 200
        with stream(at) as opened:
            at.happen("before")
            assert opened.names(1) == ["before"]
            pg_server.stop("immediate")
            assert_away(at)
            pg_server.start()
            until(lambda: at.http.get("/readyz").status_code == 200)
            at.happen("after")
            assert opened.names(1) == ["after"]  # the same stream went on
        assert at.http.get("/api/jobs").status_code == 200


def test_a_server_starts_while_postgres_is_away(pg_server: postgres.Server, home: Path):
    pg_server.stop()
    with served(home=home, database_url=pg_server.url) as at:
        assert_away(at)
        pg_server.start()
        until(lambda: at.http.get("/readyz").status_code == 200)


def test_a_locked_sqlite_file_is_503_for_those_who_write(home: Path):
    with served(home=home, lease_seconds=1.2, heartbeat_interval=0.4) as at, _locked(home):
        answer = at.http.post("/api/jobs", json={"kind": "errand"})
        assert answer.status_code == 503, answer.text
        assert answer.headers["Retry-After"]
        assert at.http.get("/api/jobs").status_code == 200  # readers need no lock


def test_a_sqlite_file_that_is_no_database_is_503(home: Path):
    (home / "quire.db").write_bytes(b"no database at all" * 500)
    with served(home=home) as at:
        assert_away(at)


def test_a_schema_of_another_quire_is_not_served(home: Path):
    with served(home=home) as at:
        with at.app.db.begin() as conn:
            conn.exec_driver_sql("UPDATE meta SET value = '9999' WHERE key = 'schema_version'")
        answer = at.http.get("/readyz")
        assert answer.status_code == 503
        assert "version 9999" in answer.json()["detail"]
        with at.app.db.begin() as conn:
            conn.exec_driver_sql("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
        assert "quire migrate" in at.http.get("/readyz").json()["remedy"]


def test_a_server_that_is_too_old_for_the_schema_takes_no_request(home: Path):
    with served(home=home) as at:
        assert at.http.get("/api/jobs").status_code == 200
        with at.app.db.begin() as conn:
            conn.exec_driver_sql("UPDATE meta SET value = '9999' WHERE key = 'schema_version'")
        until(lambda: at.http.get("/api/jobs").status_code == 503)
        refused = at.http.post("/api/jobs", json={"kind": "errand"})
        assert refused.status_code == 503
        assert "this one has migrations up to" in refused.json()["detail"]


def test_a_database_that_was_moved_away_is_not_served(home: Path):
    with served(home=home) as at:
        with at.app.db.begin() as conn:
            transfer_markers.write(conn, transfer_markers.TO, "postgresql://ada:***@host/quire")
        answer = at.http.get("/readyz")
        assert answer.status_code == 503
        assert "transferred to postgresql://ada:***@host/quire" in answer.json()["detail"]


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    engine = sqlite.sqlite_module()
    with contextlib.closing(engine.connect(str(home / "quire.db"), isolation_level=None)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        yield
