"""What people do to jobs: each verb, what it keeps, and what it refuses."""

from __future__ import annotations

import pytest

from quire.clock import SystemClock
from quire.control import jobs as verbs
from quire.errors import BadInput, Conflict, LeaseLost, NotFound, UnknownKind
from quire.model.outcomes import Lease
from quire.model.records import Submission
from quire.model.states import JOB_MOVES, JobState, TaskState
from quire.runtime.worker import sweep
from quire.runtime.worker.loop import Worker
from quire.settings import load
from quire.store.queue import fenced, job_actions, settle
from tests.store.stage import KINDS, Stage, ending


def job_in(stage: Stage, state: str) -> int:
    job_id = stage.one(priority=1)
    if state in ("pending", "stopped", "cancelled"):
        if state != "pending":
            getattr(verbs, {"stopped": "stop", "cancelled": "cancel"}[state])(
                stage.caller(), [job_id]
            )
        return job_id
    [lease] = stage.claim()
    if state == "completed":
        stage.settle(ending(lease))
    elif state == "failed":
        stage.settle(ending(lease, "fail", "permanent", error="x"))
    return job_id


@pytest.mark.parametrize("verb", ["stop", "cancel", "resume", "retry", "delete"])
def test_a_verb_is_allowed_in_just_the_states_that_the_chart_says(stage: Stage, verb):
    for state in JobState:
        job_id = job_in(stage, state)
        assert stage.job(job_id).state == state
        before = stage.job(job_id)
        sources = JOB_MOVES[verb].sources if verb != "delete" else ()
        can = state in sources if verb != "delete" else state not in ("pending", "running")
        if can:
            verbs.one(stage.caller(), verb, job_id)
            if verb != "delete":
                assert stage.job(job_id).state == JOB_MOVES[verb].target
        else:
            with pytest.raises(Conflict, match=state):
                verbs.one(stage.caller(), verb, job_id)
            assert stage.job(job_id) == before
        if not (can and verb == "delete"):
            verbs.cancel(stage.caller(), [job_id])


def test_stopping_holds_the_waiting_tasks_and_resuming_lets_them_go(stage: Stage):
    ids = stage.many(5)
    assert verbs.stop(stage.caller(), ids[:2], why="lunch") == ids[:2]
    assert stage.job(ids[0]).error == "lunch"
    assert stage.run() == ids[2:]
    assert verbs.resume(stage.caller(), ids) == ids[:2]
    assert stage.job(ids[0]).error is None
    assert stage.run() == ids[:2]


def test_a_stopped_job_whose_task_backs_off_stays_stopped_when_it_is_due(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="x", due_in=10.0))
    verbs.stop(stage.caller(), [job_id])
    stage.clock.advance(11)
    assert stage.move_due() == 0
    assert stage.task(job_id).reason == "stopped"
    verbs.resume(stage.caller(), [job_id])
    assert stage.run() == [job_id]


def test_a_stopped_job_with_a_later_run_at_waits_for_it_when_resumed(stage: Stage):
    job_id = stage.one(run_at=stage.clock.now().wall + 100)
    verbs.stop(stage.caller(), [job_id])
    verbs.resume(stage.caller(), [job_id])
    assert stage.task(job_id).reason == "due"
    stage.clock.advance(101)
    stage.move_due()
    assert stage.run() == [job_id]


def test_cancelling_a_running_job_ends_its_lease_for_good(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    verbs.cancel(stage.caller(), [job_id])
    task = stage.task(job_id)
    assert (task.state, task.fence, task.reason) == ("cancelled", 2, None)
    assert stage.settle(ending(lease)) == set()
    assert stage.claim() == []


def test_a_retry_gives_fresh_attempts(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="x", crashed=True))
    verbs.retry(stage.caller(), [job_id])
    [again] = stage.claim()
    assert (again.attempt, again.crashes, again.fence) == (1, 0, 2)
    stage.settle(ending(again))
    assert (stage.job(job_id).state, stage.job(job_id).error) == ("completed", None)


def test_a_retry_of_a_cancelled_job_runs_it(stage: Stage):
    job_id = stage.one()
    verbs.cancel(stage.caller(), [job_id])
    verbs.retry(stage.caller(), [job_id])
    assert stage.run() == [job_id]


