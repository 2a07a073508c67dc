"""Dependencies: what waits for what, and that nothing waits for ever."""

from __future__ import annotations

import threading

import pytest

from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.store.queue import fenced, settle
from tests.store.stage import Stage, ending


def fail_next(stage: Stage) -> int:
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="broken"))
    return lease.job_id


def test_a_job_runs_after_the_one_it_waits_for(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    assert (stage.task(second).state, stage.task(second).reason) == ("blocked", "after")
    assert stage.run() == [first]
    assert stage.run() == [second]


def test_a_job_waits_for_all_its_predecessors(stage: Stage):
    before = stage.many(3)
    last = stage.one(after=tuple(before))
    for left in (2, 1, 0):
        stage.run(limit=1)
        assert stage.task(last).waits == left
    assert stage.run() == [last]


def test_a_predecessor_that_is_over_is_not_waited_for(stage: Stage):
    first = stage.one()
    stage.run()
    assert stage.task(stage.one(after=(first,))).state == "ready"


def test_a_predecessor_named_twice_is_waited_for_once(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first, first))
    assert stage.task(second).waits == 1
    stage.run()
    assert stage.run() == [second]


def test_the_failure_of_a_predecessor_cancels_the_successor_with_that_reason(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    fail_next(stage)
    job = stage.job(second)
    assert (job.state, stage.task(second).state) == ("cancelled", "cancelled")
    assert job.error == f"job {first}, which it waited for, ended failed"
    assert stage.events(second) == ["job.cancelled"]


def test_the_failure_of_a_predecessor_may_be_told_not_to_matter(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,), after_failure="run")
    fail_next(stage)
    assert stage.run() == [second]


def test_a_cancellation_runs_down_a_chain(stage: Stage):
    chain = [stage.one()]
    for _ in range(5):
        chain.append(stage.one(after=(chain[-1],)))
    verbs.cancel(stage.caller(), chain[:1])
    assert {stage.job(i).state for i in chain} == {"cancelled"}
    assert {len(stage.events(i)) for i in chain} == {1}


