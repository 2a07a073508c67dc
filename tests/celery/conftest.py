"""Fixtures of the tests with Celery: homes on PostgreSQL with a broker of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.integration.processes import Site


@pytest.fixture
def valkey(run_folder: Path) -> Iterator[brokers.Valkey]:
    """A Redis server of the test's own, to purge, stop and start at will."""
    if reason := brokers.missing_valkey():
        pytest.skip(reason)
    server = brokers.Valkey(run_folder / f"v{uuid.uuid4().hex[:8]}").start()
    yield server
    server.kill()


@pytest.fixture
def line(valkey: brokers.Valkey) -> Iterator[brokers.Line]:
    """A connection to that server which can fail."""
    line = brokers.Line(valkey.port)
    yield line
    line.close()


@pytest.fixture
def site(home: Path, pg_url: str, valkey: brokers.Valkey) -> Iterator[Site]:
    """A home for real processes on PostgreSQL, whose tasks Celery delivers over Redis."""
    site = Site(home, pg_url)
    site.settings["broker_url"] = valkey.url
    yield site.prepare()
    site.close()