def test_retrying_only_what_failed_of_a_job_where_nothing_did_leaves_it_over(stage: Stage):
    job_id = stage.one()
    verbs.cancel(stage.caller(), [job_id])
    verbs.retry(stage.caller(), [job_id], only_failed=True)
    assert stage.job(job_id).state == "cancelled"


def test_retrying_what_failed_takes_failed_and_lost_jobs(stage: Stage):
    failed, lost = job_in(stage, "failed"), stage.one("once")
    stage.claim()
    stage.reap("w1")
    assert verbs.retry(stage.caller(), [failed, lost], only_failed=True) == [failed, lost]
    assert sorted(stage.run()) == [failed, lost]


def test_a_reprioritised_job_takes_its_place_in_the_other_band(stage: Stage):
    ids = stage.many(3, priority=5)
    late = stage.one(priority=5)
    assert verbs.reprioritise(stage.caller(), [late], 2) == [late]
    assert stage.run() == [late, *ids]


def test_a_blocked_job_keeps_its_reprioritisation(stage: Stage):
    job_id = stage.one(run_at=stage.clock.now().wall + 10)
    verbs.reprioritise(stage.caller(), [job_id], 2)
    assert stage.task(job_id).reason == "due"
    stage.clock.advance(11)
    stage.move_due()
    assert (stage.task(job_id).priority, stage.task(job_id).state) == (2, "ready")


