"""Keeps statements that are built with a test's own limits from the tests after it."""

from __future__ import annotations

import pytest

from quire.store.db import dialect


@pytest.fixture(autouse=True)
def _own_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits such as `sampled_gin.MAX_RANKED` are parts of statements that are built once."""
    monkeypatch.setattr(dialect, "_built", {})
