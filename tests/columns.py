"""The columns that tests run on: SQLite, PostgreSQL, and PostgreSQL + Celery + a bucket.

In the third, Celery delivers (over Redis, or over RabbitMQ) and files are in a bucket of S3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import buckets, selection
from tests.integration.processes import Site

DATABASES = ("sqlite", "postgres")


def choose(metafunc: pytest.Metafunc) -> None:
    """Run a test of `site` on its columns.

    In every run: a core test on all three, a test that `docs/guarantees.md` names on both
    databases, any other on SQLite, as tests/store proves the statements on both. With
    `--columns all` every test runs on all three.
    """
    if "site" not in metafunc.fixturenames:
        return
    is_core = metafunc.definition.get_closest_marker("core") is not None
    is_all = metafunc.config.getoption("--columns") == "all"
    is_on_both = is_core or is_all or metafunc.function.__name__ in selection.guaranteed()
    columns = list(DATABASES) if is_on_both else ["sqlite"]
    columns += ["celery"] if is_core or is_all else []
    columns += ["rabbit"] if is_core and is_all else []
    metafunc.parametrize("site", columns, indirect=True)


def site_in(request: pytest.FixtureRequest, home: Path) -> Iterator[Site]:
    """A home for real processes in the column that the test is run for."""
    column: str = request.param
    site = Site(home, "" if column == "sqlite" else request.getfixturevalue("pg_url"))
    if column not in DATABASES:
        request.applymarker(pytest.mark.timeout(400))
        deliver(site, request, column)
    site.prepare()
    if column not in DATABASES:
        site.schedule()
    yield site
    site.close()


def deliver(site: Site, request: pytest.FixtureRequest, column: str) -> None:
    """Let Celery deliver to a site's workers, and keep its files in a bucket."""
    buckets.allow(request.getfixturevalue("monkeypatch"))
    moto = request.getfixturevalue("moto_url")
    if column == "celery":
        broker_url: str = request.getfixturevalue("valkey").url
    else:
        broker_url = request.getfixturevalue("shared_rabbit").own_url()
    site.settings |= {
        "broker_url": broker_url,
        "blobs": buckets.make(moto),
        "bucket_endpoint": moto,
    }
