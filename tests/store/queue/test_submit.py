"""Submitting jobs: all or none, once per key, and nothing of a request that is refused."""

from __future__ import annotations

import json
import math

import pytest

from quire.control import jobs as verbs
from quire.errors import BadInput, Conflict, NotFound, UnknownKind
from quire.model.records import Submission
from tests.store.stage import Stage

CONTENT = ("jobs", "tasks", "edges", "submissions", "events")


def nothing_is_stored(stage: Stage) -> bool:
    return not any(stage.count(table) for table in CONTENT)


def test_a_submitted_job_has_one_ready_task(stage: Stage):
    job_id = stage.one(payload={"page": 7}, platform="drive", account="a1", priority=3)
    job, task = stage.job(job_id), stage.task(job_id)
    assert (job.state, job.payload, job.platform, job.account) == (
        "pending",
        '{"page":7}',
        "drive",
        "a1",
    )
    assert (task.state, task.priority, task.attempt, task.fence) == ("ready", 3, 0, 0)


def test_ids_grow_and_are_not_given_out_again_after_a_delete(stage: Stage):
    first = stage.many(3)
    assert first == sorted(first)
    verbs.cancel(stage.caller(), first)
    verbs.delete(stage.caller(), first)
    assert stage.one() > max(first)


def test_many_jobs_are_stored_in_the_order_they_were_given(stage: Stage):
    ids = stage.submit(*(Submission("noop", {"n": n}) for n in range(500)))
    assert [stage.job(i).payload for i in ids[::100]] == [
        f'{{"n":{n}}}' for n in range(0, 500, 100)
    ]
    assert stage.count("jobs") == stage.count("tasks") == 500


def test_no_wishes_make_no_jobs(stage: Stage):
    assert stage.submit() == []
    assert nothing_is_stored(stage)


def test_the_same_key_and_body_make_the_jobs_once(stage: Stage):
    wishes = [Submission("noop", {"n": 1}), Submission("noop", {"n": 2})]
    first = verbs.submit(stage.caller(), wishes, key="k")
    assert verbs.submit(stage.caller(), wishes, key="k") == first
    assert stage.count("jobs") == 2


def test_the_same_key_with_another_body_is_refused(stage: Stage):
    verbs.submit(stage.caller(), [Submission("noop", {"n": 1})], key="k")
    for changed in (
        {"payload": {"n": 2}},
        {"priority": 4},
        {"run_at": 2e9},
        {"platform": "drive"},
        {"account": "a"},
        {"cost": 2.0},
        {"max_attempts": 9},
        {"after_failure": "run"},
        {"ref": "r"},
    ):
        wish = Submission("noop", **{"payload": {"n": 1}, **changed})  # type: ignore[arg-type]
        with pytest.raises(Conflict, match="'k'"):
            verbs.submit(stage.caller(), [wish], key="k")
    assert stage.count("jobs") == 1


def test_keys_of_two_users_do_not_meet(stage: Stage):
    wish = [Submission("noop")]
    verbs.submit(stage.caller("ada"), wish, key="k")
    verbs.submit(stage.caller("bob"), wish, key="k")
    verbs.submit(stage.caller("ada", tenant="acme"), wish, key="k")
    assert stage.count("jobs") == 3


def test_an_unknown_kind_stores_nothing_and_names_the_known_ones(stage: Stage):
    with pytest.raises(UnknownKind, match="noop"):
        stage.submit(Submission("noop"), Submission("nope"))
    assert nothing_is_stored(stage)


def test_a_refused_request_leaves_its_key_free(stage: Stage):
    with pytest.raises(UnknownKind):
        verbs.submit(stage.caller(), [Submission("nope")], key="k")
    assert verbs.submit(stage.caller(), [Submission("noop")], key="k")


BAD = (
    Submission("noop", priority=0),
    Submission("noop", priority=11),
    Submission("noop", priority=True),
    Submission("noop", priority=5.0),  # type: ignore[arg-type]
    Submission("noop", priority="5"),  # type: ignore[arg-type]
    Submission("noop", run_at=-1.0),
    Submission("noop", run_at=math.nan),
    Submission("noop", run_at=math.inf),
    Submission("noop", run_at=1e18),
    Submission("noop", run_at=10**400),
    Submission("noop", run_at="soon"),  # type: ignore[arg-type]
    Submission("noop", cost=0.0),
    Submission("noop", cost=-1.0),
    Submission("noop", cost=math.nan),
    Submission("noop", cost=10**400),
    Submission("noop", cost="much"),  # type: ignore[arg-type]
    Submission("noop", max_attempts=0),
    Submission("noop", max_attempts="3"),  # type: ignore[arg-type]
    Submission("noop", after_failure="maybe"),
    Submission("noop", after=(0,)),
    Submission("noop", after=(2**63,)),
    Submission("noop", after=(1.5,)),  # type: ignore[arg-type]
    Submission("noop", after=(True,)),
    Submission("noop", after=("nobody",)),
    Submission("noop", platform=""),
    Submission("noop", platform="x" * 201),
    Submission("noop", account="nul \0"),
    Submission("noop", account="half a character \ud800"),
    Submission("noop", account=5),  # type: ignore[arg-type]
    Submission("noop", ref="r", after=("r",)),
    Submission("noop", payload=["a list"]),  # type: ignore[arg-type]
    Submission("noop", payload={"x": object()}),
    Submission("noop", payload={"x": math.nan}),
    Submission("noop", payload={"x": "nul \0"}),
    Submission("noop", payload={"x": "y" * (1 << 20)}),
)


