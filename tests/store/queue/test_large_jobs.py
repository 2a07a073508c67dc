"""A job of any size can be stopped, resumed, retried, reprioritised and deleted, in batches."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import NotFound
from quire.runtime.worker import sweep
from quire.settings import load
from quire.store.db.schema.queue import jobs, tasks
from quire.store.queue import fenced, job_actions, transition
from tests.store.stage import KINDS, Stage, ending
from tests.waiting import until

#: More than two batches.
MANY = 2_500
_SQLITE_COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
_POSTGRES_COUNT = "WITH n(i) AS (SELECT generate_series(1, {count}))"


def grow(stage: Stage, job_id: int, state: str, count: int) -> None:
    """Give a job `count` more tasks in a state, copied from its first."""
    row = stage.rows("tasks", job_id=job_id)[0]
    values: dict[str, Any] = dict(row._mapping) | {
        "state": state,
        "reason": "stopped" if state == "blocked" else None,
        "finished_at": 1.0 if state in ("failed", "cancelled", "done") else None,
        "ready_at": 1.0 if state == "ready" else None,
        "worker_id": None,
        "expires_at": None,
        "parent_id": row.id,
    }
    columns = [c.name for c in tasks.c if c.name != "id"]
    counted = _POSTGRES_COUNT if stage.is_postgres else _SQLITE_COUNT
    picked = ", ".join(f":{name}" for name in columns)
    with stage.db.begin() as conn:
        last = conn.scalar(sa.select(sa.func.max(tasks.c.id)))
        conn.execute(
            sa.text(
                f"{counted.format(count=count)} INSERT INTO tasks (id, {', '.join(columns)}) "
                f"SELECT {last} + i, {picked} FROM n"
            ).bindparams(*(sa.bindparam(c, values[c], tasks.c[c].type) for c in columns))
        )
        if stage.is_postgres:
            conn.exec_driver_sql(f"SELECT setval('tasks_id_seq', {last + count})")
        column = jobs.c[f"tasks_{state}"]
        over = count if state in ("failed", "done") else 0
        conn.execute(
            sa.update(jobs).where(jobs.c.id == job_id).values(
                {
                    column: column + count,
                    "cost_total": jobs.c.cost_total + count,
                    "cost_done": jobs.c.cost_done + over,
                }
            )
        )  # fmt: skip


def states(stage: Stage, job_id: int) -> Counter[str]:
    query = sa.select(tasks.c.state, sa.func.count()).where(tasks.c.job_id == job_id)
    with stage.db.read() as conn:
        return Counter(dict(conn.execute(query.group_by(tasks.c.state)).all()))


@contextmanager
def bounded(stage: Stage) -> Iterator[None]:
    """Fail if a statement changes more rows than a batch has, or has a parameter for each task."""

    def check(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        assert len(parameters) <= 100, statement
        if not statement.startswith("SELECT"):
            assert cursor.rowcount <= job_actions.BATCH, statement

    sa.event.listen(stage.db.engine, "after_cursor_execute", check)
    try:
        yield
    finally:
        sa.event.remove(stage.db.engine, "after_cursor_execute", check)


def test_a_large_job_is_stopped_resumed_reprioritised_and_cancelled(stage: Stage):
    job = stage.one()
    grow(stage, job, "ready", MANY)
    total = MANY + 1
    with bounded(stage):
        assert verbs.stop(stage.caller(), [job]) == [job]
        assert states(stage, job) == {"blocked": total}
        assert verbs.resume(stage.caller(), [job]) == [job]
        assert states(stage, job) == {"ready": total}
        assert verbs.reprioritise(stage.caller(), [job], 3) == [job]
        with stage.db.read() as conn:
            assert set(conn.scalars(sa.select(tasks.c.priority).distinct())) == {3}
        assert verbs.cancel(stage.caller(), [job]) == [job]
        assert states(stage, job) == {"cancelled": total}
    stage.inspect()


def test_a_large_failed_job_is_retried_and_deleted(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    grow(stage, job, "failed", MANY)
    stage.settle(ending(lease, "fail", "failed", error="x"))
    with bounded(stage):
        assert verbs.resume(stage.caller(), [job]) == [job]
        assert states(stage, job) == {"ready": MANY + 1}
        verbs.cancel(stage.caller(), [job])
        assert verbs.delete(stage.caller(), [job]) == [job]
    assert (stage.count("jobs"), stage.count("tasks"), stage.count("attempts")) == (0, 0, 0)
    stage.inspect()


def chain(stage: Stage, *kinds: str) -> int:
    """Submit a job whose task spawns tasks that wait for each other."""
    job = stage.one()
    [lease] = stage.claim()
    with fenced.ending(stage.db, lease.task_id, lease.fence, worker_id="w1") as transaction:
        before: list[Any] = []
        for kind in kinds:
            before = [transaction.spawn(kind, after=before)]
    return job


@pytest.mark.parametrize("verb", ["resume", "retry", "retry --failed"])
def test_a_job_that_runs_again_also_runs_what_its_failure_cancelled(stage: Stage, verb):
    job = chain(stage, "noop", "noop", "noop")
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "failed", error="disk full"))
    assert states(stage, job) == {"done": 1, "failed": 1, "cancelled": 2}
    if verb == "resume":
        verbs.resume(stage.caller(), [job])
    else:
        verbs.retry(stage.caller(), [job], only_failed="failed" in verb)
    assert states(stage, job) == {"done": 1, "ready": 1, "blocked": 2}
    for left in (2, 1, 0):
        [lease] = stage.claim(limit=5)
        stage.settle(ending(lease))
        assert states(stage, job)["blocked"] == max(0, left - 1)
    assert stage.job(job).state == "completed"
    stage.inspect()


def test_what_waits_for_a_task_that_is_not_run_again_stays_cancelled(stage: Stage):
    job = chain(stage, "once", "noop")
    stage.claim()
    stage.reap("w1")
    assert states(stage, job) == {"done": 1, "lost": 1, "cancelled": 1}
    verbs.resume(stage.caller(), [job])
    assert states(stage, job) == {"done": 1, "lost": 1, "cancelled": 1}
    assert stage.job(job).state == "failed"
    verbs.retry(stage.caller(), [job], only_failed=True)
    assert states(stage, job) == {"done": 1, "ready": 1, "blocked": 1}


def test_what_a_person_cancelled_stays_cancelled_when_failed_tasks_run_again(stage: Stage):
    job = stage.one()
    verbs.cancel(stage.caller(), [job])
    grow(stage, job, "failed", 2)
    verbs.retry(stage.caller(), [job], only_failed=True)
    assert states(stage, job) == {"ready": 2, "cancelled": 1}


def finish(stage: Stage) -> None:
    """Sweep as often as it takes: one sweep of a slow machine may not do everything."""
    ids = [1]
    while ids:
        sweep.finish_actions(stage.db)
        with stage.db.read() as conn:
            ids = job_actions.unfinished(conn)


def in_batches_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Make batches small, so that a few tasks need several."""
    for name in ("finish", "collect", "sweep_halted", "reorder"):
        act = getattr(job_actions, name)
        monkeypatch.setitem(act.__kwdefaults__, "limit", size)


