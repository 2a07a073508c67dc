"""Delivery by Celery over RabbitMQ: a quorum queue, its limits, and a purge."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.celery import settings as celery_settings
from tests import brokers
from tests.brokers import Rabbit
from tests.celery.stand import (
    DEAF,
    Stand,
    assert_once,
    dispatching,
    settings_of,
    start_worker,
    submit,
    trouble,
)
from tests.integration.processes import WORKER, Site
from tests.proxy import Proxy
from tests.waiting import stays, until

#: Milliseconds for which a message may be held where that is not to be long.
HASTE = 2000


@pytest.fixture
def line(shared_rabbit: Rabbit) -> Iterator[Proxy]:
    """A connection to RabbitMQ which can fail."""
    with Proxy(("127.0.0.1", shared_rabbit.port)) as line:
        yield line


@pytest.fixture
def place(shared_rabbit: Rabbit) -> str:
    """A place on the node that no other test uses, also not at the same time."""
    return shared_rabbit.own_place()


@pytest.fixture
def site(home: Path, pg_url: str, line: Proxy, place: str) -> Iterator[Site]:
    """A home on PostgreSQL whose tasks Celery delivers over RabbitMQ."""
    site = Site(home, pg_url)
    site.settings["broker_url"] = f"amqp://guest:guest@127.0.0.1:{line.address[1]}/{place}"
    yield site.prepare()
    site.close()


def test_doorbells_come_by_a_quorum_queue_and_a_purge_loses_nothing(
    site: Site, shared_rabbit: Rabbit, line: Proxy, place: str
):
    worker = start_worker(site, poll_interval=DEAF)
    with dispatching(site):
        ids = submit(site, 20, "first")
        assert site.until_over(ids) == {"completed": 20}
        assert worker.logs("broker.silent") == []

        held = site.submit_many("i.gated", [{"tag": f"held{n:03}"} for n in range(2)])
        site.until_traced("began", "held001")
        more = submit(site, 20, "more")
        until(lambda: waiting(site) > 0, what=site.logs)
        shared_rabbit.ctl("purge_queue", "-p", place, "quire.default")
        site.open_gate()
        assert site.until_over([*held, *more]) == {"completed": 22}
        assert shared_rabbit.arguments_of("quire.default", place) == {
            "x-queue-type": "quorum",
            "x-delivery-limit": celery_settings.DELIVERIES,
            "x-consumer-timeout": celery_settings.CONSUMER_MILLISECONDS,
        }

        # Every connection is cut: worker and dispatcher come back by themselves.
        line.cut()
        last = submit(site, 5, "last")
        assert site.until_over(last) == {"completed": 5}
        until(lambda: not trouble(site), what=lambda: trouble(site))
    assert worker.leave() == 0, worker.log
    assert_once(site, ("first", 20), ("held", 2), ("more", 20), ("last", 5))


def waiting(site: Site) -> int:
    settings = settings_of(site)
    app: Any = celery_settings.make_app(settings)
    with app.connection_for_read() as connection:
        queue = celery_settings.queue_of("default", settings).bind(connection.default_channel)
        return int(queue.queue_declare().message_count)


def test_a_black_hole_before_rabbitmq_is_told_and_workers_claim_without_it(rabbit_stand: Stand):
    rabbit_stand.assert_outlives_a_black_hole(f"amqp://127.0.0.1:{rabbit_stand.line.address[1]}/")


def test_a_slow_rabbitmq_slows_and_stops_nothing(rabbit_stand: Stand):
    rabbit_stand.until_rung()
    rabbit_stand.assert_outlives_slowness()


def test_a_doorbell_given_back_too_often_is_dropped_and_its_task_runs(site: Site):
    worker = start_worker(site, poll_interval=DEAF)
    with dispatching(site):
        held = site.submit_many("i.gated", [{"tag": f"held{n:03}"} for n in range(2)])
        site.until_traced("began", "held001")
        more = submit(site, 2, "more")
        until(lambda: waiting(site) == 2, what=site.logs)
    # Nobody rings any more.
    assert given_back(site) == [celery_settings.DELIVERIES + 1] * 2
    assert waiting(site) == 0
    site.open_gate()
    assert site.until_over(held) == {"completed": 2}
    assert stays(lambda: site.states(more) == {"pending": 2}, during=1.5)
    with dispatching(site):
        assert site.until_over(more) == {"completed": 2}
    assert worker.leave() == 0, worker.log
    assert_once(site, ("held", 2), ("more", 2))


def given_back(site: Site) -> list[int]:
    """Take messages and give them back until none is left; how often each one came."""
    settings = settings_of(site)
    app: Any = celery_settings.make_app(settings)
    seen: Counter[str] = Counter()
    with app.connection_for_read() as connection:
        queue = celery_settings.queue_of("default", settings).bind(connection.default_channel)
        while message := queue.get():
            seen[message.headers["id"]] += 1
            message.requeue()
    return list(seen.values())


def test_a_queue_that_another_has_declared_otherwise_is_told_and_tasks_run(site: Site):
    app: Any = celery_settings.make_app(settings_of(site))
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare("quire.default", durable=True, auto_delete=False)
    worker = start_worker(site, poll_interval=1)
    with dispatching(site):
        ids = submit(site, 5, "other")
        assert site.until_over(ids) == {"completed": 5}
        until(lambda: "inequivalent arg 'x-queue-type'" in trouble(site), what=site.logs)
        with app.connection_for_write() as connection:
            connection.default_channel.queue_delete("quire.default")
        until(lambda: not trouble(site), what=lambda: trouble(site) + site.logs())
    assert worker.leave() == 0, worker.log
    assert len(worker.logs("inequivalent arg")) == 1, worker.log
    assert_once(site, ("other", 5))


@pytest.fixture
def hasty(run_folder: Path) -> Iterator[Rabbit]:
    """A node of its own that takes messages back which are held for two seconds."""
    if reason := brokers.missing_rabbit():
        pytest.skip(reason)
    folder = run_folder / f"r{uuid.uuid4().hex[:8]}"
    node = Rabbit.create(folder, consumer_timeout=HASTE, channel_tick_interval=500)
    try:
        yield node.start()
    finally:
        brokers.end_rabbit(folder)


def test_messages_held_beyond_the_consumer_timeout_lose_and_double_nothing(
    home: Path, pg_url: str, hasty: Rabbit, monkeypatch: pytest.MonkeyPatch
):
    # Before 3.11.15 the node's own timeout rules, since then the queue's.
    monkeypatch.setattr(celery_settings, "CONSUMER_MILLISECONDS", HASTE)
    alike = f"from quire.celery import settings as broker; broker.CONSUMER_MILLISECONDS = {HASTE}; "
    site = Site(home, pg_url).prepare()
    site.settings["broker_url"] = hasty.url
    worker = start_worker(site, alike + WORKER, poll_interval=DEAF)
    with dispatching(site):
        held = site.submit_many("i.gated", [{"tag": f"held{n:03}"} for n in range(2)])
        site.until_traced("began", "held001")
        until(lambda: worker.logs("timed out"), what=site.logs)
        more = submit(site, 5, "more")
        site.open_gate()
        assert site.until_over([*held, *more]) == {"completed": 7}
        assert worker.popen.poll() is None, worker.log
    assert worker.leave() == 0, worker.log
    assert_once(site, ("held", 2), ("more", 5))
    site.close()
