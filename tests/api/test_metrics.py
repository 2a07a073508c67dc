"""Figures for Prometheus: from the rows of all processes, of one tenant, and never falling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire.api import response_cache
from quire.api.routes import metrics
from quire.control import access, jobs
from quire.model.records import Submission
from quire.store.queue import metric_counters
from tests.api.serving import Served, served
from tests.store.stage import Stage, ending

Figures = dict[tuple[str, ...], float]


@pytest.fixture(params=["sqlite", "postgres"])
def at(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    monkeypatch.setattr(metrics, "KEEP", 0.0)
    monkeypatch.setattr(response_cache, "_SHARE", 0.0)
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    with served(home=home, database_url=url) as running:
        yield running


def read(at: Served, **headers: str) -> Figures:
    """Scrape, and return each figure by its name and labels."""
    answer = at.http.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_work_of_other_processes_is_counted(at: Served):
    stage = Stage(at.app.db)
    stage.many(5)
    leases = stage.claim(limit=3)
    stage.settle(ending(leases[0]), ending(leases[1], "fail", "permanent", error="x"))
    stage.clock.advance(30)
    found = read(at)
    assert found["quire_tasks", "noop", "ready"] == 2
    assert found["quire_tasks", "noop", "running"] == 1
    assert found["quire_tasks", "noop", "done"] == 1
    assert found["quire_oldest_ready_seconds", "noop"] == pytest.approx(30, abs=1)
    assert found["quire_settles_total", "noop", "done"] == 1
    assert found["quire_settles_total", "noop", "permanent"] == 1
    assert found["quire_claims_total", "noop"] == 3
    assert found["quire_lease_losses_total", "noop"] == 0
    assert ("quire_run_seconds_total", "noop", "done") in found
    stage.clock.advance(1000)
    stage.reap()
    assert read(at)["quire_lease_losses_total", "noop"] == 1


def test_a_counter_never_falls_when_history_is_deleted(at: Served):
    stage = Stage(at.app.db)
    first = stage.many(3)
    stage.run()
    assert read(at)["quire_settles_total", "noop", "done"] == 3
    jobs.delete(stage.caller(), first)
    assert read(at)["quire_settles_total", "noop", "done"] == 3
    stage.many(2)
    stage.run()
    assert read(at)["quire_settles_total", "noop", "done"] == 5


def test_refusals_of_zombies_are_counted_in_the_database(at: Served):
    assert read(at)["quire_refused_settles_total",] == 0
    for count in (2, 0, 3):
        with at.app.db.begin() as conn:
            metric_counters.add(conn, "refused", count)
    assert read(at)["quire_refused_settles_total",] == 5


def test_requests_are_counted_by_route_and_not_by_address(at: Served):
    for job_id in (1, 2, 3):
        at.http.get(f"/api/jobs/{job_id}")
    found = read(at)
    assert found["quire_http_requests_total", "GET", "/api/jobs/{job_id}", "404"] == 3
    assert found["quire_http_request_seconds_count", "GET", "/api/jobs/{job_id}"] == 3
    assert not any("/api/jobs/1" in each for each in found)


def test_a_tenant_sees_its_own_work_only(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics, "KEEP", 0.0)
    with served(home=home, api_auth=True) as at:
        stage = Stage(at.app.db)
        stage.submit(*[Submission("noop")] * 2)
        stage.submit(Submission("slow"), tenant="other")
        tokens = {}
        for tenant in ("default", "other"):
            caller = stage.caller(tenant=tenant)
            access.ensure_admin(caller)
            tokens[tenant] = access.create_token(caller, "t", ["read"])["token"]
        assert at.http.get("/metrics").status_code == 401
        ours = read(at, Authorization=f"Bearer {tokens['default']}")
        theirs = read(at, Authorization=f"Bearer {tokens['other']}")
    assert {each for each in ours if each[0] == "quire_tasks"} == {("quire_tasks", "noop", "ready")}
    assert {each for each in theirs if each[0] == "quire_tasks"} == {
        ("quire_tasks", "slow", "ready")
    }
    # What this process does for others is for its own tenant to see.
    assert any(each[0].startswith("quire_http") for each in ours)
    assert not any(each[0].startswith(("quire_http", "quire_refused")) for each in theirs)


def test_counting_is_not_repeated_at_once(home: Path):
    with served(home=home) as at:
        assert ("quire_tasks", "noop", "ready") not in read(at)
        at.app.submit("noop")
        assert ("quire_tasks", "noop", "ready") not in read(at)