def test_a_retry_whose_process_died_after_a_batch_is_finished_by_a_sweep(stage: Stage, monkeypatch):
    in_batches_of(monkeypatch, 2)
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "failed", error="x"))
    grow(stage, job, "failed", 8)
    with stage.db.begin() as conn:
        job_actions.revive(conn, [job], "retry", now=stage.now())
    with stage.db.begin() as conn:
        assert job_actions.finish(conn, [job], now=stage.now())
    assert states(stage, job) == {"failed": 7, "blocked": 2}
    assert stage.claim() == []
    # Nothing of it runs, and it does not end, before all of its tasks are revived.
    stage.clock.advance(60)
    assert stage.move_due() == 0
    stage.inspect()
    finish(stage)
    assert states(stage, job) == {"ready": 9}
    assert len(stage.run(limit=20)) == 9
    assert stage.job(job).state == "completed"


def test_a_job_stopped_halfway_through_a_retry_does_the_rest_when_resumed(
    stage: Stage, monkeypatch
):
    in_batches_of(monkeypatch, 2)
    job = stage.one()
    verbs.cancel(stage.caller(), [job])
    grow(stage, job, "cancelled", 5)
    with stage.db.begin() as conn:
        job_actions.revive(conn, [job], "retry", now=stage.now())
        job_actions.finish(conn, [job], now=stage.now())
    verbs.stop(stage.caller(), [job])
    assert states(stage, job) == {"cancelled": 4, "blocked": 2}
    sweep.finish_actions(stage.db)
    assert states(stage, job) == {"cancelled": 4, "blocked": 2}
    verbs.resume(stage.caller(), [job])
    assert states(stage, job) == {"ready": 6}


def test_a_reprioritisation_whose_process_died_is_finished_by_a_sweep(stage: Stage, monkeypatch):
    in_batches_of(monkeypatch, 2)
    job = stage.one(priority=5)
    grow(stage, job, "ready", 6)
    with stage.db.begin() as conn:
        job_actions.reprioritise(conn, [job], 2, now=stage.now())
        job_actions.reorder(conn, [job], now=stage.now())
    assert Counter(row.priority for row in stage.rows("tasks")) == {2: 2, 5: 5}
    finish(stage)
    assert Counter(row.priority for row in stage.rows("tasks")) == {2: 7}
    stage.inspect()


def test_a_job_that_is_being_deleted_is_gone_for_everyone(stage: Stage, monkeypatch):
    in_batches_of(monkeypatch, 2)
    job = chain(stage, "noop", "noop")
    grow(stage, job, "ready", 8)
    verbs.stop(stage.caller(), [job])
    with stage.db.begin() as conn:
        assert job_actions.delete(conn, [job], now=stage.now()) == [job]
    left = stage.count("tasks")
    assert 0 < left < 11
    for verb in ("resume", "delete"):
        with pytest.raises(NotFound):
            verbs.one(stage.caller(), verb, job)
    with pytest.raises(NotFound):
        stage.one(after=[job])
    assert verbs.in_bulk(stage.caller(), "resume") == 0
    stage.inspect()
    has_more = True
    while has_more:
        has_more = stage.db.write(lambda conn, now: job_actions.collect(conn, now=now))
        stage.inspect()
    for table in ("jobs", "tasks", "attempts", "edges", "steps"):
        assert stage.count(table) == 0, table
    assert [row.name for row in stage.rows("events")] == ["job.deleted"]