def test_a_running_task_keeps_running_when_its_job_is_reprioritised(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    verbs.reprioritise(stage.caller(), [job_id], 1)
    assert stage.settle(ending(lease)) == {lease.task_id}


def test_a_job_that_is_over_is_not_reprioritised(stage: Stage):
    job_id = job_in(stage, "completed")
    assert verbs.reprioritise(stage.caller(), [job_id], 9) == []


def test_a_bad_priority_is_refused(stage: Stage):
    job_id = stage.one()
    with pytest.raises(BadInput):
        verbs.reprioritise(stage.caller(), [job_id], 0)


def test_deleting_removes_every_row_of_the_job(stage: Stage):
    gone = job_in(stage, "failed")
    kept = stage.one()
    verbs.delete(stage.caller(), [gone])
    for table in ("tasks", "events"):
        assert stage.rows(table, job_id=gone) == []
    assert [row.id for row in stage.rows("jobs")] == [kept]
    assert stage.count("attempts") == stage.count("steps") == stage.count("edges") == 0


def test_deleting_a_running_job_is_refused_with_the_remedy(stage: Stage):
    job_id = job_in(stage, "running")
    with pytest.raises(Conflict, match=f"quire job stop {job_id}"):
        verbs.one(stage.caller(), "delete", job_id)


def test_a_missing_job_is_not_found(stage: Stage):
    with pytest.raises(NotFound):
        verbs.one(stage.caller(), "stop", 42)


def test_pausing_a_kind_holds_it_and_unpausing_lets_it_go(stage: Stage):
    held, free = stage.one("other"), stage.one("noop")
    assert verbs.pause(stage.caller(), "other") is True
    assert verbs.pause(stage.caller(), "other") is False
    late = stage.one("other")
    assert stage.task(late).reason == "paused"
    assert stage.run() == [free]
    assert verbs.unpause(stage.caller(), "other") is True
    assert verbs.unpause(stage.caller(), "other") is False
    assert sorted(stage.run()) == [held, late]


def test_a_paused_kind_stays_paused_when_a_worker_announces_it_again(stage: Stage):
    verbs.pause(stage.caller(), "other")
    Stage(stage.db)
    assert stage.task(stage.one("other")).reason == "paused"


def test_running_tasks_of_a_paused_kind_go_on(stage: Stage):
    job_id = stage.one("other")
    [lease] = stage.claim()
    verbs.pause(stage.caller(), "other")
    assert stage.renew(lease)
    stage.settle(ending(lease))
    assert stage.job(job_id).state == "completed"


def test_pausing_an_unknown_kind_is_refused(stage: Stage):
    with pytest.raises(UnknownKind, match="noop"):
        verbs.pause(stage.caller(), "nope")


def test_unpausing_releases_more_than_one_batch(stage: Stage):
    verbs.pause(stage.caller(), "other")
    ids = stage.submit(*[Submission("other")] * 1100)
    verbs.unpause(stage.caller(), "other")
    assert len(stage.run(limit=2000)) == len(ids)


def test_a_filter_picks_the_jobs_of_a_bulk_verb(stage: Stage):
    drive = stage.submit(*[Submission("noop", platform="drive", account="a")] * 3)
    web = stage.submit(Submission("other", platform="web"))
    bob = stage.submit(Submission("noop", platform="drive"), user="bob")
    theirs = stage.submit(Submission("noop", platform="drive"), tenant="acme")
    assert verbs.in_bulk(stage.caller(), "stop", platform="drive", user="ada") == 3
    assert verbs.in_bulk(stage.caller(), "stop", kind="other") == 1
    assert {stage.job(i).state for i in [*drive, *web]} == {"stopped"}
    assert {stage.job(i).state for i in [*bob, *theirs]} == {"pending"}
    assert verbs.in_bulk(stage.caller(), "resume", account="a") == 3
    assert verbs.in_bulk(stage.caller(), "cancel", states=["stopped"]) == 1
    assert stage.job(web[0]).state == "cancelled"
    assert verbs.in_bulk(stage.caller(), "delete") == 1


def test_a_bulk_verb_takes_many_pages(stage: Stage):
    ids = stage.many(verbs.PAGE * 2 + 5)
    assert verbs.in_bulk(stage.caller(), "cancel") == len(ids)
    assert verbs.in_bulk(stage.caller(), "cancel") == 0
    assert verbs.in_bulk(stage.caller(), "delete") == len(ids)
    assert stage.count("tasks") == 0


def test_a_bulk_verb_in_states_that_do_not_allow_it_does_nothing(stage: Stage):
    stage.one()
    assert verbs.in_bulk(stage.caller(), "delete", states=["pending"]) == 0
    assert stage.count("jobs") == 1


def test_aging_lifts_the_first_task_of_each_owner_and_priority_by_one(stage: Stage):
    from quire.store.queue import aging

    def lift() -> list[int]:
        return stage.db.write(lambda conn, now: aging.promote(conn, now=now, after=600.0))

    stage.one(priority=9)
    stage.run()  # aging looks at queues that were claimed from
    old = stage.many(3, priority=9)
    theirs = stage.one(priority=7, user="bob")
    assert lift() == []
    stage.clock.advance(601)
    assert len(lift()) == 2
    assert [stage.task(i).priority for i in [*old, theirs]] == [8, 9, 9, 6]
    assert stage.job(old[0]).priority == 9
    assert stage.run(limit=4)[:2] == [theirs, old[0]]


def test_aging_stops_at_the_first_priority(stage: Stage):
    from quire.store.queue import aging

    job_id = stage.one(priority=1)
    stage.clock.advance(10_000)
    assert stage.db.write(lambda conn, now: aging.promote(conn, now=now, after=1.0)) == []
    assert stage.task(job_id).priority == 1


def test_every_move_of_a_job_is_named_by_a_person_or_follows_from_its_tasks():
    by_person = {name for name, move in JOB_MOVES.items() if move.by_user}
    assert by_person == {"stop", "cancel", "resume", "retry"}
    assert {move.target for move in JOB_MOVES.values()} == set(JobState)
    assert set(TaskState) - {"blocked", "ready", "running"} == {
        "done",
        "failed",
        "cancelled",
        "skipped",
        "lost",
    }


def test_resuming_does_not_run_again_what_must_not_run_twice(stage: Stage):
    job_id = stage.one("once")
    stage.claim()
    stage.reap("w1")
    verbs.resume(stage.caller(), [job_id])
    assert (stage.job(job_id).state, stage.task(job_id).state) == ("failed", "lost")
    assert stage.claim() == []
    verbs.retry(stage.caller(), [job_id])
    assert stage.run() == [job_id]


def _finish_late(stage: Stage, lease: Lease) -> None:
    assert stage.settle(ending(lease)) == set()


def _die(stage: Stage, lease: Lease) -> None:
    stage.reap("w1")


def _say_nothing(stage: Stage, lease: Lease) -> None:
    stage.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
    assert stage.task(lease.job_id).state == "running"  # the worker may still tell
    stage.clock.advance(job_actions.TELL_SECONDS + 1)
    stage.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))


