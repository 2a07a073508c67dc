"""Guards that only a race or an unlikely order needs, each proved alone.

`tools/mutants.py` removes them one by one and runs these tests.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import DatabaseUnavailable, LeaseLost, UserBusy
from quire.model.records import Submission
from quire.model.states import TaskState
from quire.runtime.worker import sweep
from quire.settings import load
from quire.store.db import dialect
from quire.store.db.schema.queue import tasks
from quire.store.queue import claim, commit_recovery, fenced, job_actions, settle, transition
from tests.store.queue.test_concurrency import later
from tests.store.stage import KINDS, TTL, Stage, ending


def stray(stage: Stage) -> Any:
    """Make a running task whose job is stopped, as if a stop had missed it; returns its lease."""
    job = stage.one()
    [lease] = stage.claim()
    with stage.db.begin() as conn:
        conn.exec_driver_sql(
            f"UPDATE jobs SET state = 'stopped', finished_at = 1.0 WHERE id = {job}"
        )
    return lease


def test_a_stray_of_a_stopped_job_cannot_settle(stage: Stage):
    lease = stray(stage)
    assert stage.settle(ending(lease)) == set()
    task = stage.task(lease.job_id)
    assert (task.state, task.reason, task.fence) == ("blocked", "stopped", lease.fence + 1)


def test_a_stray_of_a_stopped_job_cannot_write(stage: Stage):
    lease = stray(stage)
    with (
        pytest.raises(LeaseLost),
        fenced.ending(stage.db, lease.task_id, lease.fence, worker_id="w1") as transaction,
    ):
        transaction.execute("INSERT INTO meta (key, value) VALUES ('written', 'late')")
    assert stage.rows("meta", key="written") == []
    with pytest.raises(LeaseLost):
        fenced.write(stage.db, lease.task_id, lease.fence, lambda transaction: None)
    stage.settle(ending(lease))


def test_a_sweep_ends_the_lease_of_a_stray(stage: Stage):
    lease = stray(stage)
    revoked = stage.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
    assert revoked == [lease.task_id]
    assert stage.task(lease.job_id).fence == lease.fence + 1


def test_a_stop_ends_leases_in_its_own_transaction(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    stage.db.write(lambda conn, now: job_actions.halt(conn, [job], "stop", None, now=now))
    assert (stage.task(job).state, stage.task(job).fence) == ("blocked", lease.fence + 1)


def test_a_stop_looks_again_for_a_claim_that_committed_meanwhile(pg_stage: Stage):
    job = pg_stage.one()
    pg_stage.claim(queue="slow")

    def halt() -> list[int]:
        return pg_stage.db.write(
            lambda conn, now: job_actions.halt(conn, [job], "stop", None, now=now)
        )

    with pg_stage.db.begin() as conn:
        [lease] = claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        thread, stopped = later(halt)
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert stopped == [[job]]
    assert (pg_stage.task(job).state, pg_stage.task(job).fence) == ("blocked", lease.fence + 1)


def test_two_claims_at_once_keep_a_cap(pg_stage: Stage):
    pg_stage.set_owner("ada", max_running=1)
    pg_stage.many(2)
    pg_stage.claim(queue="slow"), pg_stage.claim("w2", queue="slow")
    with pg_stage.db.begin() as conn:
        assert claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        thread, claimed = later(lambda: pg_stage.claim("w2"))
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert claimed == [[]]


@pytest.mark.parametrize("policy", ["replace", "reject"])
def test_a_submit_that_decides_by_policy_waits_for_the_one_before(pg_stage: Stage, policy: str):
    caller = pg_stage.caller(policy=policy)
    later_submits: list[tuple[threading.Thread, list[Any]]] = []

    def submit(then: Any = None) -> list[int]:
        try:
            return verbs.submit(caller, [Submission("noop")], then=then)
        except UserBusy:
            return []

    def begin_another(conn: object, ids: object, now: object) -> None:
        thread, made = later(submit)
        later_submits.append((thread, made))
        pg_stage.wait_until_one_waits(thread)

    pg_stage.one()
    pg_stage.run()
    [first] = submit(begin_another)
    [(thread, made)] = later_submits
    thread.join()
    active = [job.id for job in pg_stage.rows("jobs") if job.state == "pending"]
    assert active == ([first] if policy == "reject" else made[0])


def test_a_move_changes_no_task_that_has_left_its_source(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    row = (lease.task_id, 5, 1.0, 1.0)
    with stage.db.begin() as conn:
        moved = transition.transition(
            conn, [row], "release", source=TaskState.BLOCKED, now=stage.now(),
            columns=("priority", "fair_tag", "ready_at"),
        )  # fmt: skip
    assert moved == []
    assert stage.task(job).state == "running"


def test_a_release_sees_what_the_holder_of_the_row_has_written(pg_stage: Stage):
    job = pg_stage.one(run_at=pg_stage.now().wall + 10)
    pg_stage.clock.advance(11)
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE tasks SET waits = 1 WHERE job_id = {job}")
        thread, released = later(pg_stage.move_due)
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert (released, pg_stage.task(job).reason) == ([0], "after")
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE tasks SET waits = 0 WHERE job_id = {job}")
        transition.release(conn, [pg_stage.task(job).id], now=pg_stage.now())


def test_two_releases_at_once_give_an_owner_two_places(pg_stage: Stage):
    soon = pg_stage.now().wall + 10
    first, second = (pg_stage.task(pg_stage.one(run_at=soon)).id for _ in range(2))
    pg_stage.clock.advance(11)

    def release(task_id: int) -> int:
        with pg_stage.db.begin() as conn:
            return transition.release(conn, [task_id], now=pg_stage.now())

    with pg_stage.db.begin() as conn:
        transition.release(conn, [first], now=pg_stage.now())
        thread, _ = later(lambda: release(second))
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert len({row.fair_tag for row in pg_stage.rows("tasks")}) == 2


def test_a_renewal_does_not_wait_for_a_locked_task(pg_stage: Stage):
    pg_stage.many(2)
    first, second = pg_stage.claim(limit=2)
    with pg_stage.db.begin() as conn:
        dialect.lock_rows(conn, tasks, [first.task_id])
        # A renewal that waits would end with an error after the lock timeout.
        assert len(pg_stage.renew(first, second)) == 2


def test_a_deletion_that_waits_for_a_resume_deletes_nothing(pg_stage: Stage):
    job = pg_stage.one()
    verbs.stop(pg_stage.caller(), [job])
    with pg_stage.db.begin() as conn:
        job_actions.revive(conn, [job], "resume", now=pg_stage.now())
        thread, deleted = later(lambda: verbs.delete(pg_stage.caller(), [job]))
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert deleted == [[]]
    assert pg_stage.job(job).state == "pending"


def test_a_running_job_does_not_wait_for_one_that_waits_for_it(stage: Stage):
    first = stage.one(policy="queue")
    verbs.stop(stage.caller(), [first])
    second = stage.one(policy="queue")
    [lease] = stage.claim()
    assert lease.job_id == second
    verbs.resume(stage.caller(policy="queue"), [first])
    with fenced.ending(stage.db, lease.task_id, lease.fence, worker_id="w1") as transaction:
        transaction.spawn("noop", after=[transaction.spawn("noop")])
    assert stage.run() == [second]
    assert stage.run() == [second]
    assert stage.run() == [first]


def test_a_run_counts_as_recorded_only_as_it_was_settled(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    done = ending(lease, worker_id="w1")
    stage.settle(done)
    with stage.db.begin() as conn:
        for other in (ending(lease, worker_id="w2"), ending(lease, "fail", "failed")):
            assert commit_recovery.recorded(conn, [other]) == set()
        assert commit_recovery.recorded(conn, [done]) == {done.key}


def test_what_is_recorded_is_asked_after_a_commit_under_way(pg_stage: Stage):
    pg_stage.one()
    [lease] = pg_stage.claim()
    done = ending(lease, worker_id="w1")

    def ask() -> set[Any]:
        with pg_stage.db.begin() as conn:
            return set(commit_recovery.recorded(conn, [done]))

    with pg_stage.db.begin() as conn:
        settle.settle(conn, [done], now=pg_stage.now())
        thread, found = later(ask)
        pg_stage.wait_until_one_waits(thread)
    thread.join()
    assert found == [{done.key}]


def test_a_lost_connection_is_forgiven_only_if_the_commit_has_happened(stage: Stage):
    stage.one()
    [lease] = stage.claim()

    def lose() -> None:
        with fenced.confirm_commit(stage.db, lease.task_id, lease.fence):
            raise DatabaseUnavailable("gone")

    with pytest.raises(DatabaseUnavailable):
        lose()
    stage.settle(ending(lease))
    lose()


def test_a_step_that_was_stored_meanwhile_is_not_stored_again(stage: Stage):
    stage.one()
    [lease] = stage.claim()

    def compute() -> int:
        fenced.step(stage.db, lease.task_id, lease.fence, "count", lambda: 1, False)
        return 2

    assert fenced.step(stage.db, lease.task_id, lease.fence, "count", compute, False) == 1
    stage.settle(ending(lease))


def test_a_task_that_crashed_is_claimed_alone(stage: Stage):
    stage.many(3)
    stage.claim(limit=2)
    stage.reap("w1")

    def act(conn: sa.Connection, now: Any) -> list[Any]:
        how = {"now": now, "ttl": TTL, "limit": 3, "alone": 1}
        return claim.claim(conn, "w1", "default", KINDS, **how)

    assert sorted(lease.crashes for lease in stage.db.write(act)) == [0, 1]


def test_a_sweep_finishes_resumes_and_releases_what_waited_for_a_worker(
    stage: Stage, tmp_path: Path
):
    resumed, unknown = stage.one(), stage.one("other")
    verbs.stop(stage.caller(), [resumed])
    stage.claim("w1", known=["noop"])
    assert stage.task(unknown).reason == "no_worker"
    stage.db.write(lambda conn, now: job_actions.revive(conn, [resumed], "resume", now=now))
    sweep.sweep(stage.db, load({}, home=tmp_path), "w1", list(KINDS))
    assert sorted(stage.run()) == [resumed, unknown]


def test_rows_are_locked_in_the_order_of_their_ids(pg_stage: Stage):
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(statement)

    sa.event.listen(pg_stage.db.engine, "before_cursor_execute", note)
    with pg_stage.db.begin() as conn:
        dialect.lock_rows(conn, tasks, [2, 1])
        dialect.try_lock_rows(conn, tasks, [2, 1])
    sa.event.remove(pg_stage.db.engine, "before_cursor_execute", note)
    locking = [statement for statement in seen if "FOR NO KEY UPDATE" in statement]
    assert len(locking) == 2
    assert all("ORDER BY tasks.id" in statement for statement in locking)
