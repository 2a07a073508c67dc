"""Fixtures of the tests with real workers: homes on each database, or on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Site


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, home: Path) -> Iterator[Site]:
    """A home for real processes, on each database in turn."""
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    site = Site(home, url)
    yield site.prepare()
    site.close()


@pytest.fixture
def embedded(home: Path) -> Iterator[Site]:
    """A home for real processes on SQLite."""
    site = Site(home)
    yield site.prepare()
    site.close()