def test_cancelling_a_job_and_its_successor_together_tells_of_each_once(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    verbs.cancel(stage.caller(), [first, second])
    assert stage.events(first) == stage.events(second) == ["job.cancelled"]


def test_a_lost_predecessor_counts_as_failed(stage: Stage):
    first = stage.one("once")
    second = stage.one(after=(first,))
    stage.claim()
    stage.reap("w1")
    assert stage.job(second).state == "cancelled"


def test_a_stopped_predecessor_is_waited_for_until_it_resumes(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    verbs.stop(stage.caller(), [first])
    assert stage.task(second).reason == "after"
    verbs.resume(stage.caller(), [first])
    stage.run()
    assert stage.run() == [second]


def test_waiting_for_a_job_that_failed_already_cancels_at_once(stage: Stage):
    first = stage.one()
    fail_next(stage)
    second = stage.one(after=(first,))
    assert (stage.job(second).state, stage.task(second).waits) == ("cancelled", 0)
    assert stage.task(stage.one(after=(first,), after_failure="run")).state == "ready"


def test_a_cancelled_successor_that_is_retried_does_not_wait_for_what_is_over(stage: Stage):
    first = stage.one()
    before = stage.one(after=(first,))
    fail_next(stage)
    late = stage.one(after=(first,))
    for job_id in (before, late):
        verbs.retry(stage.caller(), [job_id])
        assert stage.run() == [job_id]


def test_a_predecessor_that_ends_twice_counts_once(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    with fenced.ending(stage.db, *lease.key, worker_id="w1") as tx:
        both = [tx.spawn("noop"), tx.spawn("noop")]
        tx.spawn("noop", after=both, after_failure="run")
    first, second, last = [row.id for row in stage.rows("tasks", job_id=job_id)][1:]
    fail_next(stage)
    verbs.stop(stage.caller(), [job_id])
    verbs.resume(stage.caller(), [job_id])
    waits = {lease.task_id: lease for lease in stage.claim(limit=10)}
    assert set(waits) == {first, second}
    stage.settle(ending(waits[first]))
    assert stage.claim() == []  # the second has not ended
    stage.settle(ending(waits[second]))
    assert [lease.task_id for lease in stage.claim()] == [last]


def test_deleting_a_stopped_predecessor_cancels_what_waits_for_it(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    third = stage.one(after=(first,), after_failure="run")
    verbs.stop(stage.caller(), [first])
    verbs.delete(stage.caller(), [first])
    assert stage.job(second).state == "cancelled"
    assert stage.run() == [third]


def test_an_edge_satisfied_while_its_successor_is_stopped_counts_when_it_resumes(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    verbs.stop(stage.caller(), [second])
    assert stage.run() == [first]
    verbs.resume(stage.caller(), [second])
    assert stage.run() == [second]


def test_a_stopped_job_whose_predecessor_fails_does_not_pend_for_ever_when_resumed(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,))
    verbs.stop(stage.caller(), [second])
    fail_next(stage)
    verbs.resume(stage.caller(), [second])
    assert stage.job(second).state == "cancelled"


def test_a_job_that_waits_for_both_a_time_and_a_job_waits_for_the_later(stage: Stage):
    first = stage.one()
    second = stage.one(after=(first,), run_at=stage.clock.now().wall + 100)
    stage.run(limit=1)
    assert stage.task(second).reason == "due"
    stage.clock.advance(101)
    stage.move_due()
    assert stage.run() == [second]


def test_a_successor_in_a_paused_kind_waits_for_the_pause_too(stage: Stage):
    first = stage.one()
    second = stage.one("other", after=(first,))
    verbs.pause(stage.caller(), "other")
    stage.run(limit=1)
    assert stage.task(second).reason == "paused"
    verbs.unpause(stage.caller(), "other")
    assert stage.run() == [second]


def split(stage: Stage, plant) -> int:
    """Run a job's first task, which leaves children behind; returns the job."""
    job_id = stage.one()
    [lease] = stage.claim()
    with fenced.ending(
        stage.db, lease.task_id, lease.fence, began_at=stage.now().wall, worker_id="w1"
    ) as transaction:
        plant(transaction)
    return job_id


def test_children_run_before_their_job_is_over_and_count_towards_it(stage: Stage):
    def plant(transaction):
        for n in range(3):
            transaction.spawn("noop", {"n": n})

    job_id = split(stage, plant)
    job = stage.job(job_id)
    assert (job.state, job.tasks_done, job.tasks_ready, job.progress) == ("running", 1, 3, 0.25)
    leases = stage.claim(limit=3)
    assert [lease.payload for lease in leases] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
    stage.settle(*(ending(lease) for lease in leases))
    assert (stage.job(job_id).state, stage.job(job_id).progress) == ("completed", 1.0)


def test_a_child_runs_after_the_children_it_waits_for(stage: Stage):
    def plant(transaction):
        parts = [transaction.spawn("noop", {"n": n}) for n in range(2)]
        transaction.spawn("noop", {"n": "join"}, after=parts)

    job_id = split(stage, plant)
    first, second = stage.claim(limit=10)
    stage.settle(ending(first))
    assert stage.claim() == []
    stage.settle(ending(second))
    [join] = stage.claim()
    assert join.payload == '{"n": "join"}'
    stage.settle(ending(join))
    assert stage.job(job_id).state == "completed"


def test_a_failed_child_cancels_those_after_it_and_fails_the_job(stage: Stage):
    def plant(transaction):
        one = transaction.spawn("noop")
        two = transaction.spawn("noop", after=[one])
        transaction.spawn("noop", after=[two])
        transaction.spawn("noop", after=[one], after_failure="run")

    job_id = split(stage, plant)
    [lease] = stage.claim(limit=10)
    stage.settle(ending(lease, "fail", "permanent", error="broken"))
    [anyway] = stage.claim(limit=10)
    stage.settle(ending(anyway))
    job = stage.job(job_id)
    assert (job.state, job.tasks_cancelled, job.tasks_failed, job.tasks_done) == ("failed", 2, 1, 2)


def test_a_zombies_children_are_not_planted(stage: Stage):
    from quire.errors import LeaseLost

    stage.one()
    [zombie] = stage.claim()
    stage.reap("w1")
    with (
        pytest.raises(LeaseLost),
        fenced.ending(
            stage.db, zombie.task_id, zombie.fence, began_at=0.0, worker_id="w1"
        ) as transaction,
    ):
        transaction.spawn("noop")
    assert stage.count("tasks") == 1


def test_stopping_a_job_stops_its_children_and_keeps_what_is_done(stage: Stage):
    def plant(transaction):
        for _ in range(4):
            transaction.spawn("noop")

    job_id = split(stage, plant)
    first, second = stage.claim(limit=2)
    stage.settle(ending(first))
    verbs.stop(stage.caller(), [job_id])
    assert stage.settle(ending(second)) == set()
    job = stage.job(job_id)
    assert (job.state, job.tasks_done, job.tasks_blocked) == ("stopped", 2, 3)
    verbs.resume(stage.caller(), [job_id])
    assert stage.run() == [job_id] * 3
    assert stage.job(job_id).state == "completed"


def test_resuming_a_failed_job_runs_only_what_failed(stage: Stage):
    def plant(transaction):
        for _ in range(3):
            transaction.spawn("noop")

    job_id = split(stage, plant)
    a, b, c = stage.claim(limit=3)
    stage.settle(ending(a), ending(b, "fail", "permanent", error="x"), ending(c))
    assert (stage.job(job_id).state, stage.job(job_id).error) == ("failed", "x")
    verbs.resume(stage.caller(), [job_id])
    [again] = stage.claim(limit=10)
    assert (again.task_id, again.attempt) == (b.task_id, 1)
    stage.settle(ending(again))
    assert (stage.job(job_id).state, stage.job(job_id).error) == ("completed", None)


def test_two_last_predecessors_that_end_at_the_same_instant_release_the_successor_once(
    pg_stage: Stage,
):
    for _ in range(10):
        before = pg_stage.many(2)
        last = pg_stage.one(after=tuple(before))
        leases = pg_stage.claim(limit=2)
        together = threading.Barrier(2)

        def finish(lease, together=together):
            together.wait()
            pg_stage.settle(ending(lease))

        threads = [threading.Thread(target=finish, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (pg_stage.task(last).state, pg_stage.task(last).waits) == ("ready", 0)
        assert pg_stage.run() == [last]


def test_a_predecessor_that_ends_while_its_successor_is_submitted_is_not_missed(pg_stage: Stage):
    first = pg_stage.one()
    [lease] = pg_stage.claim()
    submitted: list[int] = []
    with pg_stage.db.begin() as conn:
        settle.settle(conn, [ending(lease)], now=pg_stage.now())
        thread = threading.Thread(target=lambda: submitted.append(pg_stage.one(after=(first,))))
        thread.start()
        pg_stage.wait_until_one_waits()
    thread.join()
    assert pg_stage.task(submitted[0]).state == "ready"


def test_a_bulk_with_references_runs_in_the_order_they_say(stage: Stage):
    ids = stage.submit(
        Submission("noop", ref="d", after=("b", "c")),
        Submission("noop", ref="b", after=("a",)),
        Submission("noop", ref="c", after=("a",)),
        Submission("noop", ref="a"),
    )
    d, b, c, a = ids
    assert [stage.run(), stage.run(), stage.run()] == [[a], [b, c], [d]]