@pytest.mark.parametrize("act", [_finish_late, _die, _say_nothing])
def test_stopping_what_must_not_run_twice_gives_it_up_as_lost(stage: Stage, act):
    job_id = stage.one("once")
    [lease] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    with pytest.raises(LeaseLost), fenced.ending(stage.db, *lease.key, worker_id="w1"):
        pass
    act(stage, lease)
    assert stage.task(job_id).state == "lost"
    assert stage.settle(ending(lease)) == set()
    verbs.resume(stage.caller(), [job_id])
    assert stage.claim() == []


def test_what_must_not_run_twice_and_had_not_begun_is_stopped_not_lost(stage: Stage):
    job_id = stage.one("once")
    [lease] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    with stage.db.read() as conn:  # so the worker is told
        assert settle.still_held(conn, [lease.key]) == set()
    stage.settle(ending(lease, "return", "returned", refund_attempt=True))
    task = stage.task(job_id)
    assert (task.state, task.reason, task.attempt) == ("blocked", "stopped", 0)
    stage.inspect()
    verbs.resume(stage.caller(), [job_id])
    assert stage.run() == [job_id]
    assert stage.job(job_id).state == "completed"


def test_a_worker_returns_what_must_not_run_twice_and_still_waits_for_a_child(stage: Stage, home):
    stage.db.clock = SystemClock()
    worker = Worker(load({}, home=home, database_url=stage.db.url))
    worker.kinds = KINDS
    jobs = [stage.one("once"), stage.one()]
    worker.backlog.add(stage.claim(worker.id, limit=2), now=0.0)
    verbs.stop(stage.caller(), jobs)
    worker._check_leases()
    assert [one.job_id for one in worker.settlements] == jobs[:1]
    worker._write(now=0.0)
    assert [(stage.task(i).state, stage.task(i).reason) for i in jobs] == [
        ("blocked", "stopped")
    ] * 2
    worker.db.close()


def test_cancelling_what_must_not_run_twice_ends_its_lease_at_once(stage: Stage):
    job_id = stage.one("once")
    [lease] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    verbs.cancel(stage.caller(), [job_id])
    assert stage.task(job_id).state == "cancelled"
    assert stage.settle(ending(lease, "return", "returned")) == set()


def test_what_must_not_run_twice_goes_on_if_its_job_is_resumed_before_its_worker_is_told(
    stage: Stage,
):
    job_id = stage.one("once")
    [lease] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    verbs.resume(stage.caller(), [job_id])
    assert stage.job(job_id).state == "running"
    assert stage.settle(ending(lease)) == {lease.task_id}
    assert stage.job(job_id).state == "completed"
    stage.inspect()


def test_a_resume_whose_process_died_halfway_is_finished_by_a_sweep(stage: Stage):
    job = stage.one()
    verbs.stop(stage.caller(), [job])
    stage.db.write(lambda conn, now: job_actions.revive(conn, [job], "resume", now=now))
    assert stage.claim() == []
    sweep.finish_actions(stage.db)
    assert stage.run() == [job]
    with stage.db.read() as conn:
        assert job_actions.unfinished(conn) == []


def test_jobs_are_given_another_priority_in_bulk(stage: Stage):
    first, second = stage.many(2)
    later = stage.one("other")
    options = {"priority": 1}
    assert verbs.in_bulk(stage.caller(), "reprioritise", options=options, kind="other") == 1
    assert stage.run(limit=3) == [later, first, second]


def test_only_what_failed_is_retried_in_bulk(stage: Stage):
    failed, cancelled = stage.many(2)
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "failed", error="no"))
    verbs.cancel(stage.caller(), [cancelled])
    assert (
        verbs.in_bulk(stage.caller(), "retry", options={"only_failed": True}, states=["failed"])
        == 1
    )
    assert stage.run() == [failed]
