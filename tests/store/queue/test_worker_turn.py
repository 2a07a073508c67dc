"""A worker's turn on PostgreSQL: what it ends and claims, and what any fault leaves of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import DatabaseUnavailable
from quire.model.outcomes import Settlement
from quire.model.records import Submission
from quire.runtime.worker.loop import Room, Worker
from quire.settings import load
from quire.store import open_database
from quire.store.db import plain_submit, urls
from quire.store.db.direct_calls import _Session
from quire.store.queue import fenced, job_actions, metric_counters, plain_turn, settle
from tests.store.queue.test_plain_submit import plain
from tests.store.stage import KINDS, TTL, Stage, ending
from tests.waiting import until


@pytest.fixture
def worker(pg_stage: Stage, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker without children, which has room for five tasks all the same."""
    worker = Worker(load({}, home=home, database_url=pg_stage.db.url))
    worker.kinds = KINDS
    monkeypatch.setattr(worker, "_room", lambda: Room(children=0, tasks=5, kept=0))
    yield worker
    worker.db.close()


def test_a_worker_ends_and_claims_what_is_plain_and_what_is_not(pg_stage: Stage, worker: Worker):
    stage = pg_stage
    plain, awaited, failed, once = *stage.many(3), stage.one("once")
    leases = stage.claim(worker.id, limit=3)
    stage.clock.jump(time.time() - stage.clock.now().wall)  # the worker's own clock is the server's
    waiting = stage.one(after=[awaited])
    worker.settlements = [
        ending(leases[0]), ending(leases[1]), ending(leases[2], "fail", "failed", error="no"),
    ]  # fmt: skip
    worker._write(now=0.0)
    assert worker.settlements == []
    states = [stage.job(job_id).state for job_id in (plain, awaited, failed)]
    assert states == ["completed", "completed", "failed"]
    # What must run alone waits for an idle child.
    assert [lease.job_id for lease in worker.backlog.take_all()] == [waiting]
    assert stage.task(once).state == "ready"


def test_what_was_claimed_is_held_if_the_rest_of_the_turn_fails(pg_stage: Stage, worker: Worker):
    stage = pg_stage
    awaited = stage.one()
    [lease] = stage.claim(worker.id)
    stage.one(after=[awaited])
    ready = stage.one()
    worker.settlements = [ending(lease)]
    with stage.db.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE edges RENAME TO gone")
    with pytest.raises(sa.exc.ProgrammingError):
        worker._write(now=0.0)
    with stage.db.begin() as conn:
        conn.exec_driver_sql("ALTER TABLE gone RENAME TO edges")
    assert [one.key for one in worker.settlements] == [lease.key]
    assert [each.job_id for each in worker.backlog.take_all()] == [ready]


def test_what_is_due_is_released_although_other_tasks_are_ready(pg_stage: Stage, worker: Worker):
    stage = pg_stage
    stage.clock.jump(time.time() - stage.clock.now().wall)
    due = stage.one(run_at=stage.now().wall + 0.01, priority=1)
    stage.many(20)
    worker._write(now=0.0)
    assert stage.task(due).state == "blocked"
    until(lambda: time.time() > stage.task(due).due_at)
    worker._write(now=0.0)
    assert stage.task(due).state == "running"


def test_the_last_child_is_kept_for_another_tenant(pg_stage: Stage, worker: Worker):
    stage = pg_stage
    ours, others = (
        replace(stage.caller(tenant=name), origin="api") for name in ("default", "acme")
    )
    flood = verbs.submit(ours, [Submission("other")] * 10)
    [theirs] = verbs.submit(others, [Submission("other", priority=10)])
    worker.last_child.update(has_several_tenants=True)
    room = Room(children=1, tasks=1, kept=1)
    worker._room = lambda: room  # type: ignore[method-assign]
    worker.last_child.should_look = True
    worker._write(now=0.0)
    assert [lease.job_id for lease in worker.backlog.take_all()] == [flood[0], theirs]


