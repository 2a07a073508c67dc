"""What is remembered: attempts, events, progress; and what it costs."""

from __future__ import annotations

import math

from quire.control import jobs as verbs
from quire.store.queue import events, fenced
from tests.store.stage import Stage, ending


def test_a_noop_success_writes_at_most_one_attempt_and_one_event(stage: Stage):
    job_id = stage.one()
    stage.run()
    assert (stage.count("attempts"), stage.count("events")) == (1, 1)
    assert stage.events(job_id) == ["job.completed"]


def test_each_run_leaves_one_row_under_its_fence(stage: Stage):
    job_id = stage.one()
    [first] = stage.claim("w1")
    stage.settle(ending(first, "retry", "transient", error="busy", due_in=0.0, worker_id="w1"))
    stage.move_due()
    stage.claim("w2")
    stage.reap("w2")
    [third] = stage.claim("w3")
    verbs.stop(stage.caller(), [job_id])
    verbs.resume(stage.caller(), [job_id])
    [last] = stage.claim("w4")
    stage.settle(ending(last, duration=1.5, peak_rss=2**40, worker_id="w4", began_at=5.0))
    rows = stage.rows("attempts")
    assert [(r.fence, r.attempt, r.outcome, r.worker_id) for r in rows] == [
        (1, 1, "transient", "w1"),
        (2, 2, "died", "w2"),
        (4, 2, "stopped", "w3"),
        (6, 2, "done", "w4"),
    ]
    assert (rows[-1].duration, rows[-1].peak_rss, rows[-1].began_at) == (1.5, 2**40, 5.0)
    assert third.fence == 4


def test_a_failed_run_keeps_its_error_and_traceback(stage: Stage):
    stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="no", traceback="line 1\nline 2"))
    [row] = stage.rows("attempts")
    assert (row.error, row.traceback) == ("no", "line 1\nline 2")


def test_events_tell_the_life_of_a_job_in_order(stage: Stage):
    job_id = stage.one()
    verbs.stop(stage.caller(), [job_id], why="lunch")
    verbs.resume(stage.caller(), [job_id])
    verbs.reprioritise(stage.caller(), [job_id], 2)
    stage.run()
    assert stage.events(job_id) == ["job.stopped", "job.resume", "job.priority", "job.completed"]
    with stage.db.read() as conn:
        tail = events.tail(conn, "default", job_id)
        assert tail[0]["why"] == "lunch"
        assert [e["id"] for e in tail] == sorted(e["id"] for e in tail)
        assert events.tail(conn, "default", job_id, after_id=tail[1]["id"]) == tail[2:]
        assert events.tail(conn, "default", job_id, limit=2) == tail[2:]


def test_progress_only_grows(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    seen = []
    for fraction in (0.1, 0.5, 0.3, None, 0.6):
        assert stage.report(lease, fraction) == {lease.task_id}
        seen.append((stage.task(job_id).progress, stage.job(job_id).progress))
    assert seen == [(p, p) for p in (0.1, 0.5, 0.5, 0.5, 0.6)]


def test_progress_of_a_job_survives_a_retry(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.report(lease, 0.5)
    stage.reap("w1")
    [again] = stage.claim()
    stage.report(again, 0.2)
    assert (stage.task(job_id).progress, stage.job(job_id).progress) == (0.2, 0.5)


def test_progress_outside_zero_to_one_is_brought_inside(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    for fraction, shown in ((-1.0, 0.0), (math.nan, 0.0), (math.inf, 1.0), (-math.inf, 1.0)):
        stage.report(lease, fraction, "still here")
        assert (stage.task(job_id).progress, stage.job(job_id).progress) == (shown, shown)


def test_progress_messages_are_kept_as_events(stage: Stage):
    job_id = stage.one()
    [lease] = stage.claim()
    stage.report(lease, 0.1, "page 1")
    stage.report(lease, 0.2)
    stage.report(lease, None, "page 2")
    assert (stage.task(job_id).message, stage.job(job_id).message) == ("page 2", "page 2")
    with stage.db.read() as conn:
        assert [e["message"] for e in events.tail(conn, "default", job_id)] == ["page 1", "page 2"]


def test_several_reports_of_one_run_in_a_batch_give_the_greatest_and_the_last(stage: Stage):
    from quire.store.queue import progress

    job_id = stage.one()
    [lease] = stage.claim()
    run = lease.task_id, lease.fence
    told = [(*run, 0.7, "a"), (*run, 0.2, "b"), (*run, None, None)]
    stage.db.write(lambda conn, now: progress.report(conn, told, now=now))
    task, job = stage.task(job_id), stage.job(job_id)
    assert (task.progress, task.message, job.progress, job.message) == (0.7, "b", 0.7, "b")
    assert len(stage.events(job_id)) == 2


def test_progress_of_a_split_job_counts_finished_cost(stage: Stage):
    job_id = stage.one(cost=1.0)
    [lease] = stage.claim()
    with fenced.ending(
        stage.db, lease.task_id, lease.fence, began_at=0.0, worker_id="w1"
    ) as transaction:
        transaction.spawn("noop", cost=1.0)
        transaction.spawn("noop", cost=6.0)
    shown = [stage.job(job_id).progress]
    small, large = stage.claim(limit=2)
    stage.report(large, 0.9)
    shown.append(stage.job(job_id).progress)
    stage.settle(ending(small))
    shown.append(stage.job(job_id).progress)
    stage.settle(ending(large))
    shown.append(stage.job(job_id).progress)
    assert shown == [0.125, 0.125, 0.25, 1.0]


def test_old_events_of_jobs_that_are_over_are_pruned(stage: Stage):
    over, live = stage.one(), stage.one()
    stage.run(limit=1)
    [lease] = stage.claim()
    stage.report(lease, None, "hello")
    stage.clock.advance(100)
    before = stage.clock.now().wall - 50
    assert stage.db.write(lambda conn, now: events.prune(conn, before=before, limit=10)) == 1
    assert (stage.events(over), stage.events(live)) == ([], ["progress"])
