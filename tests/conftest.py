"""Fixtures: a database on each backend, servers of PostgreSQL, short scratch homes.

Every test that takes `db` runs on SQLite and on PostgreSQL. One PostgreSQL server serves all
workers of a run; each test gets a copy of a migrated template database.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from quire.home import UMASK
from tests import blank, brokers, buckets, clusters, compiled, postgres, scratch, selection
from tests.copies import Copies
from tests.strictness import pytest_make_collect_report, pytest_runtest_makereport

if TYPE_CHECKING:
    from quire.store.db.engine import Database

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

RUN = pytest.StashKey[scratch.Run]()
#: Where single tests take ten seconds and more. One that begins last would be waited for alone.
LONG = (
    "bench/",
    "celery/",
    "docs/test_readme",
    "integration/cli/test_ingest",
    "integration/cli/test_work",
    "integration/database/",
    "integration/ingest/test_ingest_deaths",
    "integration/ingest/test_pipeline",
    "integration/ingest/test_poison",
    "integration/test_clocks",
    "integration/test_deaths",
    "integration/test_drain",
    "integration/test_oom",
    "integration/test_stop",
    "integration/test_wakeup",
    "integration/test_zombies",
    "property/test_engine",
    "store/queue/test_lock_order",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a chaos run be repeated or made larger; variables of ours are deleted below."""
    group = parser.getgroup("chaos", "the size of the chaos tests")
    group.addoption("--chaos-files", type=int, default=300, help="files to take in (300)")
    group.addoption("--chaos-crawl", type=int, default=100_000, help="files to list (100,000)")
    group.addoption("--chaos-seconds", type=float, help="how long harm is done")
    group.addoption("--chaos-pause", type=float, help="longest pause between two harms (fast: 0.5)")
    group.addoption("--real-files", help="folder of real files to take in (shared/corpus)")
    group.addoption(
        "--columns", choices=("core", "all"), default="core",
        help="what runs on PostgreSQL + Celery + S3: core tests, or all (and core on RabbitMQ)",
    )  # fmt: skip
    group.addoption("--chaos-seed", type=int, help="repeats a run; each run prints its own")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the run; the workers of xdist join the run of their controller."""
    scratch.use_checkout_for_temporary_files()
    scratch.keep_bytecode()
    compiled.share()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script. Programs that a test starts would inherit it, and
        # no Ctrl-C would reach them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        _forget_own_settings()
        config.stash[RUN] = scratch.Run()
        os.environ[scratch.RUN_VARIABLE] = str(config.stash[RUN].folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test-all` runs, and begin with long tests: the last are short ones."""
    if config.getoption("--columns") != "all" and not config.getoption("keyword"):
        later = [each for each in items if selection.is_later(_function(each), each.nodeid)]
        config.hook.pytest_deselected(items=later)
        items[:] = [each for each in items if each not in set(later)]
    folder = Path(__file__).parent
    items.sort(key=lambda item: not str(item.path.relative_to(folder)).startswith(LONG))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run: stop its servers and remove its folder."""
    if RUN in config.stash:
        config.stash[RUN].end()


@pytest.fixture(scope="session")
def run_folder() -> Path:
    """The folder of this test run, the same in all its workers."""
    return Path(os.environ[scratch.RUN_VARIABLE])


@pytest.fixture(autouse=True)
def _umask_of_quire() -> Iterator[None]:
    """Make new files as each process of Quire does, whatever a command set before."""
    before = os.umask(UMASK)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Undo what a command that ran in this process did to the log: its stream is closed now."""
    logger = logging.getLogger("quire")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """The address of an S3 server of this process."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket_url(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of that server, with credentials in the usual variables."""
    buckets.allow(monkeypatch)
    return buckets.make(moto_url)


@pytest.fixture
def valkey(run_folder: Path) -> Iterator[brokers.Valkey]:
    """A Redis server of the test's own, to purge, stop and start at will."""
    yield from brokers.serving(run_folder)


@pytest.fixture(scope="session")
def shared_rabbit(run_folder: Path) -> brokers.Rabbit:
    """The run's RabbitMQ, which the first who asks for it starts, and the run's end ends."""
    if reason := brokers.missing_rabbit():
        pytest.skip(reason)
    with scratch.locked(run_folder / "rabbit.lock"):
        folder = run_folder / "rabbit"
        if not folder.exists():
            return brokers.Rabbit.create(folder).start()
        return brokers.Rabbit(folder)


@pytest.fixture(scope="session")
def shared_postgres(run_folder: Path) -> Iterator[psycopg.Connection]:
    """A connection to the run's server, which the first who asks for it starts."""
    if reason := postgres.missing():
        pytest.skip(reason)
    server = postgres.Server(run_folder / "pg")
    with scratch.locked(run_folder / "pg.lock"):
        if not server.folder.exists():
            server.create(clusters.seed(run_folder))
            server.start()
            _make_template(server)
    with psycopg.connect(server.url, autocommit=True) as admin:
        yield admin


@pytest.fixture(scope="session")
def pg_copies(shared_postgres: psycopg.Connection, run_folder: Path) -> Iterator[Copies]:
    """Copies of the migrated, empty PostgreSQL database."""
    with Copies(postgres.Server(run_folder / "pg"), postgres.TEMPLATE) as copies:
        yield copies


@pytest.fixture
def pg_url(pg_copies: Copies) -> Iterator[str]:
    """The URL of a fresh, migrated, empty PostgreSQL database."""
    name = pg_copies.take()
    yield pg_copies.server.url_of(name)
    pg_copies.drop(name)


@pytest.fixture
def pg_server(run_folder: Path) -> Iterator[postgres.Server]:
    """A server of the test's own, with a migrated database, to stop and start at will."""
    if reason := postgres.missing():
        pytest.skip(reason)
    folder = run_folder / f"p{uuid.uuid4().hex[:8]}"
    server = postgres.Server(folder, database="quire")
    server.create(clusters.seed(run_folder))
    server.start()
    yield server
    if (folder / "postmaster.pid").exists():
        server.stop("immediate")
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh, migrated, empty database, on each backend in turn."""
    from quire.store import open_database

    if request.param == "postgres":
        database = open_database(request.getfixturevalue("pg_url"))
    else:
        database = open_database(f"sqlite:///{blank.put(tmp_path)}")
    yield database
    database.close()


@pytest.fixture
def home(run_folder: Path) -> Iterator[Path]:
    """An empty folder for QUIRE_HOME, with a path short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="h", dir=run_folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _function(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def _forget_own_settings() -> None:
    # The home and settings of the person who runs the tests are not for the tests.
    for name in [name for name in os.environ if name.startswith("QUIRE_")]:
        if name != "QUIRE_REQUIRE_ALL":
            del os.environ[name]


def _make_template(server: postgres.Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE quire RENAME TO {postgres.TEMPLATE}")
        # Nobody may connect from here on: a session would block every copy.
        admin.execute(
            f"ALTER DATABASE {postgres.TEMPLATE} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"
        )
