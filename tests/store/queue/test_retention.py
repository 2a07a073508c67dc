"""What the scheduler deletes and what it never deletes; one trouble does not stop the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.control import jobs as verbs
from quire.model.records import Submission
from quire.runtime import scheduler
from quire.settings import Settings, load
from quire.store.documents.gc import Collector
from quire.store.queue import aging, job_actions, retention, submit
from tests.store.stage import Stage, ending

DAY = 86_400.0


@pytest.fixture
def settings(stage: Stage, tmp_path: Path) -> Settings:
    return load({}, home=tmp_path / "home", keep_completed_days=1.0, keep_failed_days=1.0)


def tick(stage: Stage, settings: Settings) -> dict[str, int]:
    return scheduler.tick(stage.db, settings, collector=Collector(stage.db, lambda digest: None))


def test_a_job_is_deleted_when_it_is_old_enough(stage: Stage, settings: Settings):
    old = stage.one()
    stage.run()
    stage.clock.advance(DAY + 1)
    young = stage.one()
    stage.run()
    assert tick(stage, settings)["jobs"] == 1
    assert [row.id for row in stage.rows("jobs")] == [young]
    assert old != young
    stage.inspect()


def test_a_job_that_another_waits_for_is_not_deleted_before_that_one_ran(
    stage: Stage, settings: Settings
):
    first = stage.one()
    stage.claim()
    later = stage.one(after=[first])
    verbs.stop(stage.caller(), [first])
    stage.clock.advance(DAY + 1)
    with stage.db.read() as conn:
        wall = stage.now().wall
        assert retention.expired(conn, completed_before=wall, failed_before=wall) == []
    assert tick(stage, settings)["jobs"] == 0
    verbs.resume(stage.caller(), [first])
    assert stage.run() == [first]
    assert stage.run() == [later]
    stage.clock.advance(DAY + 1)
    assert tick(stage, settings)["jobs"] == 2


def test_one_step_of_the_scheduler_that_fails_does_not_stop_the_others(
    stage: Stage, settings: Settings, monkeypatch, caplog
):
    stage.one()
    stage.run()
    stage.clock.advance(DAY + 1)

    def refuse(*_: object, **__: object) -> list[int]:
        raise RuntimeError("broken")

    monkeypatch.setattr(aging, "promote", refuse)
    monkeypatch.setattr(submit, "prune_keys", refuse)
    done = tick(stage, settings)
    assert done["jobs"] == 1
    assert any(name.startswith("collected_") for name in done)
    assert caplog.text.count("scheduler.step_failed") == 2


def test_more_old_jobs_than_one_transaction_takes_are_deleted(stage: Stage, settings: Settings):
    stage.many(450)
    stage.run()
    stage.clock.advance(DAY + 1)
    assert tick(stage, settings)["jobs"] == 450
    assert stage.count("jobs") == stage.count("tasks") == 0


def test_keys_are_forgotten_some_at_a_time(stage: Stage):
    for key in ("a", "b", "c"):
        verbs.submit(stage.caller(), [Submission("noop")], key=key)
    before = stage.now().wall + 1
    with stage.db.begin() as conn:
        assert submit.prune_keys(conn, before=before, limit=2) == 2
        assert submit.prune_keys(conn, before=before, limit=2) == 1


def test_a_backoff_that_began_while_the_clock_was_ahead_is_not_a_day_longer(
    stage: Stage, settings: Settings
):
    stage.clock.advance(DAY)
    failing, dying, chosen = stage.many(3)
    for lease in stage.claim(limit=2):
        if lease.job_id == failing:
            stage.settle(ending(lease, "retry", "transient", error="x", due_in=60.0))
    for _ in range(3):
        stage.reap("w1")
        stage.claim()
    stage.reap("w1")
    later = stage.now().wall + 2 * DAY
    verbs.cancel(stage.caller(), [chosen])
    planned = stage.one(run_at=later)
    stage.clock.jump(-DAY)
    assert {stage.task(i).reason for i in (failing, dying)} == {"backoff"}
    assert tick(stage, settings)["corrected"] == 2
    assert stage.task(failing).due_at == stage.now().wall + 60.0
    assert stage.task(dying).due_at <= stage.now().wall + 60.0
    assert stage.task(planned).due_at == later
    assert tick(stage, settings)["corrected"] == 0
    stage.clock.advance(61)
    assert stage.move_due() == 2


def test_a_backoff_of_a_clock_that_is_right_is_left_alone(stage: Stage, settings: Settings):
    job = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="x", due_in=3 * DAY))
    due_at = stage.task(job).due_at
    assert tick(stage, settings)["corrected"] == 0
    assert stage.task(job).due_at == due_at


def test_a_job_that_is_being_deleted_is_not_deleted_again(stage: Stage, monkeypatch):
    stage.many(5)
    ids = stage.run()
    monkeypatch.setitem(job_actions.collect.__kwdefaults__, "limit", 2)
    with stage.db.begin() as conn:
        assert job_actions.delete(conn, ids, now=stage.now()) == sorted(ids)
    assert stage.count("jobs") > 0
    wall = stage.now().wall + 1
    with stage.db.read() as conn:
        assert retention.expired(conn, completed_before=wall, failed_before=wall) == []
