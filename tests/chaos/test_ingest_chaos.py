"""Many mixed files taken in while processes are killed: the index is that of a calm run.

With a broker, it is purged meanwhile, and a worker is cut off from it and from the database: once
for certain, while there are messages and while it holds tasks, and then by chance.
`--chaos-files` makes a run larger, `--chaos-seconds` longer, `--chaos-pause` faster, and
`--chaos-seed` repeats it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.brokers import Valkey
from tests.integration.processes import Running, Site, pause
from tests.proxy import Proxy
from tests.shelf import FUSED, Shelf, fill, logical_index, states
from tests.waiting import until

PAUSE = 1.5
SECONDS_A_FILE = 0.2  # of harm, so that it lasts through a larger part of the run
SETTINGS = {**FUSED, "page_size": 4, "row_size": 10, "ocr": "auto"}
WORKERS = 2

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]


class Network(NamedTuple):
    """The broker, and lines to it and to the database that can fail."""

    broker: Valkey
    lines: tuple[Proxy, Proxy]
    settings: dict[str, str]


@pytest.fixture
def network(
    request: pytest.FixtureRequest, site: Site, run_folder: Path
) -> Iterator[Network | None]:
    """What can be harmed between processes; nothing where there is no broker."""
    if "broker_url" not in site.settings:
        yield None
        return
    broker: Valkey = request.getfixturevalue("valkey")
    name = site.url.partition("@/")[2].partition("?")[0]
    with (
        Proxy(run_folder / "pg" / ".s.PGSQL.5432") as database,
        Proxy(("127.0.0.1", broker.port)) as doorbells,
    ):
        settings = {
            "database_url": f"postgresql://postgres@127.0.0.1:{database.address[1]}/{name}",
            "broker_url": f"redis://127.0.0.1:{doorbells.address[1]}/0",
        }
        yield Network(broker, (database, doorbells), settings)


class Harm:
    """Kills and freezes workers and their children, and keeps their number up."""

    def __init__(self, site: Site, seed: int, network: Network | None) -> None:
        self.site = site
        self.chance = random.Random(seed)
        self.network = network
        self.workers: list[Running] = []
        self.far: Running | None = None
        self.did: Counter[str] = Counter()
        self.purged = self.taken = 0
        self.acts: list[Callable[[Running], None]] = [self.kill_child] * 5
        self.acts += [self.kill_worker, self.freeze]
        self.acts += [self.purge, self.cut_off] if network else []

    def keep_workers(self) -> None:
        """Start what is missing; one reaches the others through lines that can fail."""
        self.workers = [each for each in self.workers if each.popen.poll() is None]
        if self.network and self.far not in self.workers:
            self.far = self.site.start(**self.network.settings)
            self.workers.append(self.far)
        while len(self.workers) < WORKERS:
            self.workers.append(self.site.start())

    def strike(self) -> None:
        self.keep_workers()
        victim = self.chance.choice(self.workers)
        act = self.chance.choice(self.acts)
        act(victim)
        self.did[act.__name__] += 1

    def strike_for_certain(self, job: int) -> None:
        """Purge messages that are there, and cut a worker off from tasks that it holds."""
        self.keep_workers()
        while self.network and not (self.purged and self.taken):
            assert self.site.job(job).state in ("pending", "running"), "it was over too soon"
            self.keep_workers()
            until(lambda: self.network and self.network.broker.length(), what=self.site.logs)
            self.purge(self.workers[0])
            until(self.held, what=self.site.logs)
            self.cut_off(self.workers[0])
            self.did.update(("purge", "cut_off"))

    def purge(self, _: Running) -> None:
        assert self.network is not None
        self.purged += self.network.broker.length()
        self.network.broker.call("FLUSHALL")

    def held(self) -> set[tuple[int, int]]:
        """The tasks, with their fences, of the worker that can be cut off."""
        pid = self.far.pid if self.far else 0
        ids = {row.id for row in self.site.rows("workers", pid=pid)}
        running = self.site.rows("tasks", state="running")
        return {(row.id, row.fence) for row in running if row.worker_id in ids}

    def cut_off(self, _: Running) -> None:
        """Let nothing through for longer than a lease."""
        assert self.network is not None
        for line in self.network.lines:
            line.drop()
        held = self.held()
        pause(self.chance.uniform(5.0, 9.0))
        runs = self.site.rows("attempts", outcome="died")
        self.taken += len(held & {(row.task_id, row.fence) for row in runs})
        for line in self.network.lines:
            line.heal()

    def kill_child(self, worker: Running) -> None:
        if children := worker.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                self.chance.choice(children).kill()

    def kill_worker(self, worker: Running) -> None:
        worker.kill()

    def freeze(self, worker: Running) -> None:
        """Stop a worker and its children for longer or shorter than their leases."""
        # Kept: one that holds the write lock is killed by the others, and its children lose it.
        frozen = worker.tree()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for each in frozen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            pause(self.chance.uniform(0.5, 6.0) if number == signal.SIGSTOP else 0)


def test_random_kills_over_many_files_leave_the_index_of_a_calm_run(
    site: Site, network: Network | None, tmp_path: Path, pytestconfig: pytest.Config
):
    count = pytestconfig.getoption("--chaos-files")
    seed = pytestconfig.getoption("--chaos-seed") or random.randrange(10**6)
    seconds = pytestconfig.getoption("--chaos-seconds") or count * SECONDS_A_FILE
    longest = pytestconfig.getoption("--chaos-pause") or PAUSE
    folder = tmp_path / "in"
    fill(folder, count, seed)
    began = time.monotonic()
    shelf = Shelf(tmp_path / "calm", folder)
    shelf.ingest(settings=SETTINGS)
    expected, counted = shelf.index(), states(shelf.db)
    shelf.close()
    print(f"seed {seed}, {count} files; calm: {dict(counted)} in {time.monotonic() - began:.0f} s")

    job = site.submit("ingest", sources=[str(folder)], settings=SETTINGS)
    harm = Harm(site, seed, network)
    harm.strike_for_certain(job)
    began = time.monotonic()
    while time.monotonic() < began + seconds and site.job(job).state in ("pending", "running"):
        harm.strike()
        pause(harm.chance.uniform(longest / 7, longest))
    print(f"{dict(harm.did)} in {time.monotonic() - began:.0f} s; {harm.purged} messages purged")
    print(f"{harm.taken} tasks were taken from a worker that was cut off")
    assert network is None or (harm.purged > 0 and harm.taken > 0)
    harm.keep_workers()
    began = time.monotonic()
    site.until_over(job, within=1200)
    print(f"over {time.monotonic() - began:.1f} s after the last harm")

    assert states(site.app.db) == counted
    found = logical_index(site.app.db, folder)
    assert found.keys() == expected.keys()
    assert {k: v for k, v in found.items() if v != expected[k]} == {}
    assert {row.error for row in site.rows("leaves")} == {None}
    for worker in harm.workers:
        assert worker.leave() == 0
    left = [each.as_dict(["pid", "ppid", "status", "cmdline"]) for each in site.own_processes()]
    assert left == []
    site.assert_healthy()
