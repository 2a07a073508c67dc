"""G12: any job and any task says what it waits for, who holds it and what happens next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quire.control import jobs
from quire.control.explain import task as findings
from quire.control.explain.job import explain_job, explain_task
from quire.errors import NotFound
from quire.model.records import Submission, WorkerRow
from quire.model.states import Reason
from quire.store.queue import fenced, workers
from quire.store.reports import waiting
from tests.store.stage import KINDS, Stage, ending

HOUR = 3600.0


def hire(
    stage: Stage, worker: str = "spare", *, queues: str = "default", kinds: tuple[str, ...] = ()
) -> None:
    """Register a live worker that claims nothing."""
    row = WorkerRow(worker, "mill", 42, "b", "s", "", queues, 2, "running", 0, 0, None)
    stage.db.write(lambda conn, now: workers.register(conn, row, kinds or tuple(KINDS), now=now))


def told(stage: Stage, job_id: int, **caller: str) -> dict[str, Any]:
    """Explain a job."""
    found = explain_job(stage.caller(**caller), job_id)
    assert found["id"] == job_id
    return found


def submitted(stage: Stage, count: int, **whose: Any) -> list[int]:
    """Submit jobs as another tenant, or as if over the API."""
    caller = replace(stage.caller(), **whose)
    return jobs.submit(caller, [Submission("other")] * count)


def said(found: dict[str, Any], code: str, *words: str) -> None:
    """Check the code, and that each word occurs in what people read."""
    whole = f"{found['text']} | {found['next']}"
    assert found["code"] == code, whole
    assert [word for word in words if word not in whole] == [], whole


def test_a_job_that_is_not_due_says_until_when(stage: Stage):
    job = stage.one(run_at=stage.now().wall + 2 * HOUR)
    found = told(stage, job)
    said(found, "due", "scheduled for 1970-01-12T15:46:40.000Z", "in 2 h", "is queued then")
    assert found["until"] == "1970-01-12T15:46:40.000Z"


def test_a_job_that_fell_due_says_who_moves_it(stage: Stage):
    job = stage.one(run_at=stage.now().wall + 60)
    stage.clock.advance(90)
    said(told(stage, job), "due", "due 30 s ago", "worker queues it")


def test_a_job_that_waits_for_another_names_it_and_what_its_failure_does(stage: Stage):
    first = stage.one()
    second = stage.one(after=[first])
    [lease] = stage.claim()
    stage.report(lease, 0.4)
    said(
        told(stage, second),
        "after",
        f"It waits for job {first} (running, 40 %)",
        "If it fails or is cancelled, this task is cancelled too",
        f"when job {first} ends",
    )


def test_a_job_that_runs_whatever_happens_before_it_says_so(stage: Stage):
    first = stage.many(7)
    second = stage.one(after=first, after_failure="run")
    said(
        told(stage, second),
        "after",
        f"job {first[0]} (pending)",
        "and 2 more",
        "runs even if one of them fails",
        "when all of them have ended",
    )


def test_a_job_behind_a_stopped_one_names_the_remedy(stage: Stage):
    first = stage.one()
    second = stage.one(after=[first])
    jobs.stop(stage.caller(), [first])
    said(told(stage, second), "after", "(stopped)", f"quire job resume {first}")


def test_a_job_behind_its_user_s_other_job_names_that_one(stage: Stage):
    first, second = stage.many(2, policy="queue")
    said(told(stage, second), "user_busy", f"Job {first} of user ada (pending)", "`queue`")
    stage.claim()
    said(told(stage, second), "user_busy", f"Job {first} of user ada (running", "ends")


def test_a_task_that_met_a_running_one_of_its_document_says_when_it_tries_again(stage: Stage):
    first, second = stage.many(2)
    with stage.db.begin() as conn:
        conn.exec_driver_sql("UPDATE tasks SET exclusive_key = 'document 1'")
    assert [lease.job_id for lease in stage.claim(limit=2)] == [first]
    said(told(stage, second), "lock_held", "1 of 10", "in 15 s")


def test_every_reason_to_wait_is_explained():
    assert set(findings.BLOCKED_BY) == set(Reason)


def test_a_task_of_an_owner_at_its_cap_says_how_many_run(stage: Stage):
    hire(stage)
    _, second = stage.many(2)
    stage.set_owner("ada", max_running=1)
    stage.claim()
    said(
        told(stage, second),
        "cap",
        "ada has reached the limit: 1 of 1 tasks",
        "when one of them ends",
    )
    assert stage.claim() == []
    assert stage.task(second).reason == "cap"
    said(
        told(stage, second),
        "cap",
        "ada has reached the limit: 1 of 1 tasks",
        "when one of them ends",
    )


def test_a_task_of_a_paused_kind_says_since_when(stage: Stage):
    before = stage.one()
    jobs.pause(stage.caller(), "noop")
    after = stage.one()
    for job in (before, after):
        found = told(stage, job)
        said(found, "paused", "'noop' has been paused since 1970-01-12", "quire unpause noop")
        assert found["since"] == "1970-01-12T13:46:40.000Z"


def test_a_ready_task_without_any_worker_says_so(stage: Stage):
    job = stage.one()
    said(told(stage, job), "no_worker", "No worker is alive", "quire worker")


def test_a_worker_that_is_silent_or_drains_does_not_count(stage: Stage):
    job = stage.one()
    hire(stage)
    said(told(stage, job), "ready")
    stage.clock.advance(stage.db.lease_seconds + 1)
    said(told(stage, job), "no_worker", "No worker is alive")
    hire(stage, "w2")
    stage.db.write(lambda conn, now: workers.set_state(conn, ["w2"], "draining", now=now))
    said(told(stage, job), "no_worker", "No worker is alive")


def test_a_queue_that_no_worker_serves_is_named_with_those_served(stage: Stage):
    hire(stage, queues="default,fast")
    job = stage.one("slow")
    said(told(stage, job), "no_worker", "serves queue 'slow'", "default, fast", "QUIRE_QUEUES")


def test_a_kind_that_no_worker_knows_is_named_with_those_known(stage: Stage):
    hire(stage, kinds=("other", "once"))
    job = stage.one()
    said(told(stage, job), "no_worker", "can run kind 'noop'", "once, other", "--plugin")
    stage.claim(known=["other", "once"])
    assert stage.task(job).reason == "no_worker"
    said(told(stage, job), "no_worker", "can run kind 'noop'", "once, other", "--plugin")
    hire(stage, "w2")
    said(told(stage, job), "no_worker", "Worker w2 can run it", "next sweep")


def test_a_ready_task_says_how_many_are_ahead_of_it(stage: Stage):
    hire(stage)
    first = stage.one(user="bob")
    said(told(stage, first), "ready", "first in queue 'default'", "starts when a worker is free")
    second = stage.one(user="cyd")
    said(told(stage, second), "ready", "1 task is ahead", "from 1 user")
    stage.many(3, user="bob", priority=1)
    found = told(stage, second)
    said(found, "ready", "4 tasks are ahead of it", "from 1 user.", "starts when a worker is free")
    assert found["since"] == "1970-01-12T13:46:40.000Z"
    stage.many(2, user="ada", priority=1)
    said(told(stage, second), "ready", "6 tasks are ahead of it", "from 2 users")


def test_a_count_of_those_ahead_stops_somewhere(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "MOST", 3)
    hire(stage)
    stage.many(5, user="bob")
    last = stage.one(user="bob")
    said(told(stage, last), "ready", "More than 3 tasks are ahead")


def test_a_running_task_names_its_holder_and_its_lease(stage: Stage):
    hire(stage)
    job = stage.one()
    [lease] = stage.claim()
    stage.report(lease, 0.25, "page 3 of 12")
    stage.clock.advance(20)
    found = told(stage, job)
    said(
        found,
        "running",
        "Worker w1 (host h, pid 1) has been running it for 20 s, 25 %",
        "attempt 1 of 3",
        "is renewed continuously and would expire in 40 s",
        "page 3 of 12",
        "another one runs it again",
    )
    assert (found["since"], found["until"]) == (
        "1970-01-12T13:46:40.000Z",
        "1970-01-12T13:47:40.000Z",
    )


def test_a_running_task_whose_holder_is_silent_says_since_when(stage: Stage):
    hire(stage)
    job = stage.one()
    stage.claim()
    stage.clock.advance(30)
    said(told(stage, job), "running", "last heartbeat 30 s ago", "take the task in 30 s")


def test_a_run_that_must_not_be_repeated_says_what_a_death_does(stage: Stage):
    hire(stage)
    job = stage.one("once")
    stage.claim()
    said(told(stage, job), "running", "it is lost and not run again")


def test_a_lease_that_ended_says_who_takes_it_back(stage: Stage):
    job = stage.one()
    stage.claim("gone")
    stage.clock.advance(75)
    said(
        told(stage, job),
        "lease_ended",
        "worker gone (host h, pid 1) expired 15 s ago",
        "runs again",
    )
    stage.reap()


def test_a_task_that_backs_off_says_why_and_until_when(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="server said 503", due_in=60.0))
    found = told(stage, job)
    said(found, "backoff", "Attempt 1 of 3", "server said 503", "Next attempt in 1 min (2 of 3)")
    assert found["until"] == "1970-01-12T13:47:40.000Z"
    assert [run["outcome"] for run in found["attempts"]] == ["transient"]


def test_a_task_that_runs_again_says_why(stage: Stage):
    hire(stage)
    job = stage.one()
    stage.claim("w1")
    stage.reap("w1")
    said(told(stage, job), "ready", "previous attempt ended: its worker died or its lease expired")
    stage.claim("w1")
    said(told(stage, job), "running", "previous attempt ended: its worker died")


def test_a_stopped_job_says_why_and_how_to_go_on(stage: Stage):
    job = stage.one()
    jobs.stop(stage.caller(), [job])
    said(
        told(stage, job),
        "stopped",
        "Stopped by ada just now. 0 of 1 task is done.",
        f"quire job resume {job}",
    )
    task = stage.task(job)
    said(explain_task(stage.caller(), task.id), "stopped", f"quire job resume {job}")


def test_a_replaced_job_names_the_one_that_replaced_it(stage: Stage):
    first = stage.one(policy="replace")
    second = stage.one(policy="replace")
    found = told(stage, first)
    said(found, "stopped", f"replaced by job {second}", f"quire job resume {first}")
    task = explain_task(stage.caller(), stage.task(first).id)
    said(task, "stopped", f"replaced by job {second}")


def test_a_failed_job_says_what_failed_and_how_to_run_it_again(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="no such file"))
    found = told(stage, job)
    said(found, "failed", "It failed: no such file", f"quire job resume {job}")
    task = explain_task(stage.caller(), lease.task_id)
    said(task, "failed", "failed after 1 attempt: no such file", f"quire job retry {job}")


def test_a_lost_task_says_that_its_end_was_not_seen(stage: Stage):
    job = stage.one("once")
    [lease] = stage.claim("w1")
    stage.reap("w1")
    said(told(stage, job), "failed", "must not run twice")
    said(explain_task(stage.caller(), lease.task_id), "lost", "worker disappeared")


def test_a_completed_job_says_so(stage: Stage):
    job = stage.one()
    stage.run()
    found = told(stage, job)
    said(found, "completed", "Every task succeeded", "complete")
    said(explain_task(stage.caller(), stage.task(job).id), "done", "succeeded")


def test_a_cancelled_job_says_why(stage: Stage):
    first = stage.one()
    second = stage.one(after=[first])
    jobs.cancel(stage.caller(), [first], why="not needed")
    said(told(stage, first), "cancelled", "not needed", f"quire job retry {first}")
    said(told(stage, second), "cancelled", f"job {first}, which it waited for, ended cancelled")
    task = explain_task(stage.caller(), stage.task(second).id)
    said(task, "cancelled", f"job {first}, which it waited for")


def test_a_job_of_many_tasks_explains_the_most_advanced_and_counts_the_rest(stage: Stage):
    hire(stage)
    job = stage.one()
    [lease] = stage.claim()
    began = {"began_at": lease.begin_at, "worker_id": "w1"}
    with fenced.ending(stage.db, lease.task_id, lease.fence, **began) as transaction:  # type: ignore[arg-type]
        first, *_ = [transaction.spawn("noop") for _ in range(7)]
        for _ in range(2):
            transaction.spawn("noop", after=[first])
    stage.claim()
    found = told(stage, job)
    child = lease.task_id + 1
    said(found, "running", f"Task {child}: ", "Open tasks: 1 running, 6 ready, 2 blocked")
    assert [task["code"] for task in found["tasks"]] == ["running", *["ready"] * 4]
    expected = {"blocked": 2, "ready": 6, "running": 1, "done": 1, "reasons": {"after": 2}}
    assert found["counts"] == expected
    blocked = explain_task(stage.caller(), lease.task_id + 8)
    said(blocked, "after", f"It waits for task {child} (running, 0 %)")
    assert blocked["job_id"] == job


def test_a_batch_that_failed_in_part_shows_what_failed(stage: Stage):
    job = stage.one()
    [lease] = stage.claim()
    began = {"began_at": lease.begin_at, "worker_id": "w1"}
    with fenced.ending(stage.db, lease.task_id, lease.fence, **began) as transaction:  # type: ignore[arg-type]
        transaction.spawn("noop")
        transaction.spawn("noop")
    good, bad = stage.claim(limit=2)
    stage.settle(ending(good), ending(bad, "fail", "permanent", error="torn page"))
    found = told(stage, job)
    said(found, "failed", "1 of 3 tasks failed; the last: torn page", f"quire job resume {job}")
    assert found["tasks"][0]["id"] == bad.task_id
    assert found["attempts"][0]["error"] == "torn page"


@pytest.mark.parametrize("strange", [0, -1, 999, 2**63, 2**80])
def test_an_unknown_id_is_refused(stage: Stage, strange: int):
    with pytest.raises(NotFound):
        explain_job(stage.caller(), strange)
    with pytest.raises(NotFound):
        explain_task(stage.caller(), strange)


def test_another_tenant_s_job_does_not_exist(stage: Stage):
    job = stage.one()
    with pytest.raises(NotFound):
        explain_job(stage.caller(tenant="other"), job)
    with pytest.raises(NotFound):
        explain_task(stage.caller(tenant="other"), stage.task(job).id)


def test_a_task_that_may_not_take_the_last_child_says_for_whom_it_is_kept(stage: Stage):
    mine = submitted(stage, 3, origin="api")
    hire(stage, "w1")
    stage.claim("w1")
    said(told(stage, mine[1]), "ready", "first in queue")
    theirs = submitted(stage, 1, tenant="acme", user="eve")
    said(told(stage, mine[1]), "kept", "last free child for tenants", "tasks of tenant default")
    said(told(stage, theirs[0], tenant="acme"), "ready", "when a worker is free")
    stage.claim("w1")
    said(told(stage, mine[2]), "ready", "when a worker is free")
    hire(stage, "w2")
    said(told(stage, mine[2]), "ready", "when a worker is free")


def test_a_task_of_this_machine_is_kept_from_no_child(stage: Stage):
    mine = submitted(stage, 2)
    submitted(stage, 1, tenant="acme")
    hire(stage, "w1")
    stage.claim("w1")
    said(told(stage, mine[1]), "ready", "when a worker is free")
