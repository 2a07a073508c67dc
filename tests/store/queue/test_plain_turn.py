"""The short way ends and claims as the general one does, or leaves things as they are."""

from __future__ import annotations

import re
import threading
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import Transferred
from quire.model.outcomes import Lease, Settlement
from quire.store.db import transfer_markers
from quire.store.db.schema.queue import tasks
from quire.store.queue import fenced, plain_turn
from tests.store.stage import KINDS, TTL, Stage, ending


def take(
    stage: Stage, *runs: Settlement, room: int = 10, known: Any = KINDS, queues: Any = ("default",)
) -> plain_turn.Turn:
    wanted = plain_turn.Wanted(queues, tuple(known), room, TTL)
    return plain_turn.take(stage.db, "w1", runs, wanted)


def leases_of(turn: plain_turn.Turn) -> list[Lease]:
    return [lease for part in turn.claimed for lease in part.leases()]


def contents(stage: Stage, job_id: int) -> list[dict[str, Any]]:
    """The rows of a job, without what differs between two equal jobs."""
    task = stage.task(job_id)
    history = stage.rows("attempts", task_id=task.id)
    rows = [stage.job(job_id), task, *history, *stage.rows("events", job_id=job_id)]
    hidden = ("id", "job_id", "task_id", "fair_tag", "xid")
    return [{k: v for k, v in row._mapping.items() if k not in hidden} for row in rows]


def test_it_applies_where_a_statement_is_a_round_trip(stage: Stage):
    assert plain_turn.applies(stage.db) == stage.is_postgres


@pytest.mark.parametrize(
    "wish",
    [{}, {"payload": {"a": 'ä"\\'}, "priority": 2, "cost": 2.5, "max_attempts": 7}],
    ids=["default", "all"],
)
def test_both_ways_lease_the_same(pg_stage: Stage, wish: dict[str, Any]):
    stage = pg_stage
    first, second = stage.one(**wish), stage.one(**wish)
    [general] = stage.claim()
    turn = take(stage)
    [plain] = leases_of(turn)
    assert (general.job_id, plain.job_id) == (first, second)
    plain = plain._replace(fair_tag=general.fair_tag)
    assert plain == general._replace(task_id=plain.task_id, job_id=plain.job_id)
    assert contents(stage, first) == contents(stage, second)
    assert (turn.is_left, turn.has_failed, turn.next_due_at) == (False, False, None)
    assert turn.at == stage.now().wall


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"result": '{"a": "\\"\\\\"}', "peak_rss": 5, "duration": 0.3, "began_at": 1.5},
    ],
    ids=["default", "all"],
)
def test_both_ways_end_the_same(pg_stage: Stage, told: dict[str, Any]):
    stage = pg_stage
    first, second = stage.many(2)
    leases = stage.claim(limit=2)
    told = {"duration": 0.1, "worker_id": "w1", **told}
    stage.clock.advance(3)
    stage.settle(ending(leases[0], **told))
    turn = take(stage, ending(leases[1], **told))
    assert turn.ended == {leases[1].key}
    assert contents(stage, first) == contents(stage, second)
    assert stage.job(second).state == "completed"


def test_a_turn_ends_and_claims_in_the_order_of_the_queue(pg_stage: Stage):
    stage = pg_stage
    stage.many(3)
    runs = [ending(lease) for lease in stage.claim(limit=3)]
    urgent = stage.one(priority=1)
    late, last = stage.many(2)
    turn = take(stage, *runs, room=2)
    assert turn.ended == {run.key for run in runs}
    assert [lease.job_id for lease in leases_of(turn)] == [urgent, late]
    assert stage.task(last).state == "ready"


def test_tasks_are_claimed_from_one_queue_after_the_other(pg_stage: Stage):
    stage = pg_stage
    slow, fast = stage.one("slow"), stage.one()
    turn = take(stage, queues=("default", "slow"))
    assert [lease.job_id for lease in leases_of(turn)] == [fast, slow]
    assert not turn.is_left


