"""Hot queries use their index: no sort, no scan of a table, on both databases."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.store.db.schema.queue import events, is_state, tasks
from quire.store.queue import claim
from tests import plans
from tests.store.stage import Stage, ending

t = tasks.c


@pytest.fixture
def full(stage: Stage) -> Stage:
    """A few thousand tasks in every state, with statistics."""
    far = stage.clock.now().wall + 1e6
    for user in ("ada", "bob", "eve"):
        stage.submit(*[Submission("noop")] * 800, user=user)
        stage.submit(*[Submission("noop", run_at=far + n) for n in range(800)], user=user)
    leases = [lease for n in range(3) for lease in stage.claim(f"w{n}", limit=40)]
    stage.settle(*(ending(lease) for lease in leases[::2]))
    verbs.stop(stage.caller("eve"), [row.id for row in stage.rows("jobs")][-200:])
    for lease in leases[1::2]:
        stage.report(lease, 0.5, "half")
    if stage.is_postgres:
        with stage.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("VACUUM ANALYZE")
    else:
        with stage.db.begin() as conn:
            conn.exec_driver_sql("ANALYZE")
    return stage


def captured(stage: Stage, act) -> list[tuple[str, object]]:
    """Run an act and return the statements that it sent, with their parameters."""
    sent: list[tuple[str, object]] = []

    def note(conn, cursor, statement, parameters, context, executemany):
        sent.append((statement, parameters))

    sa.event.listen(stage.db.engine, "before_cursor_execute", note)
    with stage.db.begin() as conn:
        act(conn, stage.now())
        conn.rollback()
    sa.event.remove(stage.db.engine, "before_cursor_execute", note)
    return sent


def plan_of(stage: Stage, statement: str, parameters) -> str:
    verb = "EXPLAIN " if stage.is_postgres else "EXPLAIN QUERY PLAN "
    with stage.db.begin() as conn:
        found = conn.exec_driver_sql(verb + statement, parameters)
        return "\n".join(str(row[-1]) for row in found)


def claim_ten(conn: sa.Connection, now) -> None:
    claimed = claim.claim_rows(conn, "w1", "default", ["noop"], now=now, ttl=60.0, limit=10)
    assert len(claimed.rows) == 10


def assert_uses(plan: str, index: str) -> None:
    assert index in plan, plan
    assert not re.search(r"Sort|USE TEMP B-TREE|Seq Scan|SCAN (?!.*USING)", plan), plan


def plan(stage: Stage, statement, **parameters) -> str:
    with stage.db.begin() as conn:
        return plans.explain(conn, statement, parameters)


def test_the_claim_reads_the_head_of_its_index(full: Stage):
    assert_uses(plan(full, claim.HEAD, queue="default", limit=10), "ix_tasks_ready")


def test_the_jobs_of_the_head_are_found_by_their_ids(full: Stage):
    found = statement_about(full, claim_ten, "jobs.exclusive_key")
    assert "ix_tasks_ready" in found, found
    assert not re.search(r"Seq Scan|SCAN jobs|USE TEMP B-TREE", found), found


def test_a_claim_is_three_statements_or_four_where_each_updates_one_table(full: Stage):
    sent = [text for text, _ in captured(full, claim_ten)]
    assert len(sent) == (3 if full.is_postgres else 4), sent


def statement_about(full: Stage, act, words: str) -> str:
    """Return the plan of the first statement of `act` that has the words in it."""
    for statement, parameters in captured(full, act):
        if re.search(words, statement, re.DOTALL):
            return plan_of(full, statement, parameters)
    raise AssertionError(f"no statement about {words}")


def test_due_tasks_are_found_by_their_index(full: Stage):
    from quire.store.queue import release

    found = statement_about(
        full, lambda conn, now: release.release_due(conn, now=now), r"due_at <=.*ORDER BY"
    )
    assert_uses(found, "ix_tasks_due")


def test_the_next_due_time_is_found_by_its_index(full: Stage):
    from quire.store.queue import release

    found = statement_about(full, lambda conn, now: release.next_due_at(conn), "due_at IS NOT NULL")
    assert_uses(found, "ix_tasks_due")


def test_an_owners_last_tag_is_found_by_its_index(full: Stage):
    from quire.store.queue import order

    found = statement_about(
        full,
        lambda conn, now: order.last_tags(conn, [(1, "default", 5)]),
        "max.*fair_tag",
    )
    # The other half of the statement reads one row of `bands`, a table of a few rows.
    assert "ix_tasks_ready_owner" in found, found
    assert not re.search(r"Sort|TEMP B-TREE|Seq Scan on tasks|SCAN tasks(?!.*USING)", found), found


def test_running_tasks_of_a_worker_are_found_by_their_index(full: Stage):
    statement = sa.select(t.id).where(is_state(t.state, "running"), t.worker_id == "w1")
    assert_uses(plan(full, statement), "ix_tasks_running")


def test_the_reaper_reads_running_tasks_only(full: Stage):
    from quire.store.queue import settle

    found = statement_about(
        full, lambda conn, now: settle.reap(conn, now=now, dead=["w1"]), "expires_at <"
    )
    assert "ix_tasks_running" in found, found


def test_tasks_of_a_job_are_found_by_their_index(full: Stage):
    statement = sa.select(t.id).where(t.job_id == 7, is_state(t.state, "ready")).order_by(t.id)
    assert_uses(plan(full, statement), "ix_tasks_job")


def test_the_tail_of_a_jobs_events_is_found_by_its_index(full: Stage):
    from quire.store.queue import events as store

    with full.db.read() as conn:
        job_id = conn.execute(sa.select(events.c.job_id).limit(1)).scalar_one()
    found = statement_about(
        full, lambda conn, now: store.tail(conn, "default", job_id), "FROM events"
    )
    assert_uses(found, "ix_events_job")


def test_blocked_tasks_of_a_reason_are_found_by_their_index(full: Stage):
    from quire.store.queue import release

    found = statement_about(
        full,
        lambda conn, now: release.blocked_for(conn, "no_worker", kinds_in=["noop"]),
        "reason =",
    )
    assert "ix_tasks_blocked" in found, found


def test_what_hinders_tasks_is_found_by_their_indexes(full: Stage):
    from quire.store.reports import outages

    def ask(conn, now):
        outages.queues_in_use(conn, "default")
        outages.outages(conn, "default", now=now)

    indexes = ("ix_tasks_ready", "ix_tasks_ready", "ix_tasks_ready_owner", "ix_tasks_due")
    plans = [plan_of(full, statement, given) for statement, given in captured(full, ask)]
    for index, found in zip(indexes, plans, strict=True):
        assert index in found, found
        # Some dozen runs are cheaper to scan on PostgreSQL than to look up.
        assert not re.search(r"Seq Scan on tasks|SCAN (tasks|attempts)(?!.*USING)", found), found


def test_settling_touches_tasks_by_their_key_only(full: Stage):
    from quire.store.queue import settle

    [lease] = full.claim()
    for statement, parameters in captured(
        full, lambda conn, now: settle.settle(conn, [ending(lease)], now=now)
    ):
        if statement.lstrip().upper().startswith(("INSERT", "COPY")):
            continue
        found = plan_of(full, statement, parameters)
        # A few thousand jobs are cheaper to scan on PostgreSQL than to look up.
        assert not re.search(r"Seq Scan on tasks|SCAN (tasks|jobs)\b", found), found


def test_a_claim_without_a_tenant_looks_at_one_task_of_each_owner(full: Stage):
    def claim_others(conn: sa.Connection, now) -> None:
        claimed = claim.claim_rows(
            conn, "w1", "default", ["noop"], now=now, ttl=60.0, limit=10, without=["acme"]
        )
        assert {row.owner_id for row in claimed.rows} == {1, 2, 3}

    found = statement_about(full, claim_others, "ready_owners")
    assert "ix_tasks_ready_owner" in found, found
    assert not re.search(r"Seq Scan on (tasks|jobs)|SCAN (tasks|jobs)", found), found
