"""Fixtures of the long tests: homes for real processes, in each column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import columns
from tests.integration.processes import Site


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test of `site` its columns."""
    columns.choose(metafunc)


@pytest.fixture
def site(request: pytest.FixtureRequest, home: Path) -> Iterator[Site]:
    """A home for real processes, in each column in turn."""
    yield from columns.site_in(request, home)
