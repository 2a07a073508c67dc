"""Invariants are constraints first: the database itself refuses what no code may write."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from quire.model.states import JobState, Reason, TaskState
from quire.store.db.engine import Database
from quire.store.db.schema import queue as tables
from tests.store.stage import Stage, ending

READY, RUNNING, DONE = "ready", "running", "done"


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        ("tasks", "ck_tasks_state", TaskState),
        ("tasks", "ck_tasks_reason", Reason),
        ("jobs", "ck_jobs_state", JobState),
    ],
)
def test_a_state_column_accepts_just_the_states_of_the_model(table, name, words):
    [check] = [c for c in tables.metadata.tables[table].constraints if c.name == name]
    text = str(check.sqltext)  # type: ignore[attr-defined]
    assert sorted(part for part in text.split("'")[1::2]) == sorted(words)


BAD_TASKS = [
    "state = 'asleep'",
    "state = 'blocked'",  # without a reason
    "reason = 'due'",  # while ready
    "state = 'blocked', reason = 'bored'",
    "state = 'running'",  # without a lease
    "state = 'running', worker_id = 'w'",
    "worker_id = 'w', expires_at = 1",  # while ready
    "state = 'done'",  # without an end
    "finished_at = 1",  # while ready
    "due_at = 1",  # while ready
    "waits = -1",
    "attempt = -1",
    "crashes = -1",
    "job_id = 999",
]
BAD_JOBS = [
    "state = 'lost'",
    "state = 'completed'",  # without an end
    "finished_at = 1",  # while pending
    "priority = 0",
    "priority = 11",
    "progress = 1.01",
    "progress = -0.01",
    "tasks_ready = -1",
    "owner_id = 999",
]
BAD_OTHERS = [
    "UPDATE owners SET weight = 0",
    "UPDATE owners SET max_running = 0",
    "INSERT INTO edges (task_id) SELECT id FROM tasks",
    "INSERT INTO edges (task_id, before_job_id, before_task_id) SELECT id, 1, 1 FROM tasks",
    "INSERT INTO edges (task_id, before_job_id, on_failure) SELECT id, 1, 'hope' FROM tasks",
    "INSERT INTO edges (task_id, before_job_id) VALUES (999, 1)",
    "UPDATE workers SET state = 'tired'",
    "INSERT INTO owners (tenant, user_name) SELECT tenant, user_name FROM owners",
]


def test_a_bad_row_is_refused(stage: Stage):
    stage.claim()
    stage.one()
    statements = [
        *(f"UPDATE tasks SET {change}" for change in BAD_TASKS),
        *(f"UPDATE jobs SET {change}" for change in BAD_JOBS),
        *BAD_OTHERS,
    ]
    for statement in statements:
        with pytest.raises(sa.exc.IntegrityError), stage.db.begin() as conn:
            conn.exec_driver_sql(statement)
            pytest.fail(f"accepted: {statement}")


def test_a_run_is_remembered_once(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease))
    with pytest.raises(sa.exc.IntegrityError), stage.db.begin() as conn:
        conn.exec_driver_sql("INSERT INTO attempts SELECT * FROM attempts")


def test_two_running_jobs_of_one_exclusive_key_are_refused(stage: Stage):
    stage.many(2)
    with pytest.raises(sa.exc.IntegrityError), stage.db.begin() as conn:
        conn.exec_driver_sql("UPDATE jobs SET state = 'running', exclusive_key = 'user:1'")


def test_a_database_cannot_be_opened_without_what_the_end_of_a_task_calls(tmp_path):
    with pytest.raises(TypeError, match="on_ended"):
        Database.open(f"sqlite:///{tmp_path / 'quire.db'}")  # type: ignore[call-arg]