def test_the_next_task_that_is_due_is_told(pg_stage: Stage):
    pg_stage.one(run_at=pg_stage.now().wall + 50)
    assert take(pg_stage).next_due_at == pg_stage.now().wall + 50


@pytest.mark.parametrize("why", ["stopped", "unknown", "cap", "once", "crashed", "exclusive"])
def test_what_is_not_plain_is_left_to_the_general_claim(pg_stage: Stage, why: str):
    stage = pg_stage
    job_id = stage.one("once" if why == "once" else "noop")
    known: Any = KINDS
    if why == "stopped":
        with stage.db.begin() as conn:
            conn.exec_driver_sql("UPDATE jobs SET state = 'stopped', finished_at = 1")
    elif why == "unknown":
        known = ("other",)
    elif why == "cap":
        stage.set_owner("ada", max_running=1)
    elif why == "crashed":
        with stage.db.begin() as conn:
            conn.execute(sa.update(tasks).values(crashes=1))
    elif why == "exclusive":
        with stage.db.begin() as conn:
            conn.exec_driver_sql("UPDATE jobs SET exclusive_key = 'k'")
    stage.one("other")
    before = contents(stage, job_id)
    turn = take(stage, known=known)
    assert (leases_of(turn), turn.is_left, turn.has_failed) == ([], True, False)
    assert contents(stage, job_id) == before
    if why == "stopped":
        verbs.resume(stage.caller(), [job_id])


def test_a_paused_kind_is_left_to_the_general_claim(pg_stage: Stage):
    job_id = pg_stage.one()
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql("UPDATE kinds SET paused_at = 1 WHERE name = 'noop'")
    turn = take(pg_stage)
    assert (leases_of(turn), turn.is_left) == ([], True)
    assert pg_stage.claim() == []
    assert pg_stage.task(job_id).reason == "paused"


def test_a_held_exclusive_key_is_left_to_the_general_claim(pg_stage: Stage):
    stage = pg_stage
    first, second = stage.many(2)
    with stage.db.begin() as conn:
        conn.execute(sa.update(tasks).values(exclusive_key="document"))
    [lease] = leases_of(take(stage, room=1))
    assert lease.job_id == first
    turn = take(stage)
    assert (leases_of(turn), turn.is_left, turn.has_failed) == ([], True, False)
    turn = take(stage, ending(lease), room=1)
    assert [lease.job_id for lease in leases_of(turn)] == [second]


def test_two_tasks_of_one_exclusive_key_are_not_claimed_together(pg_stage: Stage):
    pg_stage.many(2)
    with pg_stage.db.begin() as conn:
        conn.execute(sa.update(tasks).values(exclusive_key="document"))
    turn = take(pg_stage)
    assert (leases_of(turn), turn.is_left, turn.has_failed) == ([], True, True)
    assert len(pg_stage.claim(limit=2)) == 1


def test_runs_that_others_wait_for_or_whose_lease_is_lost_are_not_ended(pg_stage: Stage):
    stage = pg_stage
    awaited, lost, plain = stage.many(3)
    leases = stage.claim(limit=3)
    stage.one(after=[awaited])
    stage.reap("w1")
    verbs.stop(stage.caller(), [lost])
    again = stage.claim(limit=3)
    runs = [ending(lease) for lease in again]
    zombie = ending(leases[2])
    turn = take(stage, *runs, zombie)
    assert turn.ended == {again[-1].key}
    assert stage.task(plain).state == "done"
    assert stage.settle(runs[0]) == {again[0].task_id}


def test_a_zombie_does_not_end_the_run_of_the_new_holder(pg_stage: Stage):
    stage = pg_stage
    job_id = stage.one()
    [zombie] = stage.claim()
    stage.reap("w1")
    [held] = stage.claim("w2")
    turn = take(stage, ending(zombie, result='"old"'), room=0)
    assert (turn.ended, turn.has_failed) == (set(), False)
    assert (stage.task(job_id).state, stage.task(job_id).worker_id) == ("running", "w2")
    assert take(stage, ending(held, result='"new"'), room=0).ended == {held.key}
    assert stage.job(job_id).result == '"new"'


