"""Several hosts, no broker, no shared folder; one is cut off in the middle and comes back."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.control import doctor
from quire.demo import samples
from tests import buckets, clusters, postgres
from tests.integration.database import hosts
from tests.integration.database.cluster import NAMES, Cluster, Host, Store
from tests.integration.database.hosts import Loopback, Namespaces, Network
from tests.shelf import PLAIN
from tests.waiting import until

COUNT = 20
READER = str(Path(__file__).with_name("reader_file.py"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Use namespaces where they can be made; the loopback elsewhere and in `make test-all`."""
    if "network" not in metafunc.fixturenames:
        return
    networks = ["namespaces"] if hosts.may_make_namespaces() else []
    if not networks or metafunc.config.getoption("--columns") == "all":
        networks.append("loopback")
    metafunc.parametrize("network", networks, indirect=True)


@pytest.fixture
def network(request: pytest.FixtureRequest, run_folder: Path) -> Iterator[Network]:
    """A network with a database server in it: of namespaces, or of addresses of the loopback."""
    if reason := postgres.missing():
        pytest.skip(reason)
    is_apart = request.param == "namespaces"
    folder = Path(tempfile.mkdtemp(prefix="n", dir=run_folder)) / "pg"
    folder.parent.chmod(0o755)
    made: Network = (Namespaces if is_apart else Loopback)(folder, NAMES)
    try:
        made.server.create(clusters.seed(run_folder))
        made.server.start()
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


@pytest.fixture
def store(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket that every host of the network reaches."""
    pytest.importorskip("moto.server")
    buckets.allow(monkeypatch)
    made = Store(network)
    yield made
    made.close()


def test_a_worker_that_is_cut_off_loses_its_tasks_to_another_and_works_on_when_it_is_back(
    cluster: Cluster,
):
    first, second = cluster.first, cluster.second
    cluster.start_api()
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
    until(lambda: cluster.holder_of(zombie)[0] == second.worker, what=cluster.logs)
    until(lambda: second.traced("began", "zombie"), what=cluster.logs)
    told = cluster.ask("GET", f"/api/jobs/{zombie}/explain")
    assert (told["code"], told["attempts"][-1]["outcome"]) == ("running", "died")
    assert told["attempts"][-1]["worker_id"] == first.worker
    alive = {row["id"]: row["alive"] for row in cluster.ask("GET", "/api/workers")["items"]}
    assert alive.pop(second.worker) is True
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
    assert holder == second.worker and newer >= fence + 2
    assert "zombie" not in cluster.effects()
    second.open_gate()
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)
    # Alone again, it goes on claiming under its name.
    second.kill()
    last = [cluster.submit("i.effect", tag=f"last-{n}") for n in range(3)]
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)
    mine = f"(SELECT id FROM tasks WHERE job_id >= {last[0]})"
    who = f"SELECT DISTINCT worker_id FROM attempts WHERE task_id IN {mine}"
    assert cluster.rows(who) == [(first.worker,)]
    assert cluster.effects() == sorted([*many, "zombie", "last-0", "last-1", "last-2"])
    assert cluster.rows("SELECT DISTINCT state FROM jobs") == [("completed",)]
    report = doctor.examine(cluster.app.db)
    assert report.is_healthy, report.violations
    assert "Traceback" not in cluster.logs()


def library() -> list[dict[str, bytes]]:
    """Uploads of five files each, all with a word in common, of one page and of three."""

    def book(name: str) -> bytes:
        pages = [f"The harbour of {name}, page {number}." for number in range(3)]
        return samples.pdf([samples.text_page([text]) for text in pages])

    def upload(part: str) -> dict[str, bytes]:
        notes = {f"{part}{n}.txt": f"The harbour of note {part}{n}.".encode() for n in range(3)}
        return notes | {f"{part}{n}.pdf": book(f"{part}{n}") for n in range(2)}

    return [upload(part) for part in "abcd"]


def is_refused(host: Host) -> bool:
    """Tell whether what a host did under a lease that had ended came to nothing."""
    return "task.revoked" in host.log or "task.refused" in host.log


def test_documents_are_read_by_hosts_that_share_a_bucket_only_though_one_is_cut_off(
    cluster: Cluster, store: Store
):
    first, second = cluster.first, cluster.second
    cluster.start_api(plugins=READER, **store.settings("api"))
    cluster.clock.start("scheduler", plugins=READER, **store.settings("clock"))
    first.start("worker", plugins=READER, **store.settings("first"))
    cluster.ask("POST", "/api/corpora", {"name": "plain", "settings": PLAIN})
    held = {"held.gated": b"The harbour of one who waits."}
    cluster.upload(held, "plain")
    until(lambda: first.traced("reading"), what=cluster.logs)
    second.start("worker", plugins=READER, concurrency=3, **store.settings("second"))
    *uploads, last = library()
    for number, files in enumerate(uploads):
        cluster.upload(files, "plain")
        if number == 1:
            cluster.network.isolate("first")
    # All goes on without it, also what it held: the second has fetched that from the bucket.
    until(lambda: second.traced("reading"), what=cluster.logs)
    until(lambda: cluster.open_jobs() == 1, what=cluster.logs)
    first.open_gate()
    cluster.network.rejoin("first")
    until(lambda: is_refused(first), what=cluster.logs)
    second.open_gate()
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)
    kept = {second.name: second.kept("cache")}
    second.kill()
    # Alone again, it reads what comes.
    cluster.upload(last, "plain")
    until(lambda: cluster.open_jobs() == 0, what=cluster.logs)

    files = held | last | {name: each[name] for each in uploads for name in each}
    pages = {name: 3 if name.endswith(".pdf") else 1 for name in files}
    listed = cluster.ask("GET", "/api/documents?limit=100")["items"]
    told = sorted((each["name"], each["state"], each["pages"]) for each in listed)
    assert told == [(name, "success", pages[name]) for name in sorted(files)]
    found = cluster.ask("GET", "/api/search?q=harbour&mode=text&limit=100")["items"]
    hits = Counter((hit["name"], hit["page"]) for hit in found)
    assert hits == {(name, n): 1 for name in files for n in range(1, pages[name] + 1)}
    assert store.blobs() == digests(files)
    # Each home holds what its host was sent or has read, and what it runs.
    kept |= {host.name: host.kept("cache") for host in (cluster.api, first, cluster.clock)}
    assert kept["api"] == digests(files) and kept["clock"] == set()
    for host in (first, second):
        read = {name: files[name] for (name,) in readings(cluster, host)}
        assert digests(read) >= kept[host.name] > set()
    assert first.kept("run") == {first.worker}
    report = doctor.examine(cluster.app.db)
    assert report.is_healthy, report.violations
    assert "Traceback" not in cluster.logs()


def digests(files: dict[str, bytes]) -> set[str]:
    return {hashlib.sha256(content).hexdigest() for content in files.values()}


def readings(cluster: Cluster, host: Host) -> list[tuple[str]]:
    """The names of the documents that a worker has tried to read."""
    return cluster.rows(
        "SELECT DISTINCT documents.name FROM attempts JOIN tasks ON tasks.id = attempts.task_id "
        "JOIN documents ON documents.id = (tasks.payload::json ->> 'document')::bigint "
        f"WHERE attempts.worker_id = '{host.worker}'"
    )
