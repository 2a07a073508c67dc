"""Delivery by Celery over RabbitMQ: a quorum queue, its limits, and a purge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.runtime import broker
from tests.brokers import Rabbit
from tests.celery.stand import (
    DEAF,
    assert_once,
    dispatching,
    settings_of,
    start_worker,
    submit,
    trouble,
)
from tests.integration.processes import Site
from tests.proxy import Proxy
from tests.waiting import until


@pytest.fixture
def line(shared_rabbit: Rabbit) -> Iterator[Proxy]:
    """A connection to RabbitMQ which can fail."""
    with Proxy(("127.0.0.1", shared_rabbit.port)) as line:
        yield line


@pytest.fixture
def site(home: Path, pg_url: str, line: Proxy) -> Iterator[Site]:
    """A home on PostgreSQL whose tasks Celery delivers over RabbitMQ."""
    site = Site(home, pg_url)
    site.settings["broker_url"] = f"amqp://guest:guest@127.0.0.1:{line.address[1]}//"
    yield site.prepare()
    site.close()


def test_doorbells_come_by_a_quorum_queue_and_a_purge_loses_nothing(
    site: Site, shared_rabbit: Rabbit, line: Proxy
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
        shared_rabbit.ctl("purge_queue", "quire.default")
        site.open_gate()
        assert site.until_over([*held, *more]) == {"completed": 22}
        assert shared_rabbit.arguments_of("quire.default") == {
            "x-queue-type": "quorum",
            "x-delivery-limit": broker.DELIVERIES,
            "x-consumer-timeout": broker.CONSUMER_MILLISECONDS,
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
    app: Any = broker.make_app(settings)
    with app.connection_for_read() as connection:
        queue = broker.queue_of("default", settings).bind(connection.default_channel)
        return int(queue.queue_declare().message_count)
