"""An API over a shelf of documents, with clients of each role; some tests run on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.api import page_renderer
from tests.api.house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """An API on SQLite."""
    yield from opened(tmp_path, "")


@pytest.fixture(params=["sqlite", "postgres"])
def each_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """An API on each database in turn."""
    yield from opened(
        tmp_path, request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    )


def opened(folder: Path, url: str) -> Iterator[House]:
    house = House(folder, url)
    yield house
    house.shelf.assert_healthy()
    house.close()
    page_renderer.shared.close()
