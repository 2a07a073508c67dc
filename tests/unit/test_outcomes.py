"""What becomes of a task after each outcome of its run."""

from __future__ import annotations

from typing import Any

import pytest

from quire.model.contracts import JobKind
from quire.model.outcomes import Lease, Outcome, RunReport, Settlement, decide
from quire.model.retry import MAX_CRASHES

KIND = JobKind("k", print)
ONCE = JobKind("k", print, max_attempts=1, at_most_once=True, reason="it sends a letter")
LIMITS = ("crashed", "timeout", "memory", "stalled")


def settled(
    outcome: str, kind: JobKind = KIND, *, asked: bool = False, ended_at: float = 0.0, **more: Any
) -> Settlement:
    given = {name: more.pop(name) for name in RunReport._fields if name in more}
    lease = Lease(1, 2, 3, "k", "{}", 1, 3, 0, "default", 5, 0.0, 100.0)._replace(**more)
    ended = RunReport(1, 2, Outcome(outcome), **given)
    return decide(ended, lease, kind, 0.5, "w1", asked=asked, ended_at=ended_at)


@pytest.mark.parametrize(
    ("outcome", "asked", "move", "recorded", "refund_attempt", "crashed"),
    [
        ("done", False, "finish", "done", False, False),
        ("unstarted", False, "return", "returned", True, False),
        ("revoked", True, "return", "returned", True, False),
        ("stopped", True, "return", "returned", True, False),
        ("revoked", False, "retry", "failed", False, False),
        ("stopped", False, "retry", "failed", False, False),
        ("transient", False, "retry", "failed", False, False),
        ("permanent", False, "fail", "failed", False, False),
        ("outage", False, "retry", "outage", True, False),
        ("died", False, "return", "died", True, True),
        ("crashed", False, "retry", "crashed", False, True),
        ("memory", False, "retry", "memory", False, True),
        ("timeout", False, "retry", "timeout", False, False),
        ("stalled", False, "retry", "stalled", False, False),
    ],
)
def test_each_outcome_of_a_first_attempt(outcome, asked, move, recorded, refund_attempt, crashed):
    settlement = settled(outcome, asked=asked)
    assert (settlement.move, settlement.outcome) == (move, recorded)
    assert (settlement.refund_attempt, settlement.crashed) == (refund_attempt, crashed)
    assert (settlement.task_id, settlement.fence, settlement.job_id, settlement.worker_id) == (
        1,
        2,
        3,
        "w1",
    )


@pytest.mark.parametrize("outcome", ["transient", "stopped", *LIMITS])
def test_the_last_attempt_fails(outcome):
    settlement = settled(outcome, attempt=3)
    assert (settlement.move, settlement.due_in) == ("fail", None)
    assert settlement.error == f"the run ended: {outcome}"


@pytest.mark.parametrize("outcome", [*LIMITS, "died"])
def test_a_kind_that_must_not_run_twice_is_lost_when_its_end_was_not_seen(outcome):
    settlement = settled(outcome, ONCE, error="killed")
    assert settlement.move == "lose"
    assert settlement.error == "killed. It must not run twice: it sends a letter"


@pytest.mark.parametrize("outcome", ["revoked", "stopped"])
def test_a_kind_that_must_not_run_twice_is_lost_when_its_worker_ends_its_run(outcome):
    assert settled(outcome, ONCE, asked=True, duration=0.1).move == "lose"
    assert settled(outcome, asked=True, duration=0.1).move == "return"


def test_a_kind_that_must_not_run_twice_is_returned_when_it_never_began():
    assert settled("revoked", ONCE, asked=True).move == "return"
    assert settled("unstarted", ONCE).move == "return"


def test_a_kind_that_must_not_run_twice_does_not_run_again_after_an_outage():
    settlement = settled("outage", ONCE, max_attempts=1, duration=0.1, error="no database")
    assert (settlement.move, settlement.error) == ("fail", "no database")


def test_a_task_that_is_killed_from_outside_too_often_is_lost():
    assert settled("died", crashes=MAX_CRASHES - 2).move == "retry"
    assert settled("died", crashes=MAX_CRASHES - 1).move == "lose"


@pytest.mark.parametrize("outcome", LIMITS)
def test_a_page_range_is_split_after_two_crashes_and_a_page_set_aside_after_three(outcome):
    moves = {
        (last, attempt): settled(outcome, from_page=1, to_page=last, attempt=attempt).move
        for last in (1, 8)
        for attempt in (1, 2, 3)
    }
    assert moves == {
        (8, 1): "retry", (8, 2): "split", (8, 3): "split",
        (1, 1): "retry", (1, 2): "retry", (1, 3): "quarantine",
    }  # fmt: skip


def test_the_delay_of_a_retry_is_the_one_that_the_error_names_else_the_backoff():
    assert settled("transient", retry_after=7.5).due_in == 7.5
    first, second = (settled("transient", attempt=n).due_in for n in (1, 2))
    assert first is not None and second is not None
    assert 0 < first < second


def test_the_start_is_measured_back_from_the_end_but_not_before_the_claim():
    assert settled("done", duration=2.0, ended_at=200.0).began_at == 198.0
    assert settled("done", duration=2.0, ended_at=50.0).began_at == 100.0
    assert settled("unstarted", ended_at=200.0).began_at is None
