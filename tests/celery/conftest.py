"""Fixtures of the tests with Celery: homes on PostgreSQL with a broker of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.celery.stand import Stand
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
def stand(pg_copies: Copies, run_folder: Path) -> Iterator[Stand]:
    """One worker and one dispatcher for many tests, both behind a line that can fail."""
    name = pg_copies.take()
    home = Path(tempfile.mkdtemp(prefix="h", dir=run_folder))
    for valkey in brokers.serving(run_folder):
        line = Proxy(("127.0.0.1", valkey.port))
        site = Site(home, pg_copies.server.url_of(name))
        site.settings |= {
            "broker_url": f"redis://127.0.0.1:{line.address[1]}/0",
            "poll_interval": 2,
        }
        stand = Stand(site.prepare(), valkey, line)
        yield stand
        stand.close()
    pg_copies.drop(name)
    shutil.rmtree(home, ignore_errors=True)
