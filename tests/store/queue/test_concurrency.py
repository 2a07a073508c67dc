"""Transactions side by side on PostgreSQL: real connections, real threads, no luck needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.store.db import dialect
from quire.store.db.schema.queue import tasks
from quire.store.queue import claim, commit_recovery, fenced, job_actions, settle
from tests.store.stage import KINDS, TTL, Stage, ending


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Run the acts in threads that start together; returns what each returned, or raises."""
    together = threading.Barrier(len(acts))

    def run(act: Callable[[], Any]) -> Any:
        together.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as pool:
        return [each.result() for each in [pool.submit(run, act) for act in acts]]


def later(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start an act that will wait for a lock; what it returns goes into the list."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    return thread, found


def test_two_claimers_never_get_the_same_task(pg_stage: Stage):
    pg_stage.many(200)
    pg_stage.claim("w0", limit=1), pg_stage.claim("w1", limit=1)

    def drain(worker: str) -> list[int]:
        mine: list[int] = []
        while leases := pg_stage.claim(worker, limit=7):
            mine += [lease.task_id for lease in leases]
        return mine

    got = at_once(lambda: drain("w0"), lambda: drain("w1"))
    assert len(got[0]) + len(got[1]) == len({*got[0], *got[1]}) == 198


def test_a_claim_does_not_wait_for_another_claim_of_other_jobs(pg_stage: Stage):
    pg_stage.many(2)
    pg_stage.claim("w2", queue="slow")
    with pg_stage.db.begin() as conn:
        [held] = claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        [other] = pg_stage.claim("w2")
        assert other.task_id != held.task_id
        conn.rollback()


def test_a_claim_leaves_a_task_that_another_transaction_holds(pg_stage: Stage):
    pg_stage.many(2)
    first = min(row.id for row in pg_stage.rows("tasks"))
    with pg_stage.db.begin() as conn:
        dialect.lock_rows(conn, tasks, [first])
        [other] = pg_stage.claim("w1", limit=2)
        assert other.task_id != first
        conn.rollback()


def test_a_settle_that_waits_for_a_stop_commits_nothing(pg_stage: Stage):
    job_id = pg_stage.one()
    [lease] = pg_stage.claim()
    with pg_stage.db.begin() as conn:
        job_actions.halt(conn, [job_id], "stop", None, now=pg_stage.now())
        thread, settled = later(lambda: pg_stage.settle(ending(lease)))
        pg_stage.wait_until_one_waits()
    thread.join()
    assert settled == [set()]
    assert (pg_stage.job(job_id).state, pg_stage.task(job_id).state) == ("stopped", "blocked")


def test_a_stop_that_waits_for_a_settle_finds_the_job_over(pg_stage: Stage):
    job_id = pg_stage.one()
    [lease] = pg_stage.claim()
    with pg_stage.db.begin() as conn:
        settle.settle(conn, [ending(lease)], now=pg_stage.now())
        thread, stopped = later(lambda: verbs.stop(pg_stage.caller(), [job_id]))
        pg_stage.wait_until_one_waits()
    thread.join()
    assert stopped == [[]]
    assert pg_stage.job(job_id).state == "completed"


def test_a_claim_that_waits_for_a_stop_takes_nothing(pg_stage: Stage):
    job_id = pg_stage.one()
    pg_stage.claim(queue="slow")
    with pg_stage.db.begin() as conn:
        job_actions.halt(conn, [job_id], "stop", None, now=pg_stage.now())
        thread, claimed = later(pg_stage.claim)
        pg_stage.wait_until_one_waits()
    thread.join()
    assert claimed == [[]]
    assert pg_stage.task(job_id).reason == "stopped"


def test_a_stop_that_waits_for_a_claim_ends_the_lease(pg_stage: Stage):
    job_id = pg_stage.one()
    pg_stage.claim(queue="slow")
    with pg_stage.db.begin() as conn:
        [lease] = claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        thread, stopped = later(lambda: verbs.stop(pg_stage.caller(), [job_id]))
        pg_stage.wait_until_one_waits()
    thread.join()
    assert stopped == [[job_id]]
    assert (pg_stage.task(job_id).state, pg_stage.task(job_id).fence) == ("blocked", 2)
    assert pg_stage.settle(ending(lease)) == set()


def test_a_fenced_write_that_waits_for_a_stop_is_refused(pg_stage: Stage):
    from quire.errors import LeaseLost

    job_id = pg_stage.one()
    [lease] = pg_stage.claim()

    def write() -> str:
        try:
            with fenced.ending(
                pg_stage.db, lease.task_id, lease.fence, began_at=0.0, worker_id="w1"
            ) as transaction:
                transaction.execute("INSERT INTO meta (key, value) VALUES ('written', 'late')")
        except LeaseLost:
            return "refused"
        return "written"

    with pg_stage.db.begin() as conn:
        job_actions.halt(conn, [job_id], "stop", None, now=pg_stage.now())
        thread, found = later(write)
        pg_stage.wait_until_one_waits()
    thread.join()
    assert found == ["refused"]
    assert pg_stage.rows("meta", key="written") == []


def test_stops_and_settles_of_the_same_jobs_do_not_deadlock_for_good(pg_stage: Stage):
    for _ in range(5):
        ids = pg_stage.many(20)
        leases = pg_stage.claim(limit=20)
        results = at_once(
            partial(pg_stage.settle, *map(ending, leases[:10])),
            partial(pg_stage.settle, *map(ending, leases[:9:-1])),
            partial(verbs.stop, pg_stage.caller(), ids[::-1]),
            partial(verbs.cancel, pg_stage.caller(), ids[5:15]),
        )
        settled, halted = results[0] | results[1], {*results[2], *results[3]}
        of = {lease.task_id: lease.job_id for lease in leases}
        assert {of[i] for i in settled}.isdisjoint(halted)
        assert {of[i] for i in settled} | halted == set(ids)


def test_two_reapers_take_each_task_once(pg_stage: Stage):
    ids = pg_stage.many(50)
    pg_stage.claim(limit=50)
    pg_stage.clock.advance(TTL + 1)
    first, second = at_once(pg_stage.reap, pg_stage.reap)
    rest = pg_stage.reap()
    assert sorted([*first, *second, *rest]) == sorted({*first, *second, *rest})
    assert len({*first, *second, *rest}) == 50
    assert {pg_stage.task(i).fence for i in ids} == {2}
    assert {pg_stage.task(i).crashes for i in ids} == {1}


def test_a_reaper_passes_over_a_lease_that_is_being_renewed(pg_stage: Stage):
    pg_stage.one()
    [lease] = pg_stage.claim()
    pg_stage.clock.advance(TTL + 1)
    with pg_stage.db.begin() as conn:
        held = [(lease.task_id, lease.fence)]
        assert settle.renew(conn, held, now=pg_stage.now(), ttl=TTL)
        assert pg_stage.reap() == []
    assert pg_stage.reap() == []


def test_the_two_last_tasks_of_a_job_that_end_together_end_the_job_once(pg_stage: Stage):
    for _ in range(10):
        job_id = pg_stage.one()
        [lease] = pg_stage.claim()
        with fenced.ending(
            pg_stage.db, lease.task_id, lease.fence, began_at=0.0, worker_id="w1"
        ) as transaction:
            transaction.spawn("noop"), transaction.spawn("noop")
        a, b = pg_stage.claim(limit=2)
        at_once(*(partial(pg_stage.settle, ending(each)) for each in (a, b)))
        assert pg_stage.job(job_id).state == "completed"
        assert pg_stage.events(job_id).count("job.completed") == 1


def test_two_replacing_submits_leave_one_active_job(pg_stage: Stage):
    for _ in range(5):
        at_once(
            lambda: pg_stage.one(policy="replace"),
            lambda: pg_stage.one(policy="replace"),
            lambda: pg_stage.claim(limit=1),
        )
        active = [j for j in pg_stage.rows("jobs") if j.state in ("pending", "running")]
        assert len(active) == 1


def test_two_replacing_resumes_leave_one_active_job(pg_stage: Stage):
    a, b = pg_stage.many(2)
    for _ in range(5):
        verbs.stop(pg_stage.caller(), [a, b])
        caller = pg_stage.caller(policy="replace")
        at_once(lambda: verbs.resume(caller, [a]), lambda: verbs.resume(caller, [b]))  # noqa: B023
        active = [j for j in pg_stage.rows("jobs") if j.state in ("pending", "running")]
        assert len(active) == 1


def test_two_rejecting_submits_accept_one(pg_stage: Stage):
    from quire.errors import UserBusy

    def attempt() -> int | None:
        try:
            return pg_stage.one(policy="reject")
        except UserBusy:
            return None

    assert at_once(attempt, attempt, attempt).count(None) == 2


def test_a_job_queued_while_the_one_before_it_ends_is_not_left_behind(pg_stage: Stage):
    pg_stage.one(policy="queue")
    [lease] = pg_stage.claim()
    with pg_stage.db.begin() as conn:
        settle.settle(conn, [ending(lease)], now=pg_stage.now())
        thread, made = later(lambda: pg_stage.one(policy="queue"))
        pg_stage.wait_until_one_waits()
    thread.join()
    assert pg_stage.task(made[0]).state == "ready"


def test_two_jobs_of_one_exclusive_key_are_never_started_by_two_claims(pg_stage: Stage):
    first = pg_stage.one(policy="queue")
    verbs.stop(pg_stage.caller(), [first])
    second = pg_stage.one(policy="queue")
    pg_stage.claim(queue="slow"), pg_stage.claim("w2", queue="slow")
    with pg_stage.db.begin() as conn:
        [held] = claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL)
        assert held.job_id == second
        verbs.resume(pg_stage.caller(policy="queue"), [first])
        thread, claimed = later(lambda: pg_stage.claim("w2"))
        pg_stage.wait_until_one_waits()
    thread.join()
    assert claimed == [[]]
    pg_stage.settle(ending(held))
    assert pg_stage.run() == [first]


