"""Claiming: the order of the queue, the lease, and what a claim moves out of its way."""

from __future__ import annotations

from quire.control import access, owners
from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.store.queue import claim, job_actions, release, transition, workers
from quire.store.queue import owners as queue_owners
from tests.store.stage import KINDS, Stage, ending


def test_a_claim_gives_a_lease_that_names_everything_the_run_needs(stage: Stage):
    job_id = stage.one(payload={"a": 1})
    [lease] = stage.claim("w7")
    task = stage.task(job_id)
    assert (lease.task_id, lease.job_id, lease.kind, lease.payload) == (
        task.id,
        job_id,
        "noop",
        '{"a":1}',
    )
    assert (lease.fence, lease.attempt, lease.max_attempts, lease.crashes) == (1, 1, 3, 0)
    assert (task.state, task.worker_id, task.fence, task.attempt) == ("running", "w7", 1, 1)
    assert task.expires_at == stage.now().lease + 60
    assert (stage.job(job_id).state, stage.job(job_id).worker_id) == ("running", "w7")


def test_a_claim_of_an_empty_queue_gives_nothing(stage: Stage):
    assert stage.claim(limit=10) == []


def test_a_claim_takes_no_more_than_its_limit(stage: Stage):
    stage.many(5)
    assert len(stage.claim(limit=3)) == 3
    assert len(stage.claim(limit=3)) == 2


def test_a_claim_takes_only_from_its_queue(stage: Stage):
    slow, fast = stage.one("slow"), stage.one("noop")
    assert stage.run(queue="slow") == [slow]
    assert stage.run(queue="default") == [fast]


def test_the_highest_priority_is_claimed_first(stage: Stage):
    ids = {p: stage.one(priority=p) for p in (5, 10, 1, 7)}
    assert stage.run() == [ids[1], ids[5], ids[7], ids[10]]


def test_jobs_of_one_owner_and_priority_run_in_the_order_of_submission(stage: Stage):
    ids = stage.many(20)
    assert stage.run() == ids


def test_within_a_priority_the_fair_tag_decides_before_the_id(stage: Stage):
    a1, a2 = stage.many(2, user="ada")
    b1 = stage.one(user="bob")
    assert stage.run() == [a1, b1, a2]


def test_a_leased_task_is_not_claimed_again(stage: Stage):
    stage.one()
    assert len(stage.claim("w1")) == 1
    assert stage.claim("w2") == []


def test_each_claim_raises_the_fence_by_one(stage: Stage):
    stage.one()
    for fence in (1, 2, 3):
        [lease] = stage.claim()
        assert lease.fence == fence
        stage.settle(ending(lease, "return", "returned", refund_attempt=True))


def test_a_claim_moves_tasks_of_a_stopped_job_out_of_the_way(stage: Stage):
    stopped, live = stage.one(), stage.one()
    # As after a stop whose process died before it moved the waiting tasks.
    stage.db.write(lambda conn, now: job_actions.halt(conn, [stopped], "stop", None, now=now))
    assert stage.task(stopped).state == "ready"
    assert stage.run() == [live]
    assert (stage.task(stopped).state, stage.task(stopped).reason) == ("blocked", "stopped")


def test_a_claim_cancels_tasks_of_a_cancelled_job(stage: Stage):
    job_id = stage.one()
    stage.db.write(lambda conn, now: job_actions.halt(conn, [job_id], "cancel", None, now=now))
    assert stage.claim() == []
    assert stage.task(job_id).state == "cancelled"


def test_a_claim_moves_tasks_of_a_paused_kind_out_of_the_way(stage: Stage):
    held, free = stage.one("other"), stage.one("noop")
    verbs.pause(stage.caller(), "other")
    assert stage.run() == [free]
    assert (stage.task(held).state, stage.task(held).reason) == ("blocked", "paused")


def test_a_claim_gets_past_any_number_of_tasks_that_may_not_run(stage: Stage):
    stage.submit(*[Submission("other")] * 50, user="ada")
    free = stage.one("noop", user="ada")
    verbs.pause(stage.caller(), "other")
    assert stage.run(limit=1) == [free]


def test_a_worker_that_does_not_know_a_kind_leaves_it_to_others(stage: Stage):
    job_id = stage.one("other")
    assert stage.claim("w1", known=["noop"]) == []
    assert stage.task(job_id).reason == "no_worker"
    ids = stage.db.write(
        lambda conn, now: release.blocked_for(conn, "no_worker", kinds_in=["other"])
    )
    assert stage.db.write(lambda conn, now: transition.release(conn, ids, now=now)) == 1
    assert stage.run() == [job_id]


