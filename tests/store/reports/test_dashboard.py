"""What the overview and the status count: exact, of one tenant, and never more than a bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.control import queries
from quire.model.records import Submission
from quire.store import open_database
from quire.store.reports import dashboard, status
from quire.store.reports.dashboard import Waiting
from tests.store.stage import Stage, ending


def waiting(stage: Stage, explained: int = 100) -> list[Waiting]:
    with stage.db.read() as conn:
        return dashboard.waiting(conn, "default", explained=explained)


def counts(groups: list[Waiting]) -> list[tuple[str, str, int, bool]]:
    return [(one.user, one.kind, one.jobs, one.is_all) for one in groups]


def test_what_waits_is_grouped_by_owner_and_kind_the_oldest_first(stage: Stage):
    far = stage.clock.now().wall + 1e6
    [first] = stage.submit(Submission("noop", run_at=far), user="bob")
    stage.clock.advance(1)
    [other, *_] = stage.submit(*[Submission("other")] * 3, user="ada")
    stage.clock.advance(1)
    stage.submit(Submission("slow"), user="ada")
    stage.submit(Submission("noop"), user="eve", tenant="elsewhere")
    [lease] = stage.claim("w1", queue="slow")  # a job that only runs does not wait
    found = waiting(stage)
    assert counts(found) == [("bob", "noop", 1, True), ("ada", "other", 3, True)]
    assert [(one.first, one.tasks, one.reason) for one in found] == [
        (first, 1, "due"), (other, 3, None)
    ]  # fmt: skip
    assert found[0].since < found[1].since
    assert [one.reason for one in waiting(stage, explained=0)] == [None, None]
    stage.settle(ending(lease))


def test_owners_share_a_bound_and_leave_what_they_do_not_need(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dashboard, "ALL_JOBS", 9)
    stage.many(2, user="ada")
    stage.many(20, user="bob")
    stage.many(4, user="eve")
    assert counts(waiting(stage)) == [
        ("ada", "noop", 2, True), ("bob", "noop", 3, False), ("eve", "noop", 4, False)
    ]  # fmt: skip
    monkeypatch.setattr(dashboard, "ALL_JOBS", 0)
    assert [one.jobs for one in waiting(stage)] == [1, 1, 1]


@pytest.mark.parametrize("few", [0, 20_000])
def test_the_status_counts_what_a_plain_look_finds_however_it_is_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, few: int
):
    monkeypatch.setattr(status, "FEW", few)
    ids = stage.many(9)
    stage.submit(*[Submission("noop")] * 5, user="eve", tenant="elsewhere")
    stage.run(limit=4)
    verbs.stop(stage.caller(), ids[-1:])
    [lease] = stage.claim("w2", limit=1)
    owned = {row.id: row.tenant for row in stage.rows("owners")}
    plain = Counter(r.state for r in stage.rows("jobs") if owned[r.owner_id] == "default")
    tasks = Counter(r.state for r in stage.rows("tasks") if owned[r.owner_id] == "default")
    found = queries.counts(stage.caller())
    nobody = queries.counts(stage.caller(tenant="nobody"))
    assert Counter(found["jobs"]) == plain and Counter(found["tasks"]) == tasks
    assert set(nobody["jobs"].values()) == set(nobody["tasks"].values()) == {0}
    stage.settle(ending(lease))


def test_running_jobs_are_listed_by_their_start(stage: Stage):
    stage.many(3)
    stage.submit(Submission("noop"), user="eve", tenant="elsewhere")
    leases = stage.claim("w1", limit=1)
    stage.clock.advance(1)
    leases += stage.claim("w2", limit=9)
    found = queries.running_jobs(stage.caller())
    assert [job["id"] for job in found] == sorted(job["id"] for job in found)
    assert len(found) == 3 and len(leases) == 4
    assert {job["owner"]["tenant"] for job in found} == {"default"}


def test_the_overview_reads_along_indexes_without_a_sort_of_jobs(tmp_path: Path):
    # SQLite alone: PostgreSQL plans by its statistics.
    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}")
    db.migrate()
    stage = Stage(db)
    stage.many(30)
    said: list[str] = []

    def explain(conn: Any, cursor: Any, statement: str, given: Any, *more: Any) -> None:
        if "FROM jobs" in statement and "GROUP BY" in statement:
            plan = conn.connection.driver_connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", given
            )
            said.extend(str(row[-1]) for row in plan)

    sa.event.listen(db.engine, "before_cursor_execute", explain)
    waiting(stage)
    db.close()
    assert any("ix_jobs_active (owner_id=?)" in line for line in said), said
    assert not any("ORDER BY" in line for line in said), said


def test_a_worker_never_runs_more_tasks_than_it_has_children(stage: Stage):
    stage.many(3)
    stage.claim(limit=3)  # by a worker with one child, which claims ahead
    [worker] = queries.workers(stage.caller())
    assert (worker["running"], worker["concurrency"]) == (1, 1)