def test_the_same_key_submitted_twice_at_once_makes_one_job(pg_stage: Stage):
    def submit() -> list[int]:
        return verbs.submit(pg_stage.caller(), [Submission("noop")], key="k")

    made = at_once(submit, submit, submit)
    assert made[0] == made[1] == made[2]
    assert pg_stage.count("jobs") == 1


def test_after_a_lost_commit_reply_the_judge_waits_for_a_commit_under_way(pg_stage: Stage):
    pg_stage.one()
    [lease] = pg_stage.claim()

    def judge() -> str | None:
        with pg_stage.db.begin() as conn:
            return commit_recovery.outcome_of(conn, lease.task_id, lease.fence)

    with pg_stage.db.begin() as conn:
        settle.settle(conn, [ending(lease)], now=pg_stage.now())
        thread, verdict = later(judge)
        pg_stage.wait_until_one_waits()
    thread.join()
    assert verdict == ["done"]


def test_a_conflict_that_the_database_breaks_is_tried_again(pg_stage: Stage):
    a, b = pg_stage.many(2)
    meet = threading.Barrier(2, timeout=30)
    tries: list[int] = []

    def lock(first: int, second: int) -> None:
        def act(conn: Any, now: Any) -> None:
            tries.append(first)
            conn.exec_driver_sql(f"UPDATE jobs SET message = 'x' WHERE id = {first}")
            if tries.count(first) == 1:
                meet.wait()
            conn.exec_driver_sql(f"UPDATE jobs SET message = 'x' WHERE id = {second}")

        pg_stage.db.write(act)

    at_once(lambda: lock(a, b), lambda: lock(b, a))
    assert len(tries) == 3