def test_events_of_other_jobs_survive_a_deletion(stage: Stage):
    gone, kept = stage.many(2)
    verbs.stop(stage.caller(), [gone, kept])
    verbs.delete(stage.caller(), [gone])
    assert stage.events(kept) == ["job.stopped"]
    assert stage.events(gone) == []


def half_revived(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make a job with six failed tasks of which two are revived."""
    in_batches_of(monkeypatch, 2)
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "failed", error="x"))
    grow(stage, job, "failed", 5)
    with stage.db.begin() as conn:
        job_actions.revive(conn, [job], "retry", now=stage.now())
        job_actions.finish(conn, [job], now=stage.now())
    assert states(stage, job) == {"failed": 4, "blocked": 2}
    return job


def test_no_task_is_released_before_all_are_revived(stage: Stage, monkeypatch):
    job = half_revived(stage, monkeypatch)
    with stage.db.begin() as conn:
        ids = conn.scalars(sa.select(tasks.c.id).where(tasks.c.state == "blocked")).all()
        assert transition.release(conn, ids, now=stage.now()) == 0
    assert states(stage, job) == {"failed": 4, "blocked": 2}


def test_a_job_does_not_end_while_it_is_being_revived(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "failed", error="x"))
    with stage.db.begin() as conn:
        job_actions.revive(conn, [job], "retry", now=stage.now())
        moves = transition.Transition(conn, stage.now())
        moves.touch([job])
        moves.conclude()
    assert stage.job(job).state == "pending"
    finish(stage)
    assert stage.run() == [job]


#: Runs a verb, and dies like a process of which nothing is left, inside its third batch.
DIES = """
import os, signal, sys
import sqlalchemy as sa
from quire.control import jobs
from quire.control.caller import Caller
from quire.store import open_database
from tests.store.stage import KINDS

url, verb, job_id, *more = sys.argv[1:]
db, batches, has_moved = open_database(url), 0, False

def see(conn, cursor, statement, *_):
    global has_moved
    has_moved = has_moved or "UPDATE tasks" in statement or "DELETE FROM tasks" in statement

def commit(conn):
    global batches, has_moved
    batches, has_moved = batches + has_moved, False
    if batches == 3:
        os.kill(os.getpid(), signal.SIGKILL)

sa.event.listen(db.engine, "before_cursor_execute", see)
sa.event.listen(db.engine, "commit", commit)
caller = Caller(db, tenant="default", user="ada", policy="all", known=lambda: KINDS)
getattr(jobs, verb)(caller, [int(job_id)], *map(int, more))
"""
#: How a job of `MANY + 1` tasks is made ready for a verb, and how that verb leaves its tasks.
KILLED = {
    "stop": ([], {"blocked": MANY + 1}),
    "resume": (["stop"], {"ready": MANY + 1}),
    "cancel": ([], {"cancelled": MANY + 1}),
    "retry": (["cancel"], {"ready": MANY + 1}),
    "reprioritise": ([], {"ready": MANY + 1}),
    "delete": (["stop"], {}),
}


def test_what_a_killed_process_left_of_a_verb_is_done_by_the_sweep(stage: Stage, tmp_path: Path):
    made = {verb: stage.one() for verb in KILLED}
    for verb, job in made.items():
        grow(stage, job, "ready", MANY)
        for before in KILLED[verb][0]:
            getattr(verbs, before)(stage.caller(), [job])
    killed = {
        verb: subprocess.Popen(
            [sys.executable, "-c", DIES, stage.db.url, verb, str(job)]
            + (["3"] if verb == "reprioritise" else [])
        )
        for verb, job in made.items()
    }
    codes = {verb: each.wait(100) for verb, each in killed.items()}
    assert codes == dict.fromkeys(KILLED, -signal.SIGKILL)
    expected = {verb: after for verb, (_, after) in KILLED.items()}

    def found() -> dict[str, Counter[str]]:
        return {verb: states(stage, job) for verb, job in made.items()}

    def priorities() -> set[int]:
        of_job = tasks.c.job_id == made["reprioritise"]
        with stage.db.read() as conn:
            return set(conn.scalars(sa.select(tasks.c.priority).where(of_job)))

    done = {verb for verb, after in found().items() if after == expected[verb]}
    assert done == {"reprioritise"} and priorities() == {3, 5}, "somebody came to the end"
    settings = load({}, home=tmp_path)

    def is_done_after_a_sweep() -> bool:
        sweep.sweep(stage.db, settings, "w1", list(KINDS))
        stage.db.write(lambda conn, now: job_actions.collect(conn, now=now))  # as the scheduler
        return found() == expected and priorities() == {3}

    until(is_done_after_a_sweep, what=lambda: f"{found()}, {priorities()}")
