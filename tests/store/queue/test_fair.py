"""Fair shares: nobody's queue length buys them more than their share."""

from __future__ import annotations

from collections import Counter

from quire.control import jobs as verbs
from quire.model.records import Submission
from tests.store.stage import Stage


def owners_of(stage: Stage, jobs: list[int]) -> list[int]:
    owner = {row.id: row.owner_id for row in stage.rows("jobs")}
    return [owner[job_id] for job_id in jobs]


def test_fifty_owners_with_unequal_queues_get_equal_shares(stage: Stage):
    for n in range(50):
        stage.many(20 + 5 * (n % 7), user=f"u{n}")
    done: list[int] = []
    while len(done) < 500:
        done += stage.run(limit=25)
    shares = Counter(owners_of(stage, done))
    assert len(shares) == 50
    assert all(9 <= share <= 11 for share in shares.values()), shares


def test_a_newcomer_starts_after_about_one_task_of_each_other_owner(stage: Stage):
    for user in ("ada", "bob"):
        stage.many(300, user=user)
    stage.run(limit=101)
    late = stage.one(user="eve")
    assert late in stage.run(limit=4)


def test_an_owner_that_was_idle_has_no_credit(stage: Stage):
    stage.many(100, user="ada")
    stage.many(100, user="bob")
    stage.run(limit=100)
    eve = set(stage.many(50, user="eve"))
    shares = [len(eve & set(stage.run(limit=30))) for _ in range(3)]
    assert shares == [10, 10, 10]


def test_an_owner_that_cancelled_ten_thousand_tasks_is_not_punished(stage: Stage):
    ids = stage.many(10_000, user="ada")
    stage.many(20, user="bob")
    for at in range(0, len(ids), 2000):
        verbs.cancel(stage.caller("ada"), ids[at : at + 2000])
    mine = set(stage.many(5, user="ada"))
    assert len(mine & set(stage.run(limit=10))) == 5


def test_weight_two_gets_twice_the_share(stage: Stage):
    stage.set_owner("ada", weight=2.0)
    ada = set(stage.many(60, user="ada"))
    stage.many(60, user="bob")
    assert len(ada & set(stage.run(limit=60))) == 40


def test_a_costly_task_counts_for_as_many_cheap_ones(stage: Stage):
    stage.submit(*[Submission("noop", cost=12.0)] * 10, user="ada")
    cheap = set(stage.submit(*[Submission("noop", cost=1.0)] * 100, user="bob"))
    first = stage.run(limit=13)
    assert len(cheap & set(first)) == 12


def test_a_backlog_of_low_priority_does_not_delay_the_same_owners_urgent_job(stage: Stage):
    stage.many(100, user="ada", priority=9)
    stage.many(10, user="bob", priority=5)
    urgent = stage.one(user="ada", priority=5)
    assert urgent in stage.run(limit=2)


def test_the_order_survives_a_claim_whose_advance_was_lost(stage: Stage):
    from quire.store.queue import claim

    stage.many(20, user="ada")
    with stage.db.begin() as conn:
        claim.claim(conn, "w1", "default", ["noop"], now=stage.now(), ttl=60, limit=10)
    bob = stage.many(2, user="bob")
    # Without the advance the newcomer starts too early by what was claimed, never too late.
    assert set(bob) <= set(stage.run(limit=4))


def test_claimed_tags_only_grow(stage: Stage):
    from quire.store.queue import order

    with stage.db.begin() as conn:
        order.advance_band(conn, "default", 5, 10.0)
        order.advance_band(conn, "default", 5, 4.0)
    assert [row.claimed_tag for row in stage.rows("bands")] == [10.0]