def run_of(stage: Stage, worker: Worker, count: int) -> list[Settlement]:
    """Run jobs of one task each, and leave their ends for the worker to write."""
    stage.many(count)
    leases = stage.claim(worker.id, limit=count)
    stage.clock.jump(time.time() - stage.clock.now().wall)  # the worker's own clock is the server's
    worker.settlements = [ending(lease, worker_id=worker.id) for lease in leases]
    return list(worker.settlements)


def refused(stage: Stage) -> int:
    with stage.db.read() as conn:
        return metric_counters.read(conn).get("refused", 0)


@contextmanager
def administrator(stage: Stage) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(urls.plain_url(stage.db.engine), autocommit=True) as conn:
        yield conn


def cut(stage: Stage, session: _Session) -> None:
    """End a session as a server does that goes down."""
    with administrator(stage) as admin:
        pid = session._conn.info.backend_pid
        assert admin.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone() == (True,)


def cut_once(stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str) -> list[str]:
    """Cut the next session that takes a turn before a step, or behind its COMMIT (`reply`)."""
    steps: dict[str, Any] = {"execute": _Session.execute, "rows": _Session.rows}
    seen: list[str] = []

    def taking(name: str) -> Callable[[_Session, Any], Any]:
        def take(session: _Session, given: Any) -> Any:
            seen.append(given if name == "execute" else f"statement {len(seen)}")
            if seen[-1] == step:
                cut(stage, session)
            found = steps[name](session, given)
            if seen[-1] == "COMMIT" and step == "reply" and "reply" not in seen:
                seen.append(step)
                cut(stage, session)
                steps[name](session, "SELECT 1")  # fails, like the reply that is not read
            return found

        return take

    for name in steps:
        monkeypatch.setattr(_Session, name, taking(name))
    return seen


@pytest.mark.parametrize("step", ["BEGIN", "statement 1", "statement 2", "COMMIT", "reply"])
def test_a_turn_that_is_cut_at_any_step_is_made_once(
    pg_stage: Stage, worker: Worker, monkeypatch: pytest.MonkeyPatch, step: str
):
    stage = pg_stage
    runs = run_of(stage, worker, 3)
    ready = stage.many(3)
    seen = cut_once(stage, monkeypatch, step)
    worker._write(now=0.0)
    assert step in seen and worker.is_in_doubt
    # What was claimed without a reply is found at the heartbeat, given back and claimed again.
    worker._heartbeat()
    worker._write(now=0.0)
    assert worker.settlements == [] and refused(stage) == 0
    ended = [row for row in stage.rows("attempts") if row.outcome == "done"]
    assert [(row.task_id, row.fence) for row in ended] == [run.key for run in runs]
    running = [row for row in stage.rows("tasks") if row.state == "running"]
    assert sorted(row.job_id for row in running) == ready
    assert sorted(worker.backlog.keys()) == sorted((row.id, row.fence) for row in running)
    assert {(row.attempt, row.crashes) for row in stage.rows("tasks")} == {(1, 0)}


@pytest.fixture
def holding(pg_stage: Stage) -> Iterator[sa.Connection]:
    """A second connection, for a transaction that stays open."""
    with pg_stage.db.engine.connect() as conn:
        yield conn
        conn.rollback()


