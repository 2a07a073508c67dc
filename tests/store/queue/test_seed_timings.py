"""Seed 000: a heartbeat of 30 s, a lease of 300 s and a sweep of 60 s are settings like others."""

from pathlib import Path

from quire.settings import load
from tests.store.stage import Stage

SEED = {
    "QUIRE_HEARTBEAT_INTERVAL": "30",
    "QUIRE_LEASE_SECONDS": "300",
    "QUIRE_SWEEP_INTERVAL": "60",
}


def test_the_timings_of_the_seed_are_accepted_as_settings(tmp_path: Path):
    settings = load(SEED, home=tmp_path)
    assert settings.heartbeat_interval == 30
    assert settings.lease_seconds == 300
    assert settings.sweep_interval == 60


def test_with_a_lease_of_300_s_a_silent_worker_loses_its_task_after_300_s_and_not_before(
    stage: Stage, tmp_path: Path
):
    settings = load(SEED, home=tmp_path)
    stage.one()
    [lease] = stage.claim(ttl=settings.lease_seconds)
    stage.clock.advance(299)
    assert stage.reap() == []
    stage.clock.advance(2)
    assert stage.reap() == [lease.task_id]


def test_a_lease_that_is_renewed_every_30_s_is_never_reaped(stage: Stage, tmp_path: Path):
    settings = load(SEED, home=tmp_path)
    stage.one()
    [lease] = stage.claim(ttl=settings.lease_seconds)
    for _ in range(40):
        stage.clock.advance(settings.heartbeat_interval)
        assert stage.renew(lease, ttl=settings.lease_seconds) == {lease.task_id}
        assert stage.reap() == []
