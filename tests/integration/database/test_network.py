"""A network in trouble between Quire and PostgreSQL: nothing lost, effects once, no help needed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from quire.app import App
from quire.errors import DatabaseUnavailable, Unconfirmed
from quire.model.records import Submission
from quire.settings import load
from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.db.postgres import Timeouts, connect
from tests.integration.processes import HANDLERS, Site, pause
from tests.proxy import UP, Proxy, Rule
from tests.waiting import until

COMMIT = b"COMMIT\0"
CLAIM = b"fence=(tasks.fence +"
#: Among the parameters of a claim in one round trip, whose text is sent once a session, and of the
#: statement that ends runs.
PLAIN_CLAIM, SETTLE = b'"i.effect"', b"job."
EFFECT, STEP = b"INSERT INTO effects", b"INSERT INTO steps"
LISTEN = b"LISTEN quire"


@pytest.fixture
def proxy(pg_url: str, run_folder: Path) -> Iterator[Proxy]:
    with Proxy(run_folder / "pg" / ".s.PGSQL.5432") as made:
        yield made


@pytest.fixture
def far_url(proxy: Proxy, pg_url: str) -> str:
    """The database as it is reached through the proxy."""
    name = pg_url.partition("@/")[2].partition("?")[0]
    return f"postgresql://postgres@127.0.0.1:{proxy.address[1]}/{name}"


@pytest.fixture
def far(home: Path, pg_url: str, far_url: str) -> Iterator[Site]:
    """A home whose processes reach the database through the proxy; the test itself does not."""
    site = Site(home, pg_url)
    site.settings["database_url"] = far_url
    yield site.prepare()
    site.close()


@pytest.fixture
def elsewhere(pg_url: str, tmp_path: Path) -> Iterator[App]:
    """Another host: no ring of its own reaches the workers of `far`."""
    app = App(load({}, home=tmp_path, database_url=pg_url, plugins=(HANDLERS,), user="ada"))
    yield app
    app.close()


@pytest.fixture
def far_db(far_url: str) -> Iterator[Database]:
    db = open_database(far_url, lease_seconds=6)
    yield db
    db.close()


# ---------------------------------------------------------------------- lost replies


@pytest.mark.parametrize("harm", ["swallow", "cut_at"])
def test_a_commit_that_is_cut_is_made_once_whoever_made_it(far: Site, proxy: Proxy, harm: str):
    """`swallow`: it happened and nobody was told. `cut_at`: it did not happen."""
    worker = far.worker(
        lease_seconds=60, heartbeat_interval=20, sweep_interval=60, poll_interval=60
    )

    def run_through(after: bytes, kind: str, *, is_alone: bool = False, **payload: Any) -> int:
        rule: Rule = getattr(proxy, harm)(*((after,) if is_alone else (COMMIT, after)))
        job = far.submit(kind, **payload)
        # Far sooner than any lease ends.
        assert far.until_over(job, within=30) == {"completed": 1}
        assert rule.fired.is_set(), worker.log
        return job

    claimed = run_through(PLAIN_CLAIM, "i.effect", is_alone=True, tag="claim")
    assert far.outcomes(claimed) == (["returned", "done"] if harm == "swallow" else ["done"])
    once = run_through(CLAIM, "i.once", tag="once")
    assert far.outcomes(once)[-1] == "done" and len(far.trace("began", "once")) == 1
    settled = run_through(SETTLE, "i.wait", tag="settle", seconds=0)
    assert far.outcomes(settled) == ["done"] and len(far.trace("began", "settle")) == 1
    written = run_through(EFFECT, "i.effect", tag="fenced")
    assert far.outcomes(written) == (["done"] if harm == "swallow" else ["outage", "done"])
    stepped = run_through(STEP, "i.chaos", tag="step", seconds=0.0)
    assert far.outcomes(stepped) == ["outage", "done"]
    assert far.effects() == ["claim", "fenced", "step", "step.early"]
    assert {far.task(job).crashes for job in (claimed, once, settled, written, stepped)} == {0}
    assert worker.logs("task.refused") == []
    assert worker.popen.poll() is None and "Traceback" not in worker.log
    far.assert_healthy()


def test_a_worker_whose_first_commit_is_swallowed_is_registered_once(far: Site, proxy: Proxy):
    rule = proxy.swallow(COMMIT, b"INSERT INTO workers")
    far.worker()
    assert rule.fired.is_set()
    assert len(far.rows("workers")) == 1
    assert far.until_over(far.submit("i.effect", tag="a")) == {"completed": 1}


def test_the_swap_of_a_document_whose_commit_is_swallowed_happens_once(
    far: Site, proxy: Proxy, tmp_path: Path
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "letter.txt").write_text("Dear Ada, the engine turns.\n")
    worker = far.worker()
    rule = proxy.swallow(COMMIT, b"live_generation=")
    job = far.submit("ingest", sources=[str(tmp_path / "in")])
    assert far.until_over(job) == {"completed": 1}
    assert rule.fired.is_set(), worker.log
    [document] = far.rows("documents")
    assert (document.state, document.generation, document.live_generation) == ("success", 1, 1)
    assert len(far.rows("chunks")) == 1
    assert [row.name for row in far.rows("events", name="document.ready")] == ["document.ready"]
    far.assert_healthy()


def test_a_job_submitted_by_command_and_by_http_is_made_once(far: Site, proxy: Proxy):
    rule = proxy.swallow(COMMIT, b"INSERT INTO submissions")
    command = far.start("submit", "i.effect", "--arg", "tag=a", "--json")
    assert command.popen.wait(60) == 0, command.log
    assert rule.fired.is_set()
    assert len(far.rows("jobs")) == 1
    url = served(far)
    again = proxy.swallow(b"quire_submit")  # one request is the whole transaction
    answer = httpx.post(f"{url}/api/jobs", json={"kind": "i.effect", "payload": {"tag": "b"}})
    assert answer.status_code == 201, answer.text
    assert again.fired.is_set()
    assert [row.id for row in far.rows("jobs")] == [1, answer.json()["id"]]


def test_a_change_that_cannot_be_repeated_says_that_it_may_have_happened(
    far_db: Database, proxy: Proxy
):
    def act(conn: Any, now: Any) -> None:
        conn.exec_driver_sql("CREATE TABLE doubtful (id BIGINT)")

    proxy.swallow(COMMIT, b"doubtful")
    with pytest.raises(Unconfirmed, match="may have happened"):
        far_db.write(act)
    with far_db.read() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM doubtful").scalar_one() == 0


# ---------------------------------------------------------------------- silence


def test_pooled_connections_that_died_are_replaced_without_an_error(far_db: Database, proxy: Proxy):
    def read(_: int) -> int:
        with far_db.read() as conn:
            return int(conn.exec_driver_sql("SELECT 1 FROM pg_sleep(0.05)").scalar_one())

    def write(_: int) -> int:
        return far_db.write(lambda conn, now: read(0))

    with ThreadPoolExecutor(4) as threads:
        for act in (read, write):
            assert list(threads.map(read, range(4))) == [1] * 4
            proxy.cut()
            assert list(threads.map(act, range(4))) == [1] * 4


def test_a_server_that_is_silent_is_given_up_in_time(far_db: Database, proxy: Proxy):
    limits = Timeouts.below(6)
    with far_db.read() as conn:
        conn.exec_driver_sql("SELECT 1")
    proxy.half_open(UP)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match=r"did not answer within|timeout"), far_db.read():
        pass
    assert time.monotonic() - began < limits.answer + 2 * limits.connect + 5
    proxy.heal()
    with far_db.read() as conn:
        assert conn.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_a_black_hole_before_the_database_stops_nobody_for_ever(far: Site, proxy: Proxy):
    far.settings["lease_seconds"] = 6
    worker, url = far.worker(), served(far)
    jobs = far.submit_many("i.effect", [{"tag": f"{n}", "seconds": 0.2} for n in range(20)])
    until(lambda: len(far.trace("ended")) >= 3, what=far.logs)
    proxy.drop()
    until(lambda: worker.logs("worker.waits"), within=30, what=lambda: worker.log)
    began = time.monotonic()
    answer = httpx.get(f"{url}/readyz", timeout=40)
    print(f"/readyz was answered after {time.monotonic() - began:.1f} s")
    assert answer.status_code == 503 and int(answer.headers["Retry-After"]) >= 1
    assert "database" in answer.json()["detail"]
    assert httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    proxy.heal()
    assert far.until_over(jobs, within=60) == {"completed": 20}
    assert far.effects() == sorted(f"{n}" for n in range(20))
    until(lambda: httpx.get(f"{url}/readyz", timeout=40).status_code == 200)
    assert worker.popen.poll() is None and "Traceback" not in worker.log
    far.assert_healthy()


def test_sessions_limit_what_they_may_hold_up(pg_url: str):
    db = open_database(pg_url, lease_seconds=60)
    names = {
        "statement_timeout": "30s", "idle_in_transaction_session_timeout": "10s",
        "lock_timeout": "15s", "transaction_timeout": "45s",
    }  # fmt: skip
    with db.read() as conn:
        found = {name: conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names}
    db.close()
    assert found == names
    limits = Timeouts.below(60)
    assert limits.idle < limits.lock < limits.statement < limits.answer < limits.transaction < 60


def test_a_connection_in_use_while_its_pool_is_given_up_is_closed_when_it_is_back(pg_url: str):
    db = open_database(pg_url)
    with db.read() as conn:
        used = conn.connection.driver_connection
        db.engine.dispose()  # as by another thread, whose connection turned out to be dead
        assert conn.exec_driver_sql("SELECT 1").scalar_one() == 1
    assert used is not None and used.closed
    with db.read() as conn:
        fresh = conn.connection.driver_connection
    assert fresh is not None and not fresh.closed
    db.close()
    assert fresh.closed


def test_a_connection_that_nobody_holds_any_more_is_closed(pg_url: str):
    link = connect(Timeouts.below(60), pg_url)
    with psycopg.connect(pg_url, autocommit=True) as other:
        count = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        pid = (link.info.backend_pid,)
        assert other.execute(count, pid).fetchone() == (1,)
        del link
        until(lambda: other.execute(count, pid).fetchone() == (0,))


def test_a_fork_that_lets_go_of_a_connection_does_not_close_it(pg_url: str):
    code = (
        "import os, sys; from quire.store.db.postgres import Timeouts, connect; "
        "link = connect(Timeouts.below(60), sys.argv[1]); pid = os.fork(); "
        "globals().pop('link') if not pid else os.waitpid(pid, 0); "
        "print(link.execute('SELECT 1').fetchone()[0]) if pid else os._exit(0); link.close()"
    )
    told = subprocess.run([sys.executable, "-c", code, pg_url], capture_output=True, text=True)
    assert told.stdout.strip() == "1", told.stderr


# ---------------------------------------------------------------------- notifications


def test_many_jobs_of_one_call_ring_once(pg_url: str, elsewhere: App):
    with psycopg.connect(pg_url, autocommit=True) as ear:
        ear.execute("LISTEN quire")
        elsewhere.submit_many([Submission("i.nothing")] * 500)
        assert len(list(ear.notifies(timeout=1))) == 1


def test_a_job_of_another_host_is_picked_up_at_once(far: Site, elsewhere: App):
    far.worker(poll_interval=60, sweep_interval=60)
    elsewhere.submit("i.wait", tag="a", seconds=0)
    far.until_traced("began", "a", within=10)


def test_a_worker_that_hears_no_ring_polls(far: Site, proxy: Proxy, elsewhere: App):
    far.worker(poll_interval=1, sweep_interval=60)
    for line in until(lambda: proxy.that_said(LISTEN)):
        line.mute()
    elsewhere.submit("i.wait", tag="a", seconds=0)
    far.until_traced("began", "a", within=15)


@pytest.mark.parametrize("harm", ["cut", "mute"])
def test_a_worker_whose_ear_was_cut_off_listens_again(
    far: Site, proxy: Proxy, elsewhere: App, harm: str
):
    worker = far.worker(poll_interval=60, sweep_interval=3)
    [line] = until(lambda: proxy.that_said(LISTEN))
    getattr(line, harm)()
    until(lambda: [each for each in proxy.that_said(LISTEN) if each is not line], within=20)
    pause(0.2)
    elsewhere.submit("i.wait", tag="a", seconds=0)
    far.until_traced("began", "a", within=15)
    assert worker.logs("worker.waits") == []


# ---------------------------------------------------------------------- a server of HTTP


def served(site: Site) -> str:
    """Start `quire api` and return its address."""
    api = site.start("api", api_auth=0, api_requests_per_minute=0)
    [line] = until(lambda: api.logs("api.started"), what=lambda: api.log)
    return next(word for word in line.split() if word.startswith("url=")).removeprefix("url=")
