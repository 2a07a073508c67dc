"""A broker that forgets, restarts, goes silent or doubles: nothing is lost, effects happen once."""

from __future__ import annotations

from quire.runtime.broker import make_app
from quire.runtime.dispatcher import WINDOW, Bells
from quire.store.doorbells import Wanted
from tests.celery import stand as standing
from tests.celery.stand import ValkeyStand, dispatching, settings_of
from tests.waiting import stays, until


def test_purges_of_the_broker_lose_nothing(stand: ValkeyStand):
    ids = stand.submit(40, "purged", seconds=0.02)
    app = make_app(settings_of(stand.site, broker_url=stand.valkey.url))
    for _ in range(3):
        until(lambda: stand.valkey.length() > 0 or stand.site.states(ids)["completed"] == 40)
        assert stand.valkey.call("FLUSHALL") == "+OK"
        app.control.purge()
    stand.assert_done_once(ids, "purged")


def test_a_broker_that_restarts_with_empty_memory_is_used_again(stand: ValkeyStand):
    before = stand.submit(10, "before", seconds=0.05)
    stand.valkey.kill()
    during = stand.submit(10, "during", seconds=0.05)
    stand.assert_done_once(during, "during")
    stand.valkey.start()
    stand.assert_done_once(before, "before")
    stand.until_rung()
    assert stand.worker.popen.poll() is None, stand.worker.log


def test_a_black_hole_is_told_and_workers_claim_without_the_broker(stand: ValkeyStand):
    stand.assert_outlives_a_black_hole(f"redis://127.0.0.1:{stand.line.address[1]}/0")


def test_a_slow_broker_slows_and_stops_nothing(stand: ValkeyStand):
    stand.assert_outlives_slowness()


def test_doubled_reordered_and_stray_doorbells_find_nothing_and_are_taken(stand: ValkeyStand):
    ids = stand.submit(10, "doubled", seconds=0.05)
    site = stand.site
    named = [Wanted(row.id, row.job_id, row.kind) for row in site.rows("tasks", kind="i.effect")]
    stray = [Wanted(10**12, 10**12, "i.effect"), Wanted(-1, 0, "no such kind")]
    bells = Bells(settings_of(site, broker_url=stand.valkey.url))
    bells.ring("default", [*reversed(named[-10:]), *stray, *named[-10:]], 0)
    bells.drop()
    stand.assert_done_once(ids, "doubled")
    until(lambda: stand.valkey.length() == 0)
    assert site.rows("tasks", id=10**12) == []


def test_a_deleted_job_s_doorbell_finds_nothing(stand: ValkeyStand):
    from quire.control import jobs

    site = stand.site
    gone = stand.submit(1, "gone", seconds=0.0)
    stand.assert_done_once(gone, "gone")
    [row] = site.rows("tasks", job_id=gone[0])
    jobs.delete(site.app.desk, gone)
    bells = Bells(settings_of(site, broker_url=stand.valkey.url))
    bells.ring("default", [Wanted(row.id, gone[0], row.kind)], 0)
    bells.drop()
    until(lambda: stand.valkey.length() == 0)
    stand.assert_done_once(stand.submit(3, "later"), "later")


def test_a_child_out_of_memory_and_a_killed_one_are_judged_as_without_celery(stand: ValkeyStand):
    site = stand.site
    hog = site.submit("i.hog")
    killed = site.submit("i.kills_self", tag="killed", where="inside")
    assert site.until_over([hog, killed]) == {"failed": 1, "completed": 1}
    assert site.outcomes(hog) == ["memory"]
    assert [tag for tag in site.effects() if tag == "killed"] == ["killed"]
    assert stand.worker.popen.poll() is None


def test_several_dispatchers_at_once_keep_the_window_and_lose_nothing(stand: ValkeyStand):
    site = stand.site
    site.submit_many("i.gated", [{"tag": f"busy{n:03}", "gate": "many"} for n in range(2)])
    site.until_traced("began", "busy001")
    with dispatching(site, count=3):
        ids = stand.submit(60, "many")
        until(lambda: stand.valkey.length() > 0)
        # Four look at once, each at what is in the broker: two slots, and two doorbells a slot.
        assert stays(lambda: stand.valkey.length() <= 4 * WINDOW * 2, during=2.0)
        site.open_gate("many")
        stand.assert_done_once(ids, "many")


def test_the_settings_are_those_of_the_research(stand: ValkeyStand):
    conf = make_app(settings_of(stand.site)).conf
    assert conf.task_acks_late and conf.worker_prefetch_multiplier == 1
    assert conf.task_reject_on_worker_lost is False and conf.result_backend is None
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert conf.broker_transport_options["visibility_timeout"] >= 12 * 3600
    assert standing.DEAF > 0
