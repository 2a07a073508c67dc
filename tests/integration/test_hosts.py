"""Several hosts, no broker, no shared folder; one is cut off in the middle and comes back."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from quire.app import App
from quire.control import access, doctor, sign_in
from quire.settings import load
from quire.store.engine import Database
from tests import postgres
from tests.integration import hosts
from tests.integration.hosts import Host, Loopback, Namespaces, Network
from tests.integration.processes import HANDLERS
from tests.waiting import until

NAMES = ("api", "first", "second", "clock")
COUNT = 20


class Cluster:
    """The hosts, a person who asks the API, and an observer beside the database server."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.port = network.free_port("api")
        self.api, self.first, self.second, self.clock = (
            Host(network, folder, name) for name in NAMES
        )
        self.app = App(
            load({}, home=folder, database_url=network.server.url, plugins=(HANDLERS,), user="ada")
        )
        with self.app.db.begin() as conn:
            conn.exec_driver_sql("CREATE TABLE effects (tag TEXT, task BIGINT, fence BIGINT)")
        sign_in.first_start(self.app.desk)
        self._token = access.create_token(self.app.desk, "people", ["write"], None)["token"]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = f"http://{self.api.address}:{self.port}{path}"
        status, answer = hosts.ask(self.network, method, url, self._token, body)
        assert status < 300, answer
        return answer

    def submit(self, kind: str, **payload: Any) -> int:
        return int(self.ask("POST", "/api/jobs", {"kind": kind, "payload": payload})["id"])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.app.db.read() as conn:
            return [tuple(row) for row in conn.exec_driver_sql(query)]

    def effects(self) -> list[str]:
        return sorted(tag for (tag,) in self.rows("SELECT tag FROM effects"))

    def holder_of(self, job: int) -> tuple[str | None, int]:
        [row] = self.rows(f"SELECT worker_id, fence FROM tasks WHERE job_id = {job}")
        return row

    def open_jobs(self) -> int:
        [(count,)] = self.rows("SELECT count(*) FROM jobs WHERE state IN ('pending', 'running')")
        return int(count)

    def logs(self) -> str:
        each = (self.api, self.first, self.second, self.clock)
        return "\n".join(f"--- {host.name}\n{host.log}" for host in each)

    def close(self) -> None:
        for host in (self.first, self.second, self.clock, self.api):
            host.kill()
        self.app.close()


@pytest.fixture(params=["namespaces", "loopback"])
def network(request: pytest.FixtureRequest, run_folder: Path) -> Iterator[Network]:
    """A network with a database server in it; without the right to namespaces, the loopback."""
    if reason := postgres.missing():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="n", dir=run_folder)) / "pg"
    folder.parent.chmod(0o755)
    is_apart = request.param == "namespaces" and hosts.may_make_namespaces()
    made: Network = (Namespaces if is_apart else Loopback)(folder, NAMES)
    try:
        made.server.create()
        made.server.start()
        with psycopg.connect(made.server.url_of("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE quire")
        database = Database.open(made.server.url)
        database.migrate()
        database.close()
        yield made
    finally:
        if (folder / "postmaster.pid").exists():
            made.server.stop("immediate")
        made.close()
        shutil.rmtree(folder.parent)


@pytest.fixture
def cluster(network: Network, home: Path) -> Iterator[Cluster]:
    made = Cluster(network, home)
    try:
        yield made
    finally:
        made.close()


def id_of(host: Host) -> str:
    """The id of the worker there, from its log."""
    line = next(line for line in reversed(host.log.splitlines()) if "worker.started" in line)
    return next(word for word in line.split() if word.startswith("worker="))[7:]


@pytest.mark.timeout(240)
def test_a_worker_that_is_cut_off_loses_its_tasks_to_another_and_works_on_when_it_is_back(
    cluster: Cluster,
):
    first, second = cluster.first, cluster.second
    cluster.api.start("api", api_host=cluster.api.address, api_port=cluster.port, api_rate=0)
    cluster.clock.start("scheduler")
    first.start("worker")
    # Held by the first worker, which is the only one.
    zombie = cluster.submit("i.gated", tag="zombie")
    until(lambda: first.traced("began", "zombie"), what=cluster.logs)
    _, fence = cluster.holder_of(zombie)
    second.start("worker", concurrency=3)
    many = [f"{n:02}" for n in range(COUNT)]
    for tag in many:
        cluster.submit("i.effect", tag=tag, seconds=0.05)
        if tag == many[COUNT // 2]:
            cluster.network.isolate("first")
    until(lambda: first.log.count("worker.waits"), what=cluster.logs)
    # Taken over when the lease has ended; people see why.
    until(lambda: cluster.holder_of(zombie)[0] == id_of(second), what=cluster.logs)
    until(lambda: second.traced("began", "zombie"), what=cluster.logs)
    told = cluster.ask("GET", f"/api/jobs/{zombie}/explain")
    assert (told["code"], told["attempts"][-1]["outcome"]) == ("running", "died")
    assert told["attempts"][-1]["worker_id"] == id_of(first)
    alive = {row["id"]: row["alive"] for row in cluster.ask("GET", "/api/workers")["items"]}
    assert alive.pop(id_of(second)) is True
    if isinstance(cluster.network, Namespaces):  # on one host its lock says that it lives
        assert not any(alive.values())
    # Its handler ends, and the network is back: what it writes comes too late.
    first.open_gate()
    cluster.network.rejoin("first")
    until(
        lambda: (
            "task.revoked" in first.log
            or "task.refused" in first.log
            or first.traced("refused", "zombie")
        ),
        what=cluster.logs,
    )
    holder, newer = cluster.holder_of(zombie)
    assert holder == id_of(second) and newer >= fence + 2
    assert "zombie" not in cluster.effects()
    second.open_gate()
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)
    # Alone again, it goes on claiming under its name.
    second.kill()
    last = [cluster.submit("i.effect", tag=f"last-{n}") for n in range(3)]
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)
    mine = f"(SELECT id FROM tasks WHERE job_id >= {last[0]})"
    who = f"SELECT DISTINCT worker_id FROM attempts WHERE task_id IN {mine}"
    assert cluster.rows(who) == [(id_of(first),)]
    assert cluster.effects() == sorted([*many, "zombie", "last-0", "last-1", "last-2"])
    assert cluster.rows("SELECT DISTINCT state FROM jobs") == [("completed",)]
    report = doctor.examine(cluster.app.db)
    assert report.is_healthy, report.violations
    assert "Traceback" not in cluster.logs()
