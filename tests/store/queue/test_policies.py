"""What a user's second active job does: all, queue, replace, reject."""

from __future__ import annotations

import pytest

from quire.control import jobs as verbs
from quire.errors import UserBusy
from quire.model.records import Submission
from tests.store.stage import Stage, ending


def test_all_lets_every_job_run(stage: Stage):
    assert stage.run() == [] == stage.run()
    ids = stage.many(3, policy="all")
    assert stage.run() == ids


def test_queue_runs_one_job_of_a_user_after_the_other(stage: Stage):
    ids = [stage.one(policy="queue") for _ in range(3)]
    assert [stage.task(i).reason for i in ids] == [None, "user_busy", "user_busy"]
    assert [stage.run(), stage.run(), stage.run()] == [[i] for i in ids]


def test_queue_binds_each_user_alone(stage: Stage):
    mine = stage.one(policy="queue", user="ada")
    theirs = stage.one(policy="queue", user="bob")
    assert sorted(stage.run()) == [mine, theirs]


def test_queue_holds_for_the_jobs_of_one_request(stage: Stage):
    ids = stage.many(3, policy="queue")
    assert [stage.run(), stage.run(), stage.run()] == [[i] for i in ids]


def test_queue_goes_on_when_the_first_job_is_stopped_cancelled_or_fails(stage: Stage):
    ids = [stage.one(policy="queue") for _ in range(4)]
    verbs.stop(stage.caller(), [ids[0]])
    assert stage.task(ids[1]).state == "ready"
    verbs.cancel(stage.caller(), [ids[1]])
    [lease] = stage.claim()
    assert lease.job_id == ids[2]
    stage.settle(ending(lease, "fail", "permanent", error="x"))
    assert stage.run() == [ids[3]]


def test_queue_with_references_against_the_order_of_ids_does_not_wait_for_ever(stage: Stage):
    last, first = stage.submit(
        Submission("noop", after=("f",)), Submission("noop", ref="f"), policy="queue"
    )
    assert stage.run() == [first]
    assert stage.run() == [last]


def test_queue_does_not_wait_for_jobs_that_no_person_submitted(stage: Stage):
    verbs.submit(stage.caller(policy="queue"), [Submission("noop")], by_person=False)
    mine = stage.one(policy="queue")
    assert stage.task(mine).state == "ready"


def test_queue_never_lets_two_jobs_run_even_after_a_resume(stage: Stage):
    first = stage.one(policy="queue")
    verbs.stop(stage.caller(), [first])
    second = stage.one(policy="queue")
    verbs.resume(stage.caller(policy="queue"), [first])
    # Both were free to go at some moment; a claim takes one of them.
    leases = stage.claim(limit=10)
    assert len(leases) == 1
    stage.settle(ending(leases[0]))
    assert len(stage.run()) == 1
    assert {stage.job(i).state for i in (first, second)} == {"completed"}


def test_queue_resumed_behind_a_running_job_waits_for_it(stage: Stage):
    first = stage.one(policy="queue")
    verbs.stop(stage.caller(), [first])
    second = stage.one(policy="queue")
    [lease] = stage.claim()
    verbs.resume(stage.caller(policy="queue"), [first])
    assert stage.task(first).reason == "user_busy"
    stage.settle(ending(lease))
    assert stage.run() == [first]
    assert stage.job(second).state == "completed"


def test_queue_a_retry_of_the_running_job_does_not_lose_its_turn(stage: Stage):
    first, second = stage.one(policy="queue"), stage.one(policy="queue")
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="x", due_in=10.0))
    stage.clock.advance(11)
    stage.move_due()
    assert stage.run() == [first]
    assert stage.run() == [second]


def test_replace_stops_the_users_other_jobs_and_says_by_which(stage: Stage):
    old = stage.one(policy="replace")
    [lease] = stage.claim()
    other = stage.one(user="bob")
    fresh = stage.one(policy="replace")
    assert (stage.job(old).state, stage.job(old).error) == ("stopped", f"replaced by job {fresh}")
    assert stage.settle(ending(lease)) == set()
    assert stage.job(other).state == "pending"
    assert sorted(stage.run()) == [other, fresh]


def test_replace_keeps_the_jobs_of_one_request_together(stage: Stage):
    ids = stage.many(3, policy="replace")
    assert stage.run() == ids


def test_replace_a_resumed_job_stops_the_others(stage: Stage):
    old = stage.one(policy="replace")
    fresh = stage.one(policy="replace")
    verbs.resume(stage.caller(policy="replace"), [old])
    assert (stage.job(fresh).state, stage.job(fresh).error) == ("stopped", f"replaced by job {old}")
    assert stage.run() == [old]


def test_reject_refuses_a_second_job_and_stores_nothing(stage: Stage):
    first = stage.one(policy="reject")
    with pytest.raises(UserBusy, match=f"stop {first}"):
        stage.one(policy="reject")
    assert stage.count("jobs") == 1
    assert stage.one(policy="reject", user="bob")
    stage.run()
    assert stage.one(policy="reject")


def test_reject_refuses_to_resume_a_second_job(stage: Stage):
    first = stage.one(policy="reject")
    verbs.stop(stage.caller(), [first])
    second = stage.one(policy="reject")
    with pytest.raises(UserBusy, match=f"stop {second}"):
        verbs.resume(stage.caller(policy="reject"), [first])
    assert stage.job(first).state == "stopped"


def test_reject_repeats_an_accepted_request_by_its_key(stage: Stage):
    caller = stage.caller(policy="reject")
    first = verbs.submit(caller, [Submission("noop")], key="k")
    assert verbs.submit(caller, [Submission("noop")], key="k") == first


def test_an_owners_own_policy_goes_before_the_setting(stage: Stage):
    stage.set_owner("ada", policy="reject")
    stage.one(policy="all")
    with pytest.raises(UserBusy):
        stage.one(policy="all")


def test_no_policy_binds_jobs_that_no_person_submitted(stage: Stage):
    for policy in ("queue", "replace", "reject"):
        user = f"u-{policy}"
        caller = stage.caller(user, policy)
        first = verbs.submit(caller, [Submission("noop")], by_person=False)
        second = verbs.submit(caller, [Submission("noop")], by_person=False)
        assert stage.run() == first + second
