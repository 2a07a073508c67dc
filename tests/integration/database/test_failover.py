"""A PostgreSQL that is lost and whose standby takes over: nothing lost, effects once, no help."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire.app import App
from quire.errors import DatabaseUnavailable, Unconfirmed
from quire.settings import load
from quire.store import open_database
from quire.store.db import plain_submit
from quire.store.db import postgres as link
from quire.store.queue import kinds
from tests import documents, postgres
from tests.integration.processes import HANDLERS, SCHEDULER, Running, Site, pause
from tests.proxy import Proxy
from tests.shelf import PLAIN
from tests.standbys import Pair, ask, paired, tell
from tests.store.queue.test_plain_submit import plain
from tests.store.stage import Stage
from tests.waiting import until

CHAOS, NOTES = 12, 6


@pytest.fixture
def pair(run_folder: Path) -> Iterator[Pair]:
    if reason := postgres.missing():
        pytest.skip(reason)
    with paired(run_folder) as made:
        yield made


@pytest.fixture
def address(pair: Pair) -> Iterator[Proxy]:
    """One address of whoever is the primary, as a pooler or a name in DNS gives it."""
    with Proxy(("127.0.0.1", pair.primary.port)) as made:
        yield made


@contextlib.contextmanager
def on(url: str, home: Path) -> Iterator[Site]:
    """A home for real processes on these servers."""
    site = Site(home, url)
    # A heartbeat tells of the loss long before a poll or the end of a lease.
    site.settings.update(lease_seconds=20, poll_interval=30)
    try:
        yield site.prepare()
    finally:
        site.close()


class Clients:
    """People who submit by the API without a pause, and one who reads its events."""

    def __init__(self, site: Site, **settings: Any) -> None:
        self.confirmed: dict[str, int] = {}
        self.completed: list[int] = []
        self.cursors: list[tuple[int, ...]] = []
        self.refusals = 0
        self._has_ended = threading.Event()
        api = site.start("api", api_auth=0, api_requests_per_minute=0, **settings)
        [line] = until(lambda: api.logs("api.started"), what=lambda: api.log)
        self.api = api
        self.url = next(word for word in line.split() if word.startswith("url="))[4:]
        self._threads = [threading.Thread(target=each) for each in (self._submit, self._read)]
        for thread in self._threads:
            thread.start()

    def leave(self) -> None:
        """Submit no more, and wait for those who are at it."""
        self._has_ended.set()
        for thread in self._threads:
            thread.join(60)

    def _submit(self) -> None:
        number = 0
        while not self._has_ended.is_set():
            tag = f"asked-{number:04}"
            body = {"kind": "i.effect", "payload": {"tag": tag}}
            try:
                answer = httpx.post(
                    f"{self.url}/api/jobs", json=body, headers={"Idempotency-Key": tag}, timeout=30
                )
            except httpx.TransportError:
                continue
            if answer.status_code == 201:
                self.confirmed[tag] = answer.json()["id"]
                number += 1
            else:
                assert answer.status_code == 503, answer.text
                self.refusals += 1
            self._has_ended.wait(0.02)

    def _read(self) -> None:
        with (
            contextlib.suppress(httpx.ReadTimeout),
            httpx.stream("GET", f"{self.url}/api/events", timeout=30) as stream,
        ):
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    self.cursors.append(tuple(map(int, line[4:].split("-"))))
                if line.startswith("data: ") and '"job.completed"' in line:
                    self.completed.append(json.loads(line[6:])["job_id"])
                if self._has_ended.is_set() and set(self.confirmed.values()) <= {*self.completed}:
                    return


def begin_work(site: Site, folder: Path) -> tuple[list[int], int]:
    """Submit jobs with steps and children, and a folder of documents."""
    chaos = [{"tag": f"c{n:02}", "seconds": 0.1, "children": 2} for n in range(CHAOS)]
    folder.mkdir()
    for n in range(NOTES):
        (folder / f"{n}.txt").write_text(f"The harbour of note {n}.")
    (folder / "book.pdf").write_bytes(documents.pdf(*(f"page number {n}" for n in range(1, 9))))
    wanted = {**PLAIN, "page_size": 2}
    ids = site.submit_many("i.chaos", chaos)
    return ids, site.submit("ingest", sources=[str(folder)], settings=wanted)


def effects_of_work() -> list[str]:
    ends = ("", ".early", ".0", ".1", ".last")
    return [f"c{n:02}{end}" for n in range(CHAOS) for end in ends]


def assert_all_are_up(*running: Running) -> None:
    for each in running:
        assert each.popen.poll() is None, each.log
        assert "Traceback" not in each.log, each.log


def test_a_failover_to_a_synchronous_standby_loses_and_doubles_nothing(
    pair: Pair, address: Proxy, home: Path, tmp_path: Path
):
    """The URL of some processes names both servers; that of others one place, which is moved."""
    pair.wait_for_standby()
    moved = f"postgresql://postgres@127.0.0.1:{address.address[1]}/quire"
    with on(pair.url, home) as site:
        workers = [site.worker(), site.worker(database_url=moved)]
        scheduler = site.start(code=SCHEDULER)
        clients = Clients(site, database_url=moved)
        chaos, taken_in = begin_work(site, tmp_path / "in")
        until(lambda: len(clients.confirmed) >= 10 and len(site.effects()) >= 20, what=site.logs)
        pair.primary.kill()
        # It moves before the standby is promoted.
        address.target = ("127.0.0.1", pair.standby.port)
        address.cut()
        until(lambda: all(each.logs("worker.waits", "read-only") for each in workers))
        before = len(clients.confirmed)
        pair.promote()
        lost_at = time.monotonic()
        until(lambda: len(clients.confirmed) >= before + 10, what=site.logs)
        print(f"confirmed again after {time.monotonic() - lost_at:.1f} s")
        clients.leave()
        jobs = [*chaos, taken_in, *clients.confirmed.values()]
        assert site.until_over(jobs) == {"completed": len(jobs)}
        assert clients.refusals > 0
        assert_took_everything_once(site, clients)
        # Those who were there before still are, each registered once, and hear of what comes.
        assert_all_are_up(*workers, scheduler, clients.api)
        assert len(site.rows("workers")) == 2
        rung_by_another_host(site, tmp_path)
        site.until_traced("began", "rung", within=10)
        site.assert_healthy()


def rung_by_another_host(site: Site, home: Path) -> None:
    """Submit where only the database's NOTIFY reaches the workers."""
    app = App(load({}, home=home, database_url=site.url, plugins=(HANDLERS,), user="ada"))
    app.submit("i.wait", tag="rung", seconds=0)
    app.close()


