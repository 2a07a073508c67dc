"""What a job says about itself: who stopped it, and when it tries again."""

from __future__ import annotations

from typing import Any

import pytest

from quire.clock import iso
from quire.control import jobs, queries
from quire.errors import Conflict
from quire.store.queue import release
from tests.store.stage import Stage, ending


def shown(stage: Stage, job_id: int) -> dict[str, Any]:
    return queries.job(stage.caller(), job_id)


def test_a_stopped_job_says_who_stopped_it_when_and_why_until_it_is_resumed(stage: Stage):
    job = stage.one()
    at = stage.now().wall
    jobs.stop(stage.caller("bea"), [job], why="lunch")
    stage.clock.advance(60)
    found = shown(stage, job)
    assert (found["stopped_by"], found["stopped_at"], found["stopped_why"]) == (
        "bea", iso(at), "lunch",
    )  # fmt: skip
    [listed] = queries.jobs(stage.caller())["items"]
    assert listed["stopped_by"] == "bea"
    jobs.resume(stage.caller(), [job])
    found = shown(stage, job)
    assert [found[name] for name in ("stopped_by", "stopped_at", "stopped_why")] == [None] * 3


def test_a_cancelled_job_says_who_cancelled_it(stage: Stage):
    job = stage.one()
    jobs.cancel(stage.caller("bea"), [job])
    found = shown(stage, job)
    assert (found["stopped_by"], found["stopped_at"]) == ("bea", found["finished_at"])


def test_a_job_stopped_by_a_policy_has_a_reason_and_a_time_but_no_name(stage: Stage):
    first = stage.one(policy="replace")
    second = stage.one(policy="replace")
    found = shown(stage, first)
    assert (found["stopped_by"], found["stopped_why"]) == (None, f"replaced by job {second}")
    assert found["stopped_at"] is not None


def test_a_job_that_only_waits_says_when_its_next_attempt_is(stage: Stage):
    job = stage.one(max_attempts=3)
    assert shown(stage, job)["next_attempt_at"] is None
    [lease] = stage.claim()
    due_at = stage.now().wall + 40
    stage.settle(ending(lease, "retry", "transient", error="no route to host", due_in=40.0))
    assert shown(stage, job)["next_attempt_at"] == iso(due_at)
    stage.clock.advance(41)
    stage.db.write(lambda conn, now: release.release_due(conn, now=now))
    assert shown(stage, job)["next_attempt_at"] is None


def test_a_job_whose_tasks_wait_for_something_else_has_no_next_attempt(stage: Stage):
    first = stage.one()
    second = stage.one(after=[first])
    assert shown(stage, second)["next_attempt_at"] is None


def test_a_failed_job_can_be_resumed_or_retried_and_not_cancelled(stage: Stage):
    job = stage.one(max_attempts=1)
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="no"))
    assert shown(stage, job)["allowed"] == ["resume", "retry", "delete"]
    with pytest.raises(Conflict, match="it is failed; cannot cancel it"):
        jobs.one(stage.caller(), "cancel", job)
