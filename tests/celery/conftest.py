"""Fixtures of the tests with Celery: homes on PostgreSQL with a broker of their own."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.celery.stand import Stand, ValkeyStand
from tests.copies import Copies
from tests.integration.processes import Site
from tests.proxy import Proxy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give time: a test here starts several programs, each slowly on a machine that is busy."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture
def site(home: Path, pg_url: str, valkey: brokers.Valkey) -> Iterator[Site]:
    """A home for real processes on PostgreSQL, whose tasks Celery delivers over Redis."""
    site = Site(home, pg_url)
    site.settings["broker_url"] = valkey.url
    yield site.prepare()
    site.close()


@pytest.fixture(scope="module")
def stand(pg_copies: Copies, run_folder: Path) -> Iterator[ValkeyStand]:
    """One worker and one dispatcher for many tests, both behind a line that can fail."""
    for valkey in brokers.serving(run_folder):
        line = Proxy(("127.0.0.1", valkey.port))
        with lasting_site(pg_copies, run_folder) as site:
            site.settings["broker_url"] = f"redis://127.0.0.1:{line.address[1]}/0"
            stand = ValkeyStand(site.prepare(), valkey, line)
            yield stand
            stand.close()


@pytest.fixture(scope="module")
def rabbit_stand(
    pg_copies: Copies, run_folder: Path, shared_rabbit: brokers.Rabbit
) -> Iterator[Stand]:
    """The same over RabbitMQ, in a place of its own on the node."""
    place = shared_rabbit.own_place()
    line = Proxy(("127.0.0.1", shared_rabbit.port))
    with lasting_site(pg_copies, run_folder) as site:
        site.settings["broker_url"] = f"amqp://guest:guest@127.0.0.1:{line.address[1]}/{place}"
        stand = Stand(site.prepare(), line)
        yield stand
        stand.close()


@contextlib.contextmanager
def lasting_site(pg_copies: Copies, run_folder: Path) -> Iterator[Site]:
    """A home on PostgreSQL for many tests."""
    name = pg_copies.take()
    home = Path(tempfile.mkdtemp(prefix="h", dir=run_folder))
    site = Site(home, pg_copies.server.url_of(name))
    site.settings["poll_interval"] = 2
    yield site
    pg_copies.drop(name)
    shutil.rmtree(home, ignore_errors=True)
