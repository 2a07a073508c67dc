"""Leases: renewed by the holder, ended by a fence; what comes too late matches no row."""

from __future__ import annotations

import pytest

from quire.control import jobs as verbs
from quire.errors import LeaseLost
from quire.model.retry import delay_after_death
from quire.store.queue import commit_recovery, fenced, settle
from tests.store.stage import Stage, ending


def test_finishing_ends_the_task_and_the_job(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.clock.advance(5)
    assert stage.settle(ending(lease, result='{"n":1}')) == {lease.task_id}
    job, task = stage.job(job_id), stage.task(job_id)
    assert (task.state, task.worker_id, task.expires_at) == ("done", None, None)
    assert (job.state, job.progress, job.result) == ("completed", 1.0, '{"n":1}')
    assert job.finished_at == task.finished_at == stage.now().wall


def test_a_skipped_task_completes_its_job(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "skip", "skipped"))
    assert (stage.task(job_id).state, stage.job(job_id).state) == ("skipped", "completed")


def test_a_permanent_error_fails_the_job_with_its_reason(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="no such page", traceback="here"))
    assert (stage.task(job_id).state, stage.job(job_id).state) == ("failed", "failed")
    assert stage.job(job_id).error == stage.task(job_id).error == "no such page"


def test_a_transient_error_waits_for_its_backoff_and_runs_again(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="busy", due_in=60.0))
    task = stage.task(job_id)
    assert (task.state, task.reason, task.due_at) == ("blocked", "backoff", stage.now().wall + 60)
    assert (task.attempt, stage.job(job_id).state, stage.job(job_id).retry_count) == (
        1,
        "running",
        1,
    )
    stage.clock.advance(59)
    assert stage.move_due() == 0
    stage.clock.advance(2)
    assert stage.move_due() == 1
    [again] = stage.claim()
    assert (again.attempt, again.fence) == (2, 2)
    stage.settle(ending(again))
    job = stage.job(job_id)
    assert (job.state, job.error) == ("completed", None)


def test_a_returned_task_is_ready_again_and_its_attempt_is_given_back(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "return", "returned", refund_attempt=True))
    task = stage.task(job_id)
    assert (task.state, task.attempt, task.fence) == ("ready", 0, 1)
    [again] = stage.claim()
    assert (again.attempt, again.fence) == (1, 2)


def test_a_crash_of_the_child_is_counted_apart_from_attempts(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "return", "crashed", refund_attempt=True, crashed=True))
    assert (stage.task(job_id).attempt, stage.task(job_id).crashes) == (0, 1)
    [again] = stage.claim()
    assert again.crashes == 1