def family(stage: Stage) -> tuple[int, Lease]:
    """Make a job whose first child is awaited by its second; returns the lease of the first."""
    job_id = stage.one()
    [parent] = stage.claim()
    with fenced.ending(stage.db, *parent.key, worker_id="w1") as transaction:
        transaction.spawn("noop", after=[transaction.spawn("noop")])
    [lease] = stage.claim()
    return job_id, lease


def is_left(stage: Stage, lease: Lease) -> bool:
    """Tell whether an end is left to the general way, which then makes it."""
    turn = take(stage, ending(lease), room=0)
    assert (turn.ended, turn.has_failed) == (set(), False)
    return stage.settle(ending(lease)) == {lease.task_id}


def test_the_end_of_a_task_that_another_task_waits_for_is_left(pg_stage: Stage):
    job_id, lease = family(pg_stage)
    assert is_left(pg_stage, lease)
    assert pg_stage.run() == [job_id]
    assert pg_stage.job(job_id).state == "completed"


def test_the_end_of_a_job_in_which_a_task_failed_is_left(pg_stage: Stage):
    stage = pg_stage
    job_id = stage.one()
    [parent] = stage.claim()
    with fenced.ending(stage.db, *parent.key, worker_id="w1") as transaction:
        transaction.spawn("noop"), transaction.spawn("noop")
    bad, good = stage.claim(limit=2)
    stage.settle(ending(bad, "fail", "failed", error="disk full"))
    assert is_left(stage, good)
    assert (stage.job(job_id).state, stage.job(job_id).error) == ("failed", "disk full")
    told = [row.detail for row in stage.rows("events", job_id=job_id, name="job.failed")]
    assert told == ['{"error": "disk full"}']


def test_the_end_of_a_job_that_the_next_one_of_its_user_waits_for_is_left(pg_stage: Stage):
    first, second = (pg_stage.one(policy="queue") for _ in range(2))
    [lease] = pg_stage.claim()
    assert lease.job_id == first and is_left(pg_stage, lease)
    assert pg_stage.run() == [second]


def test_the_end_of_a_task_that_works_on_a_document_is_left(pg_stage: Stage):
    pg_stage.one()
    [lease] = pg_stage.claim()
    for document_id, ended in ((7, set()), (None, {lease.key})):
        with pg_stage.db.begin() as conn:
            conn.execute(sa.update(tasks).values(document_id=document_id))
        turn = take(pg_stage, ending(lease), room=0)
        assert (turn.ended, turn.has_failed) == (ended, False)


def test_a_run_that_has_ended_is_not_ended_again(pg_stage: Stage):
    job_id = pg_stage.one()
    [lease] = pg_stage.claim()
    assert pg_stage.settle(ending(lease, "return", "returned")) == {lease.task_id}
    turn = take(pg_stage, ending(lease), room=0)
    assert (turn.ended, turn.has_failed) == (set(), False)
    assert pg_stage.run() == [job_id]


@pytest.fixture
def holding(pg_stage: Stage) -> Any:
    """A second connection, for a transaction that stays open."""
    with pg_stage.db.engine.connect() as conn:
        yield conn


def test_a_stop_that_commits_while_the_turn_waits_is_obeyed(pg_stage: Stage, holding: Any):
    stage = pg_stage
    stopped, other = stage.many(2)
    leases = stage.claim(limit=2)
    runs = [ending(lease) for lease in leases]
    holding.exec_driver_sql(
        f"UPDATE jobs SET state = 'stopped', finished_at = 1 WHERE id = {stopped}"
    )
    turns: list[plain_turn.Turn] = []
    thread = threading.Thread(target=lambda: turns.append(take(stage, *runs)))
    thread.start()
    stage.wait_until_one_waits(thread)
    holding.commit()
    thread.join()
    assert (turns[0].ended, turns[0].has_failed) == (set(), True)
    assert [stage.task(job_id).state for job_id in (stopped, other)] == ["running"] * 2
    assert stage.settle(*runs) == {leases[1].task_id}
    assert stage.task(stopped).reason == "stopped"