def test_a_claim_passes_over_kinds_that_other_workers_run(stage: Stage):
    others, mine = [stage.one("other") for _ in range(3)], stage.one("noop")
    stage.claim("w-able", limit=0)  # it registers
    with stage.db.read() as conn:
        elsewhere = workers.kinds_elsewhere(conn, "w1", since=stage.now().wall)
        assert elsewhere == {"default": set(KINDS)}
        late = workers.kinds_elsewhere(conn, "w1", since=stage.now().wall + 1)
        assert late == workers.kinds_elsewhere(conn, "w-able", since=0.0) == {}
    [lease] = stage.claim("w1", known=["noop"], limit=5, elsewhere=["other"])
    assert lease.job_id == mine
    assert {stage.task(job_id).state for job_id in others} == {"ready"}
    assert stage.run(worker="w-able") == others


def test_a_claim_looks_deep_past_kinds_of_others_when_it_is_told_to(stage: Stage):
    stage.submit(*[Submission("other")] * (claim.LOOK_AHEAD + 1))
    mine = stage.one("noop")
    assert stage.claim("w1", known=["noop"], elsewhere=["other"]) == []
    [lease] = stage.claim("w1", known=["noop"], elsewhere=["other"], look_ahead=claim.DEEP_LOOK)
    assert lease.job_id == mine
    assert {row.state for row in stage.rows("tasks", kind="other")} == {"ready"}


def test_an_owner_at_its_cap_waits_and_others_do_not(stage: Stage):
    stage.set_owner("ada", max_running=2)
    mine = stage.many(5, user="ada")
    theirs = stage.many(2, user="bob")
    leases = stage.claim(limit=7)
    assert sorted(lease.job_id for lease in leases) == sorted(mine[:2] + theirs)
    assert {stage.task(i).reason for i in mine[2:]} == {"cap"}


def test_a_capped_owner_gets_the_next_task_when_one_ends(stage: Stage):
    stage.set_owner("ada", max_running=2)
    mine = stage.many(5)
    order = []
    while leases := stage.claim(limit=10):
        assert len(leases) <= 2
        order += [lease.job_id for lease in leases]
        stage.settle(ending(leases[0]))
        more = stage.claim(limit=10)
        assert len(more) <= 1
        order += [lease.job_id for lease in more]
        stage.settle(*(ending(lease) for lease in [*leases[1:], *more]))
    assert sorted(order) == mine
    assert {stage.job(i).state for i in mine} == {"completed"}


def test_a_task_in_a_queue_that_nobody_serves_does_not_use_up_a_cap(stage: Stage):
    stage.set_owner("ada", max_running=1)
    unserved = stage.one("slow")
    mine = stage.many(3)
    ran = []
    while done := stage.run(limit=5):
        assert len(done) == 1
        ran += done
    assert sorted(ran) == mine
    assert stage.run(queue="slow") == [unserved]


def test_a_cap_holds_over_all_queues(stage: Stage):
    stage.set_owner("ada", max_running=1)
    stage.one("slow"), stage.many(2)
    [lease] = stage.claim(limit=5)
    assert stage.claim(limit=5, queue="slow") == []
    stage.settle(ending(lease))
    assert len(stage.claim(limit=5, queue="slow")) == 1
    assert stage.claim(limit=5) == []


def test_lifting_a_cap_lets_everything_go(stage: Stage):
    stage.set_owner("ada", max_running=1)
    mine = stage.many(3)
    assert len(stage.claim(limit=3)) == 1
    owners.change(stage.caller(), "ada", max_running=0)
    assert len(stage.claim(limit=3)) == 2
    assert {stage.job(i).state for i in mine} == {"running"}


def test_a_task_keeps_its_own_payload_and_else_takes_its_jobs(stage: Stage):
    stage.one(payload={"of": "job"})
    [lease] = stage.claim()
    assert lease.payload == '{"of":"job"}'


def test_a_claim_without_a_tenant_finds_others_behind_any_flood_of_it(stage: Stage):
    stage.many(claim.LOOK_AHEAD * 3, priority=1)
    foreign = stage.submit(*[Submission("noop", priority=10)] * 2, tenant="acme", user="eve")
    others = stage.submit(Submission("noop", priority=9), tenant="acme", user="bob")
    leases = stage.claim(limit=5, without=["default"])
    assert [lease.job_id for lease in leases] == [*others, foreign[0]]
    assert stage.claim(limit=5, without=["default", "acme"]) == []
    assert {row.state for row in stage.rows("tasks")} == {"ready", "running"}


def test_a_claim_without_a_tenant_passes_over_kinds_that_run_elsewhere(stage: Stage):
    stage.submit(Submission("other", priority=1), tenant="acme")
    [mine] = stage.submit(Submission("noop"), tenant="acme")
    [lease] = stage.claim(known=["noop"], elsewhere=["other"], without=["default"])
    assert lease.job_id == mine


def test_there_are_several_tenants_once_two_have_users_or_jobs(stage: Stage):
    def several() -> bool:
        with stage.db.read() as conn:
            return queue_owners.has_several_tenants(conn)

    assert not several()
    [job] = stage.many(1)
    stage.run()
    verbs.delete(stage.caller(), [job])  # its rows belong to nobody now
    assert not several()
    access.create_user(stage.caller(tenant="acme"), "eve", "member")
    assert several()
