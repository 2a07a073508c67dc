"""Pages of jobs: whatever index is read, a page has what a plain look at the table finds."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.store import open_database
from quire.store.db.schema import queue as tables
from quire.store.reports import jobs as job_reports
from tests.store.stage import Stage

STATES = [None, ["pending"], ["stopped"], ["stopped", "cancelled"], ["pending", "completed"]]
PLATFORMS, USERS = [None, "web"], [None, "ada"]


def filled(stage: Stage) -> None:
    chance = random.Random(5)
    for number in range(60):
        caller = stage.caller(
            chance.choice(["ada", "bo"]), tenant=chance.choice(["default", "other"])
        )
        wish = Submission("noop", platform=chance.choice([None, "web", "mail"]))
        ids = verbs.submit(caller, [wish])
        if number % 3:
            (verbs.stop if number % 2 else verbs.cancel)(caller, ids)


def plainly(stage: Stage, tenant: str, filters: dict[str, Any]) -> list[int]:
    j, o = tables.jobs.c, tables.owners.c
    query = job_reports.filtered(
        sa.select(j.id).join(tables.owners, o.id == j.owner_id).where(o.tenant == tenant), filters
    )
    with stage.db.read() as conn:
        return list(conn.scalars(query.order_by(j.id.desc())))


def paged(stage: Stage, tenant: str, filters: dict[str, Any]) -> list[int]:
    met: list[int] = []
    cursor: int | None = None
    while True:
        with stage.db.read() as conn:
            page = job_reports.page_of_jobs(
                conn, tenant, now=0.0, limit=7, cursor=cursor, **filters
            )
        met += [job["id"] for job in page["items"]]
        if page["next"] is None:
            return met
        cursor = int(page["next"])


@pytest.mark.parametrize(("few", "most"), [(2_000, 32), (0, 32), (0, 1)])
def test_pages_have_what_matches_however_they_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, few: int, most: int
):
    monkeypatch.setattr(job_reports, "FEW", few)
    monkeypatch.setattr(job_reports, "MOST_OWNERS", most)
    filled(stage)
    for states, platform, user in itertools.product(STATES, PLATFORMS, USERS):
        filters = {"states": states, "platform": platform, "user": user, "kind": None}
        for tenant in ("default", "nobody"):
            assert paged(stage, tenant, filters) == plainly(stage, tenant, filters), filters


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({"states": ["failed"]}, "ix_jobs_state"),
        ({"kind": "noop"}, "ix_jobs_by_kind"),
        ({"platform": "web"}, "ix_jobs_by_platform"),
        ({"account": "a"}, "ix_jobs_by_account"),
        ({}, "ix_jobs_owner"),
    ],
)
def test_a_page_among_many_is_read_along_one_index_and_not_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], index: str
):
    # SQLite alone: PostgreSQL plans by its statistics.
    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}")
    db.migrate()
    stage = Stage(db)
    monkeypatch.setattr(job_reports, "FEW", 0)
    filled(stage)
    said: list[str] = []

    def explain(conn: Any, cursor: Any, statement: str, given: Any, *more: Any) -> None:
        if "ORDER BY jobs.id DESC" in statement and not statement.startswith("EXPLAIN"):
            plan = conn.connection.driver_connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", given
            )
            said.extend(str(row[-1]) for row in plan)

    with stage.db.read() as conn:
        sa.event.listen(stage.db.engine, "before_cursor_execute", explain)
        job_reports.latest(conn, "default", filters, limit=5, cursor=None)
        sa.event.remove(stage.db.engine, "before_cursor_execute", explain)
    db.close()
    assert any(index in line for line in said), said
    assert not any("TEMP B-TREE" in line for line in said), said
