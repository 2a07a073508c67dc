"""The doctor finds each kind of damage, names it, and says nothing about a busy healthy database.

Damage is done by plain SQL on a connection with constraints out of the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

from quire.clock import FakeClock
from quire.control import doctor, jobs
from quire.model.records import Submission
from quire.store.db.schema.queue import metadata
from quire.store.doctor.queue_invariants import INVARIANTS
from quire.store.queue import settle
from tests.store.stage import Stage, ending

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

    from quire.store.db.engine import Database


@pytest.fixture
def busy(db: Database) -> Database:
    """A database with jobs in every state, a task for every reason to wait, and a live worker."""
    stage = Stage(db)
    jobs.pause(stage.caller(), "other")
    four = stage.many(4, priority=1)
    held = stage.claim(limit=4)
    stage.settle(
        ending(held[0]),
        ending(held[1], "fail", "permanent", error="boom"),
        ending(held[2], "retry", "transient", error="busy", due_in=60.0),
    )
    stage.submit(
        Submission("noop"),
        Submission("noop", after=[four[3]]),
        Submission("noop", run_at=2_000_000.0),
        Submission("other"),
        Submission("once", ref="pay"),
        Submission("noop", after=["pay"], after_failure="run"),
    )
    jobs.stop(stage.caller(), [stage.one()])
    jobs.cancel(stage.caller(), [stage.one(), stage.one(run_at=3_000_000.0)])
    stage.many(2, user="bob", policy="queue")
    return db


#: Unique indexes that would refuse a damage.
GUARDS = ("uq_jobs_exclusive", "uq_tasks_exclusive")


@contextlib.contextmanager
def unguarded(db: Database) -> Iterator[sa.Connection]:
    """A connection on which no constraint, reference or unique index stands in the way."""
    with db.engine.connect() as conn:
        if db.path is not None:
            driver = conn.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA foreign_keys = off")
            driver.execute("PRAGMA ignore_check_constraints = on")
            for name in GUARDS:
                driver.execute(f"DROP INDEX {name}")
        else:
            conn.exec_driver_sql("SET session_replication_role = replica")
            for name in GUARDS:
                conn.exec_driver_sql(f"DROP INDEX {name}")
            for table in metadata.sorted_tables:
                for each in table.constraints:
                    if str(each.name).startswith("ck_"):
                        sql = f"ALTER TABLE {table.name} DROP CONSTRAINT {each.name}"
                        conn.exec_driver_sql(sql)
        with contextlib.nullcontext() if conn.in_transaction() else conn.begin():
            yield conn
        conn.commit()
    db.engine.dispose()


class Damage(NamedTuple):
    """What is broken by which statements, and what else is then wrong of necessity."""

    name: str
    statements: tuple[str, ...]
    also: frozenset[str] = frozenset()


def damage(name: str, *statements: str, also: str = "") -> Damage:
    return Damage(name, statements, frozenset(also.split()))


# Some rows of `busy`, found by what they are.
READY = "(SELECT min(id) FROM tasks WHERE state = 'ready' AND NOT at_most_once)"
RUNNING = "(SELECT min(id) FROM tasks WHERE state = 'running')"
DONE = "(SELECT min(id) FROM tasks WHERE state = 'done')"
AFTER = "(SELECT min(id) FROM tasks WHERE reason = 'after')"
PAY = "(SELECT min(id) FROM tasks WHERE at_most_once)"
EDGE = "(SELECT min(id) FROM edges WHERE satisfied_at IS NULL)"
PENDING_JOB = f"(SELECT job_id FROM tasks WHERE id = {READY})"


def job_of(task: str) -> str:
    return f"(SELECT job_id FROM tasks WHERE id = {task})"


def attempt(task: str, fence: str, outcome: str, at: float = 1_000_000.0) -> str:
    return (
        "INSERT INTO attempts (task_id, fence, attempt, finished_at, outcome) "
        f"SELECT {task}, {fence}, 1, {at}, '{outcome}'"
    )


def edge(column: str, before: str, task: str) -> str:
    return (
        f"INSERT INTO edges (id, {column}, task_id, on_failure) "
        f"SELECT 900 + count(*), {before}, {task}, 'cancel' FROM edges"
    )


DAMAGES = [
    damage("jobs.constraints", f"UPDATE jobs SET finished_at = 5 WHERE id = {PENDING_JOB}"),
    damage("jobs.constraints", f"UPDATE jobs SET progress = 1.5 WHERE id = {PENDING_JOB}"),
    damage("jobs.constraints", f"UPDATE jobs SET priority = 11 WHERE id = {PENDING_JOB}"),
    damage(
        "jobs.constraints",
        f"UPDATE jobs SET state = 'asleep' WHERE id = {PENDING_JOB}",
    ),
    damage("tasks.constraints", f"UPDATE tasks SET reason = NULL WHERE id = {AFTER}"),
    damage("tasks.constraints", f"UPDATE tasks SET reason = 'cap' WHERE id = {DONE}"),
    damage("tasks.constraints", f"UPDATE tasks SET expires_at = NULL WHERE id = {RUNNING}"),
    damage("tasks.constraints", f"UPDATE tasks SET finished_at = NULL WHERE id = {DONE}"),
    damage("tasks.constraints", f"UPDATE tasks SET due_at = 5 WHERE id = {READY}"),
    damage("tasks.constraints", f"UPDATE tasks SET attempt = -1 WHERE id = {READY}"),
    damage("edges.constraints", f"UPDATE edges SET on_failure = 'cry' WHERE id = {EDGE}"),
    damage("owners.constraints", "UPDATE owners SET weight = 0 WHERE user_name = 'ada'"),
    damage("workers.constraints", "INSERT INTO workers (id, host, pid, boot_id, pid_start, "
           "lock_path, queues, kinds, concurrency, state, started_at, heartbeat_at) "
           "SELECT 'w9', host, pid, boot_id, pid_start, lock_path, queues, kinds, concurrency, "
           "'lost', started_at, heartbeat_at FROM workers"),
    damage("jobs.owner_id", f"UPDATE jobs SET owner_id = 99 WHERE id = {PENDING_JOB}",
           f"UPDATE tasks SET owner_id = 99 WHERE job_id = {PENDING_JOB}"),
    damage("tasks.job_id", f"UPDATE tasks SET job_id = 999 WHERE id = {DONE}",
           also="jobs.counters jobs.costs"),
    damage("edges.task_id", edge("before_job_id", job_of(RUNNING), "999")),
    damage("attempts.task_id", attempt("999", "1", "done")),
    damage("steps.task_id", "INSERT INTO steps VALUES (999, 's', 1, NULL, 5)"),
    damage("edges.before_job_id", f"UPDATE edges SET before_job_id = 999 WHERE id = {EDGE}"),
    damage("edges.before_task_id", edge("before_task_id", "999", AFTER),
           f"UPDATE tasks SET waits = waits + 1 WHERE id = {AFTER}"),
    damage("tasks.parent_id", f"UPDATE tasks SET parent_id = 999 WHERE id = {READY}"),
    damage("jobs.counters", f"UPDATE jobs SET tasks_done = 7 WHERE id = {PENDING_JOB}"),
    damage("jobs.costs", f"UPDATE jobs SET cost_total = 7 WHERE id = {PENDING_JOB}"),
    damage("jobs.costs", "UPDATE jobs SET cost_done = 0.5 WHERE state = 'completed'"),
    damage("jobs.state", f"UPDATE jobs SET state = 'pending' WHERE id = {job_of(RUNNING)}"),
    damage("jobs.state",
           f"UPDATE jobs SET state = 'completed', finished_at = 5 WHERE id = {PENDING_JOB}"),
    damage("jobs.state", "UPDATE jobs SET state = 'failed' WHERE state = 'completed'"),
    damage("jobs.state",
           "UPDATE jobs SET state = 'running', finished_at = NULL WHERE state = 'completed'"),
    damage("jobs.swept",
           f"UPDATE jobs SET state = 'stopped', finished_at = 5 WHERE id = {PENDING_JOB}"),
    damage("jobs.exclusive",
           "UPDATE jobs SET exclusive_key = 'k', state = 'running' WHERE id IN "
           f"({PENDING_JOB}, {job_of(RUNNING)})"),
    damage("tasks.exclusive",
           f"UPDATE tasks SET exclusive_key = 'k' WHERE id IN ({RUNNING}, {READY})",
           f"UPDATE tasks SET state = 'running', worker_id = 'w1', expires_at = 1e9 "
           f"WHERE id = {READY}", also="jobs.counters"),
    damage("tasks.owner", f"UPDATE tasks SET owner_id = owner_id + 1 WHERE id = {READY}"),
    damage("tasks.owner", f"UPDATE tasks SET parent_id = {DONE} WHERE id = {READY}"),
    damage("tasks.progress", f"UPDATE tasks SET progress = 2 WHERE id = {DONE}"),
    damage("tasks.progress", f"UPDATE tasks SET fair_tag = -1 WHERE id = {READY}"),
    damage("tasks.priority", f"UPDATE tasks SET priority = priority + 1 WHERE id = {READY}"),
    damage("tasks.due_at", "UPDATE tasks SET due_at = NULL WHERE reason = 'backoff'"),
    damage("tasks.due_at", "UPDATE tasks SET due_at = NULL WHERE reason = 'due'"),
    damage("tasks.due_at",
           "UPDATE tasks SET due_at = NULL, reason = 'lock_held' WHERE reason = 'backoff'"),
    damage("tasks.waits", f"UPDATE tasks SET waits = waits + 1 WHERE id = {AFTER}"),
    damage("tasks.after", f"UPDATE edges SET satisfied_at = 5 WHERE task_id = {AFTER}",
           f"UPDATE tasks SET waits = 0 WHERE id = {AFTER}"),
    damage("tasks.ready", edge("before_job_id", job_of(RUNNING), READY),
           f"UPDATE tasks SET waits = 1 WHERE id = {READY}"),
    damage("tasks.user_busy", "UPDATE jobs SET exclusive_key = NULL WHERE exclusive_key <> ''"),
    damage("tasks.cap", "UPDATE tasks SET reason = 'cap' WHERE reason = 'paused'"),
    damage("tasks.paused", "UPDATE kinds SET paused_at = NULL"),
    damage("tasks.stopped", "UPDATE tasks SET reason = 'stopped' WHERE reason = 'paused'"),
    damage("leases.in_time", f"UPDATE tasks SET expires_at = 5 WHERE id = {RUNNING}"),
    damage("leases.holder", "UPDATE workers SET state = 'dead', stopped_at = 5"),
    damage("attempts.fence", attempt(READY, "5", "died")),
    damage("attempts.fence", attempt(RUNNING, f"(SELECT fence FROM tasks WHERE id = {RUNNING})",
                                     "transient")),
    damage("attempts.once", attempt(DONE, "0", "done")),
    damage("attempts.seen", "DELETE FROM attempts WHERE outcome = 'done'"),
    damage("attempts.at_most_once", attempt(PAY, "0", "died")),
    damage("attempts.at_most_once", attempt(PAY, "1", "died"), attempt(PAY, "2", "died"),
           f"UPDATE tasks SET fence = 3, state = 'blocked', reason = 'no_worker' WHERE id = {PAY}",
           f"UPDATE jobs SET tasks_ready = 0, tasks_blocked = 1 WHERE id = {job_of(PAY)}"),
    damage("edges.stale", f"UPDATE edges SET before_job_id = {job_of(DONE)} WHERE id = {EDGE}"),
    damage("edges.stale", edge("before_task_id", DONE, AFTER),
           f"UPDATE tasks SET waits = waits + 1 WHERE id = {AFTER}"),
    damage("edges.cycle", f"UPDATE edges SET before_job_id = {job_of(AFTER)} WHERE id = {EDGE}"),
    damage("edges.cycle", edge("before_task_id", AFTER, AFTER),
           f"UPDATE tasks SET waits = waits + 1 WHERE id = {AFTER}"),
]  # fmt: skip


def test_a_busy_healthy_database_has_no_violation(busy: Database):
    report = doctor.examine(busy)
    assert (report.violations, report.checked) == ([], len(doctor.ALL) + 2)
    assert report.is_healthy


def test_an_empty_database_has_no_violation(db: Database):
    assert doctor.examine(db).is_healthy


@pytest.mark.parametrize("harm", DAMAGES, ids=lambda harm: harm.name)
def test_each_damage_is_found_and_named(busy: Database, harm: Damage):
    with unguarded(busy) as conn:
        for statement in harm.statements:
            assert conn.exec_driver_sql(statement).rowcount, statement
    found = {v.name: v for v in doctor.examine(busy).violations}
    assert set(found) == {harm.name, *harm.also}
    assert found[harm.name].count == len(found[harm.name].examples) > 0
    assert found[harm.name].sentence.endswith(".")


def test_every_invariant_has_a_damage_that_proves_it():
    names = [invariant.name for invariant in INVARIANTS]
    apart = {"file.pages", "jobs.next_id", "tasks.next_id"}  # in the two tests below
    assert {harm.name for harm in DAMAGES} | apart == set(names)
    assert len(set(names)) == len(names)


def test_a_page_of_the_file_that_two_tables_claim_is_found(tmp_path: Path):
    from quire.store import open_database

    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}")
    db.migrate()
    with db.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE spare (x)")
        conn.exec_driver_sql("PRAGMA writable_schema = on")
        conn.exec_driver_sql(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master "
            "WHERE name = 'steps') WHERE name = 'spare'"
        )
    db.engine.dispose()
    [found] = doctor.examine(db).violations
    assert found.name == "file.pages"
    assert "reference to page" in str(found.examples)
    db.close()


@pytest.mark.parametrize("table", ["jobs", "tasks"])
def test_ids_that_may_be_given_again_are_found(busy: Database, table: str):
    behind = f"SELECT setval('{table}_id_seq', 2)"
    if busy.path is not None:
        behind = f"DROP TRIGGER {table}_last_id"
    with busy.begin() as conn:
        conn.exec_driver_sql(behind)
    assert [v.name for v in doctor.examine(busy).violations] == [f"{table}.next_id"]


def test_another_schema_version_is_named_and_nothing_else_is_asked(busy: Database):
    with busy.begin() as conn:
        conn.exec_driver_sql("UPDATE meta SET value = '0' WHERE key = 'schema_version'")
    report = doctor.examine(busy)
    assert [v.name for v in report.violations] == ["schema.version"]
    assert "quire migrate" in report.violations[0].sentence


def test_many_breaks_are_counted_and_a_few_are_named(busy: Database):
    with unguarded(busy) as conn:
        conn.exec_driver_sql("UPDATE tasks SET progress = 2")
    [found] = doctor.examine(busy).violations
    assert found.count > len(found.examples) == doctor.SHOWN
    assert doctor.examine(busy).as_json()["violations"][0]["count"] == found.count


def test_what_a_sweep_will_mend_is_let_pass_for_two_sweeps(busy: Database):
    clock = busy.clock
    assert isinstance(clock, FakeClock)
    clock.advance(60 + 15)
    assert doctor.examine(busy).is_healthy
    clock.advance(10)
    assert [v.name for v in doctor.examine(busy).violations] == ["leases.in_time"]
    with busy.begin() as conn:
        settle.reap(conn, now=busy.now(conn))
    assert doctor.examine(busy).is_healthy


def test_a_broken_constraint_is_named_with_its_row(busy: Database):
    with unguarded(busy) as conn:
        [task] = conn.exec_driver_sql(f"SELECT {AFTER}").scalars()
        conn.exec_driver_sql(f"UPDATE tasks SET reason = NULL WHERE id = {task}")
    [found] = doctor.examine(busy).violations
    assert found.examples == [f"{task} ck_tasks_blocked"]


def test_a_person_may_ask_for_a_second_run_of_what_must_not_run_twice(db: Database):
    stage = Stage(db)
    job = stage.one("once")
    stage.claim()
    stage.reap("w1")
    assert jobs.retry(stage.caller(), [job]) == [job]
    [lease] = stage.claim()
    assert doctor.examine(db).violations == []
    stage.settle(ending(lease))
    assert doctor.examine(db).violations == []


def test_a_user_s_job_that_waits_for_a_later_one_lets_it_pass(db: Database):
    stage = Stage(db)
    wishes = Submission("noop", after=["later"]), Submission("noop", ref="later")
    first, later = stage.submit(*wishes, user="bob", policy="queue")
    assert doctor.examine(db).violations == []
    assert stage.run() == [later]
    assert stage.run() == [first]


def test_a_cap_that_is_lifted_while_a_task_waits_for_it_is_found(db: Database):
    stage = Stage(db)
    stage.many(2)
    stage.set_owner("ada", max_running=1)
    stage.claim(limit=2)
    with db.begin() as conn:
        conn.exec_driver_sql("UPDATE owners SET max_running = NULL")
    assert [v.name for v in doctor.examine(db).violations] == ["tasks.cap"]