def test_a_locked_task_is_not_waited_for(pg_stage: Stage, holding: Any):
    first, second = pg_stage.many(2)
    holding.exec_driver_sql(f"SELECT 1 FROM tasks WHERE job_id = {first} FOR UPDATE")
    [lease] = leases_of(take(pg_stage))
    assert lease.job_id == second
    holding.rollback()


def test_a_locked_job_is_not_waited_for(pg_stage: Stage, holding: Any):
    first, second = pg_stage.many(2)
    lock = f"SELECT 1 FROM jobs WHERE id = {first} FOR NO KEY UPDATE"
    holding.exec_driver_sql(lock)
    turn = take(pg_stage)
    assert [lease.job_id for lease in leases_of(turn)] == [second]
    assert not turn.is_left
    turn = take(pg_stage)
    assert (leases_of(turn), turn.is_left) == ([], True)  # `claim` waits for it
    holding.rollback()


def test_a_failed_statement_changes_nothing_and_is_told(pg_stage: Stage):
    stage = pg_stage
    job_id = stage.one()
    [lease] = stage.claim()
    stage.one()
    with stage.db.begin() as conn:
        row = f"{lease.task_id}, {lease.fence}, 1, 1, 'done'"
        into = "INSERT INTO attempts (task_id, fence, attempt, finished_at, outcome)"
        conn.exec_driver_sql(f"{into} VALUES ({row})")
    turn = take(stage, ending(lease))
    assert (turn.ended, turn.claimed, turn.has_failed, turn.is_left) == (set(), [], True, True)
    assert stage.task(job_id).state == "running"
    with stage.db.begin() as conn:
        conn.exec_driver_sql("DELETE FROM attempts")
    assert take(stage, ending(lease)).ended == {lease.key}


def test_the_refusal_of_a_database_that_is_being_filled_is_left_to_the_general_claim(
    pg_stage: Stage,
):
    pg_stage.one()
    with pg_stage.db.begin() as conn:
        transfer_markers.close_target(conn, [tasks])
    turn = take(pg_stage)
    assert (turn.claimed, turn.has_failed, turn.is_left) == ([], True, True)
    with pytest.raises(Transferred):
        pg_stage.claim()
    with pg_stage.db.begin() as conn:
        transfer_markers.open_target(conn)


def kept_plan(session: Any, text: str, given: Any) -> str:
    """Return the plan that a session keeps for a statement, for any values of its parameters."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text)
    values = ", ".join(psycopg.sql.Literal(given[name]).as_string(None) for name in names)
    session.execute("DEALLOCATE ALL")
    session.execute(f"PREPARE kept AS {numbered}")
    rows = session._cursor.execute(f"EXPLAIN EXECUTE kept({values})").fetchall()
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["fresh", "analyzed"])
def test_each_row_is_found_by_an_index_however_small_the_tables_were(
    pg_stage: Stage, is_analyzed: bool
):
    stage = pg_stage
    stage.many(30)
    take(stage, room=5)
    if is_analyzed:
        with stage.db.begin() as conn:
            conn.exec_driver_sql("ANALYZE")
    own = {"worker": "w1", "at": 1.0}
    wanted = plain_turn.Wanted(("default",), tuple(KINDS), 5, TTL)
    runs = [Settlement(1, 1, 1, "finish", "done")]
    assert stage.db._calls is not None
    [session] = stage.db._calls._idle
    for text, given in (
        plain_turn._claiming(stage.db, "default", wanted, own),
        plain_turn._ending(stage.db, runs, own),
    ):
        plan = kept_plan(session, text, given)
        scans = {
            line.split(" on ")[1].split()[0] for line in plan.splitlines() if "Seq Scan" in line
        }
        assert scans <= {"kinds", "owners"}, plan
        assert "Hash Join" not in plan and "Merge Join" not in plan, plan
        # Not by walking all of those in a state, which are many in a queue that grows.
        assert "ix_jobs_active" not in plan and "ix_jobs_state" not in plan, plan
        assert "ix_tasks_running on tasks tasks" not in plan, plan