@pytest.mark.parametrize("what", ["recorded", "settle"])
def test_a_worker_whose_locks_cross_with_another_s_settles_at_its_next_try(
    pg_stage: Stage, what: str
):
    """Tasks that are no longer running are locked by their job's holder, in any order."""
    pg_stage.many(2)
    first, second = pg_stage.claim(limit=2)
    ends = [ending(first), ending(second)]
    tries: list[int] = []

    def act(conn: Any, now: Any) -> set[Any]:
        tries.append(1)
        if what == "recorded":
            assert commit_recovery.recorded(conn, ends) == set()
        return settle.settle(conn, ends, now=now)

    done: list[set[Any]] = []
    worker = threading.Thread(target=lambda: done.append(pg_stage.db.write(act)))
    lock = "SELECT 1 FROM tasks WHERE id = %d FOR UPDATE"
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql(lock % second.task_id)
        worker.start()
        pg_stage.wait_until_one_waits(worker)
        # The worker has waited for longer: PostgreSQL ends its transaction, not this one.
        conn.exec_driver_sql(lock % first.task_id)
    worker.join()
    assert done == [{first.key, second.key}]
    assert len(tries) == 2
    assert [row.outcome for row in pg_stage.rows("attempts")] == ["done", "done"]
    assert {row.attempt for row in pg_stage.rows("tasks")} == {1}


def test_a_task_paused_by_a_claim_that_lost_the_race_with_an_unpause_is_found_by_the_sweep(
    pg_stage: Stage,
):
    from quire.store.queue import release

    job_id = pg_stage.one("other")
    verbs.pause(pg_stage.caller(), "other")
    pg_stage.claim(queue="slow")
    with pg_stage.db.begin() as conn:
        assert claim.claim(conn, "w1", "default", KINDS, now=pg_stage.now(), ttl=TTL) == []
        verbs.unpause(pg_stage.caller(), "other")
    assert pg_stage.task(job_id).reason == "paused"
    with pg_stage.db.begin() as conn:
        release.release_overlooked(conn, [], now=pg_stage.now())
    assert pg_stage.run() == [job_id]


def test_a_job_to_wait_for_that_is_deleted_meanwhile_does_not_exist(pg_stage: Stage):
    from quire.errors import NotFound

    gone = pg_stage.one()
    pg_stage.run()

    def submit() -> str:
        try:
            return str(pg_stage.one(after=[gone]))
        except NotFound as error:
            return str(error)

    with pg_stage.db.begin() as conn:
        job_actions.delete(conn, [gone], now=pg_stage.now())
        thread, answer = later(submit)
        pg_stage.wait_until_one_waits()
    thread.join()
    assert answer == [f"job {gone}: no such job to wait for. Nothing was submitted."]
    assert pg_stage.count("jobs") == 0