def assert_took_everything_once(site: Site, clients: Clients) -> None:
    assert site.effects() == sorted([*effects_of_work(), *clients.confirmed])
    assert site.states() == {"completed": CHAOS + 1 + len(clients.confirmed)}
    rows = site.rows("documents")
    assert {(row.state, row.generation, row.live_generation) for row in rows} == {("success", 1, 1)}
    assert sorted(row.pages for row in rows) == [1] * NOTES + [8]
    assert len(site.rows("leaves")) == len(site.rows("chunks")) == NOTES + 8
    # The stream went on where it was: transactions are numbered on.
    assert clients.cursors == sorted(set(clients.cursors))
    counted = Counter(clients.completed)
    assert {counted[job] for job in clients.confirmed.values()} == {1}


def test_the_lost_server_comes_back_as_a_standby_and_takes_over_again(pair: Pair, home: Path):
    with on(pair.url, home) as site:
        worker = site.worker()
        done = []
        for turn in ("first", "second"):
            pair.wait_for_standby()
            done.append(site.submit("i.effect", tag=turn))
            site.until_over(done)
            held = site.submit("i.gated_plain", tag=turn, gate=turn)
            site.until_traced("began", turn)
            pair.fail_over()
            site.open_gate(turn)
            assert site.until_over(held) == {"completed": 1}
            # Its place comes before that of the primary in the URL, and is passed over.
            pair.rebuild()
            done.append(held)
        last = site.submit("i.effect", tag="last")
        assert site.until_over(last) == {"completed": 1}
        assert site.effects() == ["first", "last", "second"]
        assert [site.outcomes(job) for job in done] == [["done"]] * 4
        assert_all_are_up(worker)
        site.assert_healthy()
        assert_commands_see_it(site)


def assert_commands_see_it(site: Site) -> None:
    status, sick = site.start("status", "--json"), site.start("doctor")
    assert status.popen.wait(60) == 0, status.log
    told = json.loads(status.log)
    assert told["database"] == site.url
    assert [worker["alive"] for worker in told["workers"]] == [True]
    assert sick.popen.wait(60) == 0, sick.log


def test_connections_to_a_server_that_may_not_be_written_to_any_more_are_given_up(pair: Pair):
    db = open_database(pair.url)
    port = "SELECT inet_server_port()"

    def write() -> int:
        return db.write(create)

    def create(conn: Any, now: Any) -> int:
        conn.exec_driver_sql("CREATE TABLE IF NOT EXISTS written (id BIGINT)")
        return int(conn.exec_driver_sql(port).scalar_one())

    def read() -> int:
        with db.read() as conn:
            return int(conn.exec_driver_sql(port).scalar_one())

    try:
        for act in (write, read):
            assert (write(), read()) == (pair.primary.port,) * 2
            # It is fenced off, and lives on: nothing ends the connections in the pool.
            tell(pair.primary, "ALTER SYSTEM SET default_transaction_read_only = on")
            tell(pair.primary, "SELECT pg_reload_conf()")
            until(lambda: ask(pair.primary, "SHOW transaction_read_only") == [("on",)])
            pair.promote()
            if act is read:  # a reader is told nothing; he finds it when he comes after a rest
                pause(link.STALE_SECONDS + 0.1)
            assert act() == pair.primary.port
            pair.standby.stop("immediate")
            pair.rebuild()
    finally:
        db.close()