def test_what_a_person_or_a_reaper_does_is_not_a_move_of_the_holder(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    for move in ("claim", "reap", "stop", "cancel", "release"):
        with pytest.raises(AssertionError):
            stage.settle(ending(lease, move))


def test_renewing_extends_the_lease(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim(ttl=60)
    stage.clock.advance(50)
    assert stage.renew(lease) == {lease.task_id}
    assert stage.task(job_id).expires_at == stage.now().lease + 60
    stage.clock.advance(50)
    assert stage.reap() == []


def test_a_row_that_does_not_come_back_from_renewing_is_lost(stage: Stage):
    stage.many(3)
    leases = stage.claim(limit=3)
    verbs.stop(stage.caller(), [leases[1].job_id])
    assert stage.renew(*leases) == {leases[0].task_id, leases[2].task_id}
    held = [(lease.task_id, lease.fence) for lease in leases]
    with stage.db.read() as conn:
        assert settle.still_held(conn, held) == {held[0], held[2]}


def test_two_runs_of_one_task_are_told_apart(stage: Stage):
    """A worker that was away for a stop and a resume may have claimed the task again."""
    job_id = stage.one()
    [before] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    verbs.resume(stage.caller(), [job_id])
    [after] = stage.claim()
    assert (after.task_id, after.fence > before.fence) == (before.task_id, True)
    both = [before.key, after.key]
    with stage.db.begin() as conn:
        assert settle.still_held(conn, both) == {after.key}
        assert settle.renew(conn, both, now=stage.now(), ttl=60.0) == {after.key}
    ends = [ending(lease, worker_id="w1") for lease in (before, after)]
    with stage.db.begin() as conn:
        assert settle.settle(conn, ends, now=stage.now()) == {after.key}
    with stage.db.begin() as conn:  # asked after a COMMIT without a reply
        assert commit_recovery.recorded(conn, ends) == {after.key}


def test_renewing_nothing_is_nothing(stage: Stage):
    assert stage.renew() == set()


def test_a_lease_that_ended_but_was_not_reaped_can_still_be_renewed(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    stage.clock.advance(1000)
    assert stage.renew(lease) == {lease.task_id}
    assert stage.reap() == []


def test_a_lease_that_is_not_over_is_not_reaped(stage: Stage):
    stage.one()
    stage.claim(ttl=60)
    stage.clock.advance(60)
    assert stage.reap() == []
    stage.clock.advance(0.1)
    assert len(stage.reap()) == 1


def test_reaping_gives_the_task_back_with_the_next_fence(stage: Stage):
    job_id = stage.one()
    stage.claim("w1")
    stage.clock.advance(61)
    stage.reap()
    task = stage.task(job_id)
    assert (task.state, task.fence, task.attempt, task.crashes) == ("ready", 2, 0, 1)
    [heir] = stage.claim("w2")
    assert (heir.fence, heir.attempt) == (3, 1)


def test_a_dead_workers_tasks_are_reaped_before_their_leases_end(stage: Stage):
    stage.many(2)
    stage.claim("dead")
    [kept] = stage.claim("alive")
    assert len(stage.reap("dead")) == 1
    assert stage.renew(kept) == {kept.task_id}


def test_the_reaper_takes_a_bounded_number_at_a_time(stage: Stage):
    stage.many(5)
    stage.claim(limit=5)
    stage.clock.advance(61)
    sizes = [
        len(stage.db.write(lambda conn, now: settle.reap(conn, now=now, limit=2))) for _ in range(4)
    ]
    assert sizes == [2, 2, 1, 0]


def test_a_jump_of_the_wall_clock_ends_no_lease_on_the_embedded_database(stage: Stage):
    if stage.is_postgres:  # its leases go by its own clock
        return
    stage.one()
    stage.claim()
    stage.clock.jump(86_400)
    assert stage.reap() == []
    stage.clock.jump(-2 * 86_400)
    stage.clock.advance(61)
    assert len(stage.reap()) == 1


def test_deaths_spend_no_attempts_but_the_tenth_gives_the_task_up_as_lost(stage: Stage):
    job_id = stage.one()
    for death in range(1, 11):
        [lease] = stage.claim()
        assert (lease.attempt, lease.crashes) == (1, death - 1)
        stage.reap("w1")
        stage.clock.advance(delay_after_death(death))
        stage.move_due()
    task, job = stage.task(job_id), stage.job(job_id)
    assert (task.state, task.crashes, job.state) == ("lost", 10, "failed")
    assert "died 10 times" in job.error
    assert stage.outcomes(job_id) == ["died"] * 10
    assert [row.attempt for row in stage.rows("attempts")] == [1] * 10


def test_from_the_third_death_on_a_task_waits_longer_each_time(stage: Stage):
    job_id = stage.one()
    waits = []
    for _ in range(6):
        stage.claim()
        stage.reap("w1")
        task = stage.task(job_id)
        waits.append((task.due_at or stage.now().wall) - stage.now().wall)
        stage.clock.advance(waits[-1])
        stage.move_due()
    assert waits == [0, 0, 1, 2, 4, 8]


def test_a_task_that_may_run_at_most_once_is_lost_when_its_worker_dies(stage: Stage):
    job_id = stage.one("once")
    stage.claim()
    stage.reap("w1")
    assert (stage.task(job_id).state, stage.job(job_id).state) == ("lost", "failed")
    assert "must not run twice" in stage.job(job_id).error
    assert stage.claim() == []
    [row] = stage.rows("attempts")
    assert (row.attempt, row.fence, row.outcome) == (1, 1, "died")


def test_a_task_that_may_run_at_most_once_runs_again_only_when_a_person_says_so(stage: Stage):
    job_id = stage.one("once")
    stage.claim()
    stage.reap("w1")
    verbs.retry(stage.caller(), [job_id])
    [lease] = stage.claim()
    assert (lease.attempt, lease.crashes) == (1, 0)


def test_a_holder_may_give_its_task_up_as_lost(stage: Stage):
    job_id = stage.one("once")
    [lease] = stage.claim()
    stage.settle(ending(lease, "lose", "died", error="never seen"))
    assert (stage.task(job_id).state, stage.job(job_id).state) == ("lost", "failed")


def test_one_lost_lease_does_not_fail_the_rest_of_its_batch(stage: Stage):
    stage.many(3)
    leases = stage.claim(limit=3)
    stage.clock.advance(61)
    stage.renew(leases[0], leases[2])
    stage.reap()
    settled = stage.settle(*(ending(lease) for lease in leases))
    assert settled == {leases[0].task_id, leases[2].task_id}
    assert stage.task(leases[1].job_id).state == "ready"


def test_a_batch_with_a_stale_and_a_current_end_of_one_task_settles_the_current(stage: Stage):
    for order in (1, -1):
        job_id = stage.one()
        [stale] = stage.claim()
        stage.reap("w1")
        [current] = stage.claim()
        ends = [ending(stale, result='"stale"'), ending(current, result='"current"')]
        assert stage.settle(*ends[::order]) == {current.task_id}
        assert stage.job(job_id).result == '"current"'


def test_settling_twice_changes_nothing(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, result="1"))
    assert stage.settle(ending(lease, result="2")) == set()
    assert stage.job(job_id).result == "1"


def test_a_stop_gives_the_attempt_back_and_ends_the_lease(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    verbs.stop(stage.caller(), [job_id])
    task = stage.task(job_id)
    assert (task.state, task.reason, task.attempt, task.fence) == ("blocked", "stopped", 0, 2)
    assert stage.settle(ending(lease)) == set()
    assert stage.outcomes(job_id) == ["stopped"]


def test_a_dead_workers_task_of_a_stopped_job_stays_stopped(stage: Stage):
    job_id = stage.one()
    stage.claim()
    with stage.db.begin() as conn:  # as if the stop had just missed the running task
        conn.exec_driver_sql(
            f"UPDATE jobs SET state = 'stopped', finished_at = 1 WHERE id = {job_id}"
        )
    stage.reap("w1")
    task = stage.task(job_id)
    assert (task.state, task.reason, task.fence, task.attempt) == ("blocked", "stopped", 2, 0)


def test_a_fenced_write_holds_the_task_or_is_refused(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    with stage.db.begin() as conn:
        assert settle.hold(conn, lease.task_id, lease.fence).job_id == job_id
    for task_id, fence in ((lease.task_id, 0), (lease.task_id, 2), (999, 1)):
        with pytest.raises(LeaseLost), stage.db.begin() as conn:
            settle.hold(conn, task_id, fence)
    verbs.stop(stage.caller(), [job_id])
    with pytest.raises(LeaseLost), stage.db.begin() as conn:
        settle.hold(conn, lease.task_id, lease.fence)


def test_after_a_lost_commit_reply_the_history_tells_how_the_run_ended(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    with stage.db.begin() as conn:
        assert commit_recovery.outcome_of(conn, lease.task_id, lease.fence) is None
    stage.settle(ending(lease))
    with stage.db.begin() as conn:
        assert commit_recovery.outcome_of(conn, lease.task_id, lease.fence) == "done"
        assert commit_recovery.outcome_of(conn, lease.task_id, lease.fence + 1) is None


def test_any_text_of_an_error_can_be_stored(stage: Stage):
    job_id = stage.one()
    for error in ("nul \0 byte", "half \ud83d pair", "\udcff from a file name", "ünï ✓ \U0001f4a9"):
        [lease] = stage.claim()
        assert stage.report(lease, 0.1, error)
        more = {"error": error, "traceback": error, "result": f'"{error}"'}
        assert stage.settle(ending(lease, "retry", "transient", due_in=0.0, **more))
        task = stage.task(job_id)
        assert stage.job(job_id).error == task.error
        assert stage.rows("attempts")[-1].traceback == task.error
        stage.move_due()
    assert stage.task(job_id).error == "ünï ✓ \U0001f4a9"


def test_a_step_is_kept_once_and_found_by_the_next_run(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    assert fenced.find_step(stage.db, lease.task_id, "fetch") == (False, None)
    assert fenced.step(stage.db, *lease[:2], "fetch", lambda: "etag", False) == "etag"
    stage.reap("w1")
    [heir] = stage.claim()
    assert fenced.find_step(stage.db, heir.task_id, "fetch") == (True, "etag")
    assert fenced.find_step(stage.db, heir.task_id, "parse") == (False, None)
    assert fenced.step(stage.db, *heir[:2], "fetch", lambda: "other", False) == "etag"


def test_a_step_without_a_result_is_found_too(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    fenced.step(stage.db, *lease[:2], "s", lambda: None, False)
    assert fenced.find_step(stage.db, lease.task_id, "s") == (True, None)
