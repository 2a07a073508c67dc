"""A pytest plugin: where everything must run, a skipped test is a failed one.

`QUIRE_REQUIRE_ALL=1` (set by `make ci`) turns each skip into a failure that gives its
reason. Expected failures (xfail) are not skips.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

REQUIRE_ALL = os.environ.get("QUIRE_REQUIRE_ALL", "") not in ("", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skipped itself or was skipped by a mark or a fixture."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that skipped itself, as importorskip does."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"QUIRE_REQUIRE_ALL: nothing may be skipped here. {reason}"
