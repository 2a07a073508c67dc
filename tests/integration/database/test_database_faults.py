"""A database in trouble under a running worker: nothing is lost, and it goes on without help."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.store.db import sqlite
from tests import postgres
from tests.integration.processes import Running, Site, pause
from tests.waiting import until

COUNT = 60
TAGS = [f"{n:02}" for n in range(COUNT)]


@pytest.fixture
def own_server(home: Path, pg_server: postgres.Server) -> Iterator[Site]:
    """A home on a PostgreSQL server that the test may stop."""
    site = Site(home, pg_server.url)
    yield site.prepare()
    if not (pg_server.folder / "postmaster.pid").exists():
        pg_server.start()
    site.close()


def begin_work(site: Site) -> tuple[Running, list[int]]:
    """Start a worker and many jobs, and return in the middle of them."""
    jobs = site.submit_many("i.effect", [{"tag": tag, "seconds": 0.05} for tag in TAGS])
    worker = site.worker()
    until(lambda: len(site.trace("ended")) >= 5, what=site.logs)
    return worker, jobs


def assert_all_done(site: Site, worker: Running, jobs: list[int]) -> None:
    assert site.until_over(jobs, within=90) == {"completed": COUNT}
    assert site.effects() == TAGS
    assert worker.popen.poll() is None, worker.log
    assert "Traceback" not in worker.log
    site.assert_healthy()


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_worker_outlives_a_restart_of_postgres(
    own_server: Site, pg_server: postgres.Server, mode: str
):
    worker, jobs = begin_work(own_server)
    pg_server.stop(mode)
    until(lambda: worker.logs("worker.waits", "DatabaseUnavailable"), what=lambda: worker.log)
    pg_server.start()
    assert_all_done(own_server, worker, jobs)


def test_results_that_children_return_during_an_outage_are_written_after_it(
    own_server: Site, pg_server: postgres.Server
):
    worker = own_server.worker(lease_seconds=60)
    job = own_server.submit("i.gated_plain", tag="a")
    own_server.until_traced("began", "a")
    pg_server.stop("immediate")
    own_server.open_gate()
    until(lambda: worker.logs("worker.waits"), what=lambda: worker.log)
    pause(1)
    pg_server.start()
    assert own_server.until_over(job) == {"completed": 1}
    assert own_server.outcomes(job) == ["done"]
    assert own_server.job(job).result == '"a"'


def test_a_worker_that_starts_before_its_database_waits_for_it(
    own_server: Site, pg_server: postgres.Server
):
    job = own_server.submit("i.effect", tag="a")
    own_server.app.db.close()
    pg_server.stop("fast")
    worker = own_server.start("worker")
    until(lambda: worker.logs("worker.waits"), what=lambda: worker.log)
    assert worker.popen.poll() is None
    pg_server.start()
    assert own_server.until_over(job) == {"completed": 1}


def test_a_worker_waits_while_another_program_locks_the_file(embedded: Site):
    worker, jobs = begin_work(embedded)
    path = str(embedded.home / "quire.db")
    with contextlib.closing(sqlite.sqlite_module().connect(path, timeout=60)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        until(lambda: worker.logs("worker.waits", "locked"), what=lambda: worker.log)
        other.execute("ROLLBACK")
    assert_all_done(embedded, worker, jobs)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process: Linux only")
def test_a_worker_waits_while_the_disk_is_full(embedded: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # or it is cut off in the cache of all tests
    worker, jobs = begin_work(embedded)
    # A file that may not grow stands for a disk that is full: the same errors come of it.
    limit_files(worker, 4096)
    until(lambda: worker.logs("worker.waits"), what=lambda: worker.log)
    assert worker.logs("worker.waits", "disk"), worker.log
    limit_files(worker, resource.RLIM_INFINITY)
    assert_all_done(embedded, worker, jobs)


def limit_files(worker: Running, size: int) -> None:
    for each in worker.tree():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(each.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_worker_waits_while_it_may_not_write_the_database(embedded: Site):
    job = embedded.submit("i.effect", tag="a")
    embedded.app.db.close()
    prefix = without_right_to_write(embedded.home)
    worker = embedded.start(prefix=prefix)
    until(lambda: worker.logs("worker.waits") or worker.popen.poll() is not None)
    assert worker.popen.poll() is None, worker.log
    assert worker.logs("worker.waits", "readonly") or worker.logs("worker.waits", "read-only")
    for path in embedded.home.glob("quire.db*"):
        path.chmod(0o666)
    assert embedded.until_over(job) == {"completed": 1}
    assert embedded.effects() == ["a"]
    assert "Traceback" not in worker.log


def without_right_to_write(home: Path) -> list[str]:
    """Take the right to write the database away; returns how to start a program that lacks it."""
    for path in home.glob("quire.db*"):
        path.chmod(0o444)
    if os.geteuid() != 0:
        return []
    # Root may write anything: run as another user, who may read anything and write what is his.
    home.chmod(0o777)
    (home / "trace.txt").touch()
    (home / "trace.txt").chmod(0o666)
    caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    return ["setpriv", *user, "--securebits=+no_setuid_fixup", *caps]


def test_a_database_file_that_is_deleted_under_a_worker_is_put_back(embedded: Site):
    worker, jobs = begin_work(embedded)
    embedded.app.db.close()
    # Frozen: it would bring back the first file while the others are being deleted.
    with worker.frozen():
        for path in embedded.home.glob("quire.db*"):
            path.unlink()
    # By the worker or by a child of it, whoever writes next.
    until((embedded.home / "quire.db").exists, what=lambda: worker.log)
    assert_all_done(embedded, worker, jobs)


def test_a_home_that_is_deleted_under_a_worker_comes_back_with_its_jobs(embedded: Site):
    job = embedded.submit("i.gated_plain", tag="a", gate="../gate-of-it")
    worker = embedded.worker()
    embedded.until_traced("began", "a")
    embedded.app.db.close()
    log = worker._log.rename(embedded.home.parent / f"{embedded.home.name}.log")
    worker._log = log
    with worker.frozen():  # or it comes back file by file while the folder is being emptied
        shutil.rmtree(embedded.home)
    gate = embedded.home.parent / "gate-of-it"
    gate.touch()
    try:
        until((embedded.home / "quire.db").exists, what=lambda: worker.log)
        assert embedded.until_over(job) == {"completed": 1}
        assert worker.popen.poll() is None, worker.log
    finally:
        gate.unlink()
