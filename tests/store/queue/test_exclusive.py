"""Exclusive steps of a document: two tasks of one key never run at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from quire.clock import Instant
from quire.control import jobs
from quire.model.outcomes import Lease
from quire.store import open_database
from quire.store.queue import claim
from quire.store.queue.claim import KEY_TRIES
from quire.store.queue.release import KEY_SECONDS
from tests.store.stage import KINDS, TTL, Stage, ending


def lock_together(stage: Stage, *job_ids: int, key: str = "document 1") -> None:
    """Give the tasks of some jobs one key."""
    some = ", ".join(map(str, job_ids))
    with stage.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE tasks SET exclusive_key = '{key}' WHERE job_id IN ({some})")


def test_of_two_ready_tasks_with_one_key_one_runs_and_one_waits(stage: Stage):
    first, second, free = stage.many(3)
    lock_together(stage, first, second)
    assert [lease.job_id for lease in stage.claim(limit=3)] == [first, free]
    waits = stage.task(second)
    assert (waits.state, waits.reason, waits.lock_tries) == ("blocked", "lock_held", 1)
    assert waits.due_at == stage.now().wall + KEY_SECONDS == stage.now().wall + 15


def test_a_key_that_a_running_task_has_keeps_later_claims_off(stage: Stage):
    first, second = stage.many(2)
    lock_together(stage, first, second)
    [lease] = stage.claim("w1")
    assert lease.job_id == first
    assert stage.claim("w2") == []
    assert stage.task(second).reason == "lock_held"


def test_keys_of_different_documents_do_not_meet(stage: Stage):
    first, second = stage.many(2)
    lock_together(stage, first)
    lock_together(stage, second, key="document 2")
    assert len(stage.claim(limit=2)) == 2


def test_the_one_that_waited_runs_when_the_key_is_free(stage: Stage):
    first, second = stage.many(2)
    lock_together(stage, first, second)
    [lease] = stage.claim(limit=2)
    stage.settle(ending(lease))
    assert stage.claim() == []
    stage.clock.advance(KEY_SECONDS)
    assert stage.move_due() == 1
    assert [lease.job_id for lease in stage.claim()] == [second]


def give_up(stage: Stage, holder: Lease) -> list[Lease]:
    """Let the second task of the key meet its holder until it is given up."""
    for _ in range(KEY_TRIES - 1):
        assert stage.claim() == []
        stage.clock.advance(KEY_SECONDS)
        stage.renew(holder)
        stage.move_due()
    return stage.claim()


def test_a_task_that_met_its_key_held_ten_times_is_given_up_with_a_plain_reason(stage: Stage):
    first, second = stage.many(2)
    lock_together(stage, first, second)
    [holder] = stage.claim()
    assert give_up(stage, holder) == []
    row = stage.task(second)
    assert (row.state, row.attempt, row.lock_tries) == ("failed", 0, 10)
    assert row.error == "another task of the same document was running at each of 10 tries"
    assert (stage.job(second).state, stage.job(second).error) == ("failed", row.error)
    assert [name for name in stage.events(second) if name.endswith(("fail", "failed"))] == [
        "task.fail",
        "job.failed",
    ]
    assert stage.task(first).state == "running"


def test_a_task_that_is_revived_after_that_has_ten_tries_again(stage: Stage):
    first, second = stage.many(2)
    lock_together(stage, first, second)
    [holder] = stage.claim()
    give_up(stage, holder)
    jobs.retry(stage.caller(), [second])
    assert stage.claim() == []
    assert (stage.task(second).state, stage.task(second).reason) == ("blocked", "lock_held")


def test_what_waited_for_a_task_that_was_given_up_does_not_wait_for_ever(stage: Stage):
    first, second = stage.many(2)
    after = stage.one(after=[second])
    lock_together(stage, first, second)
    [holder] = stage.claim()
    give_up(stage, holder)
    assert stage.job(after).state == "cancelled"


def test_the_next_job_of_a_user_goes_when_the_one_before_it_was_given_up(stage: Stage):
    other = stage.one(user="bob")
    mine = stage.one(policy="queue")
    following = stage.one(policy="queue")
    lock_together(stage, other, mine)
    [holder] = stage.claim()
    assert holder.job_id == other
    assert stage.task(following).reason == "user_busy"
    # The claim that gives up the one looks on and finds the other.
    assert [lease.job_id for lease in give_up(stage, holder)] == [following]
    assert stage.job(mine).state == "failed"


def test_the_database_itself_refuses_two_running_tasks_of_one_key(stage: Stage):
    first, _ = stage.many(2)
    [a, b] = stage.claim(limit=2)
    lock = "UPDATE tasks SET exclusive_key = 'document 1' WHERE id IN (%d, %d)"
    with pytest.raises(sa.exc.IntegrityError), stage.db.begin() as conn:
        conn.exec_driver_sql(lock % (a.task_id, b.task_id))
    assert stage.task(first).exclusive_key is None


def test_two_claimers_at_the_same_instant_never_run_one_key_twice(pg_stage: Stage, pg_url: str):
    first, second = pg_stage.many(2)
    lock_together(pg_stage, first, second)
    pg_stage.claim("w2", queue="slow")  # so that both workers are known
    taken: list[list[Lease]] = []

    def claim_too() -> None:
        db = open_database(pg_url)
        db.clock = pg_stage.clock
        taken.append(
            db.write(lambda conn, now: claim.claim(conn, "w2", "default", KINDS, now=now, ttl=TTL))
        )
        db.close()

    late = threading.Thread(target=claim_too)
    with pg_stage.db.begin() as conn:
        # The first claim is not committed yet: the other one sees no running task of the key.
        [mine] = claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        late.start()
        pg_stage.wait_until_one_waits()
    late.join()
    assert mine.job_id == first
    assert taken == [[]]
    assert (pg_stage.task(second).state, pg_stage.task(second).reason) == ("blocked", "lock_held")


def test_many_claimers_over_few_keys_never_run_one_key_twice(pg_stage: Stage, pg_url: str):
    made = pg_stage.many(60)
    for at in range(3):
        lock_together(pg_stage, *made[at::3], key=f"document {at}")
    for n in range(4):
        pg_stage.claim(f"w{n}", queue="slow")
    start = threading.Barrier(4)
    trouble: list[BaseException] = []

    def work(worker: str) -> None:
        db = open_database(pg_url)
        db.clock = pg_stage.clock
        start.wait()
        try:
            for _ in range(20):
                db.write(
                    lambda conn, now: claim.claim(
                        conn, worker, "default", KINDS, now=now, ttl=TTL, limit=2
                    )
                )
        except BaseException as error:
            trouble.append(error)
        db.close()

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert trouble == []
    running = [row.exclusive_key for row in pg_stage.rows("tasks", state="running")]
    assert sorted(running) == ["document 0", "document 1", "document 2"]


def test_two_claims_whose_keys_cross_are_told_apart_by_trying_one_again(pg_stage: Stage):
    """The one lock that the order of locks cannot foresee: a unique key that another has taken."""
    queues = {"w1": ("first of w1", "then of w1"), "w2": ("first of w2", "then of w2")}
    keys = dict(zip(sum(queues.values(), ()), ("a", "b", "b", "a"), strict=True))
    for queue, key in keys.items():
        job = pg_stage.one()
        lock_together(pg_stage, job, key=key)
        with pg_stage.db.begin() as conn:
            conn.exec_driver_sql(f"UPDATE tasks SET queue = '{queue}' WHERE job_id = {job}")
    for worker in queues:
        pg_stage.claim(worker)  # so that it is known
    meet = threading.Barrier(2, timeout=30)
    tries: list[str] = []

    def claim_from_both(worker: str) -> list[Lease]:
        def act(conn: sa.Connection, now: Instant) -> list[Lease]:
            tries.append(worker)
            first, then = queues[worker]
            taken = claim.claim(conn, worker, first, KINDS, now=now, ttl=TTL)
            if tries.count(worker) == 1:
                meet.wait()
            return taken + claim.claim(conn, worker, then, KINDS, now=now, ttl=TTL)

        return pg_stage.db.write(act)

    with ThreadPoolExecutor(2) as pool:
        found = [lease for taken in pool.map(claim_from_both, queues) for lease in taken]
    # One never had to; the other did, and once more if the first had not committed by then.
    assert min(tries.count(worker) for worker in queues) == 1
    assert len(tries) > len(queues)
    running = pg_stage.rows("tasks", state="running")
    assert sorted(row.exclusive_key for row in running) == ["a", "b"]
    assert sorted(lease.task_id for lease in found) == [row.id for row in running]
    assert {(row.attempt, row.fence) for row in running} == {(1, 1)}
    waiting = [row for row in pg_stage.rows("tasks") if row.state != "running"]
    assert {(row.attempt, row.fence, row.error) for row in waiting} == {(0, 0, None)}
