"""A broker that forgets, restarts, goes silent or doubles: nothing is lost, effects happen once."""

from __future__ import annotations

from typing import Any

import pytest

from quire.celery.dispatcher import WINDOW, DoorbellSender
from quire.celery.settings import make_app
from quire.store.queue.doorbells import ReadyTask
from tests.brokers import Valkey
from tests.celery.stand import (
    DEAF,
    ValkeyStand,
    assert_once,
    dispatching,
    settings_of,
    start_worker,
    submit,
)
from tests.integration.processes import Site
from tests.waiting import stays, until


@pytest.mark.parametrize("how", ["flushall", "celery purge"])
def test_a_purge_of_the_broker_is_mended_by_ringing_again(site: Site, valkey: Valkey, how: str):
    # Nobody looks by itself: what runs was rung for.
    worker = start_worker(site, poll_interval=DEAF)
    app: Any = make_app(settings_of(site))
    with dispatching(site):
        for round_ in range(2):
            gated = [{"tag": f"held{round_}{n:03}", "gate": f"g{round_}"} for n in range(2)]
            held = site.submit_many("i.gated", gated)
            site.until_traced("began", f"held{round_}001")
            more = submit(site, 20, f"more{round_}")
            until(lambda: valkey.length() > 0, what=site.logs)
            if how == "flushall":
                assert valkey.call("FLUSHALL") == "+OK"
            else:
                assert app.control.purge() > 0
            site.open_gate(f"g{round_}")
            assert site.until_over([*held, *more]) == {"completed": 22}
    assert worker.logs("broker.silent") == []
    assert worker.leave() == 0, worker.log
    assert_once(site, ("held0", 2), ("more0", 20), ("held1", 2), ("more1", 20))


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
    named = [ReadyTask(row.id, row.job_id, row.kind) for row in site.rows("tasks", kind="i.effect")]
    stray = [ReadyTask(10**12, 10**12, "i.effect"), ReadyTask(-1, 0, "no such kind")]
    sender = DoorbellSender(settings_of(site, broker_url=stand.valkey.url))
    sender.send("default", [*reversed(named[-10:]), *stray, *named[-10:]], 0)
    sender.disconnect()
    stand.assert_done_once(ids, "doubled")
    until(lambda: stand.valkey.length() == 0)
    assert site.rows("tasks", id=10**12) == []


def test_a_deleted_job_s_doorbell_finds_nothing(stand: ValkeyStand):
    from quire.control import jobs

    site = stand.site
    gone = stand.submit(1, "gone", seconds=0.0)
    stand.assert_done_once(gone, "gone")
    [row] = site.rows("tasks", job_id=gone[0])
    jobs.delete(site.app.caller, gone)
    sender = DoorbellSender(settings_of(site, broker_url=stand.valkey.url))
    sender.send("default", [ReadyTask(row.id, gone[0], row.kind)], 0)
    sender.disconnect()
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