@contextmanager
def writing(stage: Stage, worker: Worker) -> Iterator[threading.Thread]:
    """Take a worker's turn in a thread, which waits for a lock while the block runs."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            worker._write(now=0.0)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    stage.wait_until_one_waits(thread)
    yield thread
    thread.join()
    if failed:
        raise failed[0]


LOCK = "SELECT 1 FROM jobs WHERE id = {} FOR NO KEY UPDATE"


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_turn_that_is_ended_while_it_waits_is_made_once(
    pg_stage: Stage, worker: Worker, holding: sa.Connection, how: str
):
    """`cancel` is what the timeout of a statement or of a lock does."""
    stage = pg_stage
    runs = run_of(stage, worker, 2)
    holding.exec_driver_sql(LOCK.format(runs[1].job_id))
    with writing(stage, worker), administrator(stage) as admin:
        ended = f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert admin.execute(f"{ended} AND datname = current_database()").fetchall() == [(True,)]
        stage.wait_until_one_waits()  # the general way
        holding.rollback()
    assert worker.settlements == [] and refused(stage) == 0
    assert [row.outcome for row in stage.rows("attempts")] == ["done", "done"]


def test_a_turn_that_deadlocks_is_made_at_the_next_try(
    pg_stage: Stage, worker: Worker, holding: sa.Connection
):
    stage = pg_stage
    first, second = run_of(stage, worker, 2)
    holding.exec_driver_sql(LOCK.format(second.job_id))
    with writing(stage, worker):
        # The worker has waited for longer: PostgreSQL ends its transaction, not this one.
        holding.exec_driver_sql(LOCK.format(first.job_id))
        holding.rollback()
    assert worker.settlements == [] and refused(stage) == 0
    assert [row.outcome for row in stage.rows("attempts")] == ["done", "done"]
    assert {(row.attempt, row.crashes) for row in stage.rows("tasks")} == {(1, 0)}
    with administrator(stage) as admin:
        stage.db.close()
        worker.db.close()
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert admin.execute(query).fetchone() == (1,)


def test_a_turn_locks_its_jobs_in_the_order_of_their_ids(
    pg_stage: Stage, worker: Worker, holding: sa.Connection
):
    stage = pg_stage
    runs = run_of(stage, worker, 20)
    # PostgreSQL may also sort them to group them, and need not.
    text, _ = plain_turn._ending(worker.db, runs, {"worker": worker.id, "at": None})
    assert "GROUP BY ended.job_id ORDER BY ended.job_id" in " ".join(text.split())
    holding.exec_driver_sql(LOCK.format(min(run.job_id for run in runs)))
    with writing(stage, worker):
        with stage.db.begin() as conn:
            free = "SELECT count(*) FROM (SELECT 1 FROM jobs FOR NO KEY UPDATE SKIP LOCKED) AS j"
            assert conn.exec_driver_sql(free).scalar_one() == 19
        holding.rollback()
    assert worker.settlements == []


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_turn_that_waits_for_a_halt_of_its_job_commits_nothing_of_it(
    pg_stage: Stage, worker: Worker, holding: sa.Connection, verb: str
):
    stage = pg_stage
    halted, other = run_of(stage, worker, 2)
    job_actions.halt(holding, [halted.job_id], verb, None, now=stage.now())
    with writing(stage, worker):
        holding.commit()
    assert worker.settlements == [] and refused(stage) == 1
    state = {"stop": "blocked", "cancel": "cancelled"}[verb]
    assert stage.task(halted.job_id).state == state
    assert stage.job(other.job_id).state == "completed"


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_halt_between_the_tasks_and_the_jobs_of_a_turn_is_obeyed(
    pg_stage: Stage, worker: Worker, holding: sa.Connection, verb: str
):
    """The turn has locked the tasks, so the halt leaves the running one to it."""
    stage = pg_stage
    other, halted = run_of(stage, worker, 2)
    holding.exec_driver_sql(LOCK.format(other.job_id))
    with writing(stage, worker):
        assert verbs.VERBS[verb](stage.caller(), [halted.job_id]) == [halted.job_id]
        assert stage.task(halted.job_id).state == "running"
        holding.rollback()
    assert worker.settlements == [] and refused(stage) == 1
    state = {"stop": "blocked", "cancel": "cancelled"}[verb]
    assert (stage.task(halted.job_id).state, stage.job(other.job_id).state) == (state, "completed")
    assert stage.outcomes(halted.job_id) == ["stopped"]


def test_a_turn_that_waits_for_a_reaper_ends_nothing(
    pg_stage: Stage, worker: Worker, holding: sa.Connection
):
    stage = pg_stage
    [run] = run_of(stage, worker, 1)
    settle.reap(holding, now=stage.now(), dead=[worker.id])
    with writing(stage, worker):
        holding.commit()
    assert worker.settlements == [] and refused(stage) == 1
    assert stage.outcomes(run.job_id) == ["died"]
    assert (stage.task(run.job_id).state, stage.task(run.job_id).fence) == ("ready", run.fence + 1)


def test_the_last_two_tasks_of_a_job_that_two_workers_end_at_once_end_it_once(
    pg_stage: Stage, worker: Worker, holding: sa.Connection
):
    stage = pg_stage
    job = stage.one()
    [parent] = stage.claim()
    with fenced.ending(stage.db, *parent.key, worker_id="w1") as transaction:
        transaction.spawn("noop"), transaction.spawn("noop")
    mine, other = stage.claim(worker.id, limit=2)
    worker.settlements = [ending(mine)]
    settle.settle(holding, [ending(other)], now=stage.now())
    with writing(stage, worker):
        holding.commit()
    assert stage.job(job).state == "completed"
    assert stage.events(job).count("job.completed") == 1


def test_an_end_that_waits_for_too_long_is_written_by_a_later_turn(
    pg_stage: Stage, worker: Worker, holding: sa.Connection
):
    stage = pg_stage
    [run] = run_of(stage, worker, 1)
    holding.exec_driver_sql(LOCK.format(run.job_id))
    worker.db.close()
    worker.db = open_database(stage.db.url, lease_seconds=6)  # waits for 1.5 s
    with pytest.raises(DatabaseUnavailable, match="lock timeout"):
        worker._write(now=0.0)
    holding.rollback()
    worker._doubt()
    worker._write(now=0.0)
    assert worker.settlements == [] and refused(stage) == 0
    assert stage.outcomes(run.job_id) == ["done"]


#: What a migration may do while processes have prepared their statements.
MIGRATIONS = {
    "columns": [
        f"ALTER TABLE {table} ADD COLUMN more integer DEFAULT 1"
        for table in ("jobs", "tasks", "owners", "kinds", "submissions", "attempts")
    ],
    "indexes": ["DROP INDEX ix_tasks_running", "CREATE INDEX ix_more ON jobs (kind, state)"],
    "checks": ["ALTER TABLE tasks DROP CONSTRAINT ck_tasks_counts"],
}


def take(stage: Stage, *runs: Settlement) -> plain_turn.Turn:
    wanted = plain_turn.Wanted(("default",), tuple(KINDS), 1, TTL)
    return plain_turn.take(stage.db, "w1", runs, wanted)


@pytest.mark.parametrize("what", MIGRATIONS)
def test_statements_that_were_prepared_before_a_migration_work_after_it(pg_stage: Stage, what: str):
    stage = pg_stage
    stage.many(4)
    runs: list[Settlement] = []
    for at in range(4):
        turn = take(stage, *runs)
        assert (turn.is_left, turn.has_failed, len(turn.ended)) == (False, False, len(runs))
        runs = [ending(lease) for part in turn.claimed for lease in part.leases()]
        assert len(runs) == 1
        key = str(at)
        assert plain_submit.submit(stage.db, plain(key=key)) is not None
        if at == 1:
            with administrator(stage) as admin:
                for statement in MIGRATIONS[what]:
                    admin.execute(statement)
    assert [row.state for row in stage.rows("jobs")].count("completed") == 3


def test_sessions_that_forgot_their_statements_are_replaced(pg_stage: Stage, worker: Worker):
    """A pooler may give each transaction another session of the server."""
    stage = pg_stage
    stage.one()
    run_of(stage, worker, 2)
    for db in (stage.db, worker.db):
        stage.one()
        worker._write(now=0.0)
        assert db._calls is not None and db._calls._idle
        for session in db._calls._idle:
            session.execute("DISCARD ALL")
        run_of(stage, worker, 2)
        worker._write(now=0.0)
        assert worker.settlements == [] and refused(stage) == 0
