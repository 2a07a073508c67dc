"""The stage of a store test; what must always hold is checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.store import open_database
from quire.store.db.engine import Database
from tests import blank
from tests.store.stage import Stage


@pytest.fixture
def stage(db: Database) -> Iterator[Stage]:
    """A database with a clock that stands still, on each backend in turn."""
    stage = Stage(db)
    yield stage
    stage.inspect()


@pytest.fixture
def pg_stage(pg_url: str) -> Iterator[Stage]:
    """The same on PostgreSQL alone, where transactions run side by side."""
    db = open_database(pg_url)
    stage = Stage(db)
    yield stage
    stage.inspect()
    db.close()


@pytest.fixture
def sqlite_stage(tmp_path: Path) -> Iterator[Stage]:
    """The same on SQLite alone."""
    db = open_database(f"sqlite:///{blank.put(tmp_path)}")
    stage = Stage(db)
    yield stage
    stage.inspect()
    db.close()
