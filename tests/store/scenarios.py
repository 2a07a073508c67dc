"""What a zombie tries, as plain functions over a module: run on the real one and on mutants of it.

Each raises AssertionError where the zombie gets through.
"""

from __future__ import annotations

from types import ModuleType

from quire.errors import LeaseLost
from quire.model.outcomes import Lease
from quire.store.queue import release
from tests.store.stage import TTL, Stage, ending


def zombie_and_heir(stage: Stage) -> tuple[Lease, Lease]:
    """Lose a lease by its end, and give the task to another worker."""
    stage.one()
    [zombie] = stage.claim("w1")
    stage.clock.advance(TTL + 1)
    stage.reap()
    [heir] = stage.claim("w2")
    return zombie, heir


def a_zombie_cannot_settle(stage: Stage, settle: ModuleType) -> None:
    zombie, heir = zombie_and_heir(stage)
    for move, outcome in (("finish", "done"), ("fail", "permanent"), ("retry", "transient")):
        with stage.db.begin() as conn:
            late = ending(zombie, move, outcome, error="late" if move != "finish" else None)
            assert settle.settle(conn, [late], now=stage.now()) == set()
    assert stage.settle(ending(heir)) == {heir.task_id}


def a_zombie_cannot_renew(stage: Stage, settle: ModuleType) -> None:
    zombie, heir = zombie_and_heir(stage)
    until = stage.task(heir.job_id).expires_at
    stage.clock.advance(1)
    with stage.db.begin() as conn:
        held = [(zombie.task_id, zombie.fence)]
        assert settle.renew(conn, held, now=stage.now(), ttl=TTL) == set()
    assert stage.task(heir.job_id).expires_at == until


def a_zombie_cannot_look_alive(stage: Stage, settle: ModuleType) -> None:
    zombie, _ = zombie_and_heir(stage)
    with stage.db.begin() as conn:
        assert settle.still_held(conn, [(zombie.task_id, zombie.fence)]) == set()


def a_zombie_cannot_hold(stage: Stage, settle: ModuleType) -> None:
    zombie, heir = zombie_and_heir(stage)
    with stage.db.begin() as conn:
        assert settle.hold(conn, heir.task_id, heir.fence)
        try:
            settle.hold(conn, zombie.task_id, zombie.fence)
        except LeaseLost:
            return
    raise AssertionError("the zombie holds the task")


def a_stale_revocation_spares_the_heir(stage: Stage, settle: ModuleType) -> None:
    zombie, heir = zombie_and_heir(stage)
    with stage.db.begin() as conn:
        held = [(zombie.task_id, zombie.fence)]
        assert settle.revoke(conn, held, now=stage.now()) == []
    assert stage.task(heir.job_id).state == "running"


def what_a_revocation_ended_cannot_be_settled(stage: Stage, settle: ModuleType) -> None:
    job_id = stage.one()
    [lease] = stage.claim("w1")
    with stage.db.begin() as conn:
        settle.revoke(conn, [(lease.task_id, lease.fence)], now=stage.now())
    assert stage.task(job_id).fence == lease.fence + 1
    # Only a stop revokes; this job goes on.
    stage.db.write(lambda conn, now: release.release_stuck(conn, now=now))


def what_a_reaper_took_back_has_another_fence(stage: Stage, settle: ModuleType) -> None:
    job_id = stage.one()
    [lease] = stage.claim("w1")
    stage.clock.advance(TTL + 1)
    with stage.db.begin() as conn:
        assert settle.reap(conn, now=stage.now()) == [lease.task_id]
    assert stage.task(job_id).fence == lease.fence + 1


def a_zombie_cannot_report(stage: Stage, progress: ModuleType) -> None:
    zombie, heir = zombie_and_heir(stage)
    with stage.db.begin() as conn:
        late = [(zombie.task_id, zombie.fence, 0.9, "from the dead")]
        assert progress.report(conn, late, now=stage.now()) == set()
    assert (stage.task(heir.job_id).progress, stage.job(heir.job_id).message) == (0.0, None)
    assert "progress" not in stage.events(heir.job_id)


def a_claim_raises_the_fence(stage: Stage, claim: ModuleType) -> None:
    job_id = stage.one()
    stage.claim(queue="slow")
    with stage.db.begin() as conn:
        [lease] = claim.claim(conn, "w1", "default", ["noop"], now=stage.now(), ttl=TTL)
    assert stage.task(job_id).fence == lease.fence == 1