def test_a_bad_value_is_refused_and_nothing_is_stored(stage: Stage):
    for wish in BAD:
        with pytest.raises(BadInput):
            stage.submit(Submission("noop"), wish)
        assert nothing_is_stored(stage), wish


def test_a_bad_key_is_refused_and_nothing_is_stored(stage: Stage):
    for key in ("", "x" * 201, "nul \0", "half \ud800"):
        with pytest.raises(BadInput):
            verbs.submit(stage.caller(), [Submission("noop")], key=key)
    assert nothing_is_stored(stage)


def test_a_payload_may_hold_any_text_that_json_can(stage: Stage):
    payload = {"backslash": "\\u0000", "half": "\ud800", "emoji": "\U0001f4a9", "": None}
    job_id = stage.one(payload=payload)
    [lease] = stage.claim()
    assert json.loads(lease.payload) == payload
    assert lease.job_id == job_id


def test_a_circle_of_references_is_refused_and_nothing_is_stored(stage: Stage):
    with pytest.raises(BadInput, match="cycle"):
        stage.submit(
            Submission("noop", ref="a", after=("c",)),
            Submission("noop", ref="b", after=("a",)),
            Submission("noop", ref="c", after=("b",)),
        )
    assert nothing_is_stored(stage)


def test_one_reference_for_two_jobs_is_refused(stage: Stage):
    with pytest.raises(BadInput, match="'a'"):
        stage.submit(Submission("noop", ref="a"), Submission("noop", ref="a"))
    assert nothing_is_stored(stage)


def test_a_job_may_wait_for_a_later_one_of_the_same_request(stage: Stage):
    last, first = stage.submit(Submission("noop", after=("f",)), Submission("noop", ref="f"))
    assert stage.run() == [first]
    assert stage.run() == [last]


def test_another_tenants_job_cannot_be_waited_for(stage: Stage):
    [theirs] = stage.submit(Submission("noop"), tenant="acme")
    with pytest.raises(NotFound, match=str(theirs)):
        stage.one(after=(theirs,))
    assert stage.count("jobs") == 1


def test_another_tenants_job_cannot_be_touched(stage: Stage):
    [theirs] = stage.submit(Submission("noop"), tenant="acme")
    mine = stage.one()
    before = stage.job(theirs), stage.job(mine)
    for verb in verbs.VERBS:
        more = [3] if verb == "reprioritise" else []
        with pytest.raises(NotFound, match=str(theirs)):
            getattr(verbs, verb)(stage.caller(), [mine, theirs], *more)
        assert (stage.job(theirs), stage.job(mine)) == before


def test_an_id_beyond_any_is_not_found(stage: Stage):
    for job_id in (0, -1, 10**6, 2**63, 2**200):
        with pytest.raises(NotFound):
            verbs.stop(stage.caller(), [job_id])


def test_a_job_with_a_later_run_at_waits_for_it(stage: Stage):
    job_id = stage.one(run_at=stage.clock.now().wall + 100)
    assert (stage.task(job_id).state, stage.task(job_id).reason) == ("blocked", "due")
    stage.clock.advance(99)
    assert stage.move_due() == 0
    stage.clock.advance(2)
    assert stage.move_due() == 1
    assert stage.run() == [job_id]


def test_a_job_with_an_earlier_run_at_is_ready_at_once(stage: Stage):
    assert stage.task(stage.one(run_at=5.0)).state == "ready"


def test_a_submission_decides_its_own_attempts(stage: Stage):
    assert stage.task(stage.one(max_attempts=7)).max_attempts == 7
    assert stage.task(stage.one()).max_attempts == 3


def test_old_keys_are_forgotten(stage: Stage):
    from quire.store.queue import submit

    first = verbs.submit(stage.caller(), [Submission("noop")], key="k")
    stage.clock.advance(100)
    before = stage.clock.now().wall - 50
    assert stage.db.write(lambda conn, now: submit.prune_keys(conn, before=before)) == 1
    assert verbs.submit(stage.caller(), [Submission("noop")], key="k") != first