def test_people_are_told_of_each_server_why_it_cannot_be_used(pair: Pair):
    pair.primary.kill()
    db = open_database(pair.url.replace("postgres@", "postgres:secret@"))
    with pytest.raises(DatabaseUnavailable) as away, db.read():
        pass
    db.close()
    told = str(away.value)
    assert f"127.0.0.1:{pair.primary.port}: " in told and "Connection refused" in told
    assert f"127.0.0.1:{pair.standby.port}: " in told and "session is read-only" in told
    assert "secret" not in told and "\n" not in told
    pair.promote()


def test_what_no_standby_has_stored_is_confirmed_to_nobody_and_made_once(pair: Pair, home: Path):
    pair.wait_for_standby()
    with on(pair.url, home) as site:
        # Limits follow the lease: no answer is waited for longer than some seconds.
        worker = site.worker(lease_seconds=6)
        job = site.submit("i.gated", tag="held")
        site.until_traced("began", "held")
        pair.standby.stop("immediate")
        command = site.start("submit", "i.effect", "--arg", "tag=b", lease_seconds=6)
        assert command.popen.wait(60) == 1, command.log
        assert "it may have happened" in command.log
        until(lambda: worker.logs("worker.waits", "did not answer"), what=lambda: worker.log)
        site.open_gate()
        pair.standby.start()
        assert site.until_over(job) == {"completed": 1}
        until(lambda: site.states() == {"completed": 2}, what=site.logs)
        assert site.effects() == ["b", "held"]
        assert_all_are_up(worker)
        site.assert_healthy()


def test_a_submission_that_no_standby_has_stored_is_not_confirmed(pair: Pair):
    """The procedure commits inside a statement, whose timeout ends the wait for the standby."""
    pair.wait_for_standby()
    with contextlib.closing(open_database(pair.url, lease_seconds=6)) as db:
        stage = Stage(db)
        first = stage.one()
        pair.standby.stop("immediate")
        assert plain_submit.submit(db, plain()) is None  # the general way then waits for it
        pair.standby.start()
        last = stage.one()
        assert [row.id for row in stage.rows("jobs")] == [first, first + 1, last]


def test_a_commit_whose_wait_for_the_standby_is_cancelled_is_not_confirmed(pair: Pair):
    pair.wait_for_standby()
    with contextlib.closing(open_database(pair.url)) as db:
        stage = Stage(db)
        pair.standby.stop("immediate")
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(db.write, lambda conn, now: kinds.pause(conn, "noop", now.wall))
            waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            until(lambda: ask(pair.primary, f"SELECT count(*) {waiting}") == [(1,)])
            tell(pair.primary, f"SELECT pg_cancel_backend(pid) {waiting}")
            assert isinstance(made.exception(), Unconfirmed)
        assert stage.rows("kinds", name="noop")[0].paused_at is not None


def test_a_standby_that_lagged_behind_forgets_the_last_moments_and_the_rest_is_sound(
    pair: Pair, home: Path
):
    """Without synchronous replication: as with a backup of some moments ago."""
    with on(pair.url, home) as site:
        worker = site.worker()
        first = site.submit_many("i.effect", [{"tag": f"a{n}"} for n in range(5)])
        held = site.submit_many("i.gated", [{"tag": f"h{n}"} for n in range(4)])
        site.until_over(first)
        until(lambda: len(site.trace("began")) == 7, what=site.logs)  # two children, two waiting
        end = "SELECT pg_current_wal_lsn() = replay_lsn FROM pg_stat_replication"
        until(lambda: ask(pair.primary, end) == [(True,)])
        pair.standby.stop("immediate")
        # None of this gets to the standby, though it is confirmed.
        forgotten = site.submit_many("i.effect", [{"tag": f"f{n}"} for n in range(5)])
        site.open_gate()
        assert site.until_over([*held, *forgotten]) == {"completed": 9}
        pair.primary.kill()
        pair.standby.start()
        pair.promote()
        assert site.until_over([*first, *held]) == {"completed": 9}
        last = site.submit("i.effect", tag="last")
        assert site.until_over(last) == {"completed": 1}
        found = [tag for tag in site.effects() if not tag.startswith("f")]
        assert found == [*(f"a{n}" for n in range(5)), *(f"h{n}" for n in range(4)), "last"]
        assert [tag for tag, n in Counter(site.effects()).items() if n > 1] == []
        assert_all_are_up(worker)
        site.assert_healthy()
