"""Minutes of random kills, pauses, restarts and stops under load: every effect once, nothing lost.

The seed is printed; `--chaos-seed` repeats a run, `--chaos-seconds` and `--chaos-pause` lengthen it
and make it faster.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from quire.control import jobs as verbs
from quire.errors import DatabaseUnavailable
from quire.model.records import Submission
from tests import brokers, columns, postgres
from tests.integration.processes import Running, Site, pause

T = TypeVar("T")

SECONDS = 150.0
PAUSE = 2.5
WORKERS = 3

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]


class Monkey:
    """Does harm, and keeps the number of workers up."""

    def __init__(
        self,
        site: Site,
        server: postgres.Server | None,
        seed: int,
        broker: brokers.Valkey | None = None,
    ) -> None:
        self.site = site
        self.server = server
        self.broker = broker
        self.chance = random.Random(seed)
        self.workers: list[Running] = []
        self.frozen: list[tuple[float, Running, list[psutil.Process]]] = []
        self.jobs: list[int] = []
        self.expected: list[str] = []
        self.did: Counter[str] = Counter()

    def run(self, seconds: float, longest_pause: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep_workers()
            self.thaw(time.monotonic())
            if self.site_has_room():
                self.submit()
            self.chance.choice(self.harms())()
            pause(self.chance.uniform(longest_pause / 5, longest_pause))
        self.thaw(float("inf"))
        self.keep_workers()

    def harms(self) -> list[Callable[[], None]]:
        some = [self.kill_worker, self.kill_child, self.kill_child, self.freeze, self.rest]
        some += [self.interrupt] if self.jobs else []
        if self.server and self.chance.random() < 0.2:
            some.append(self.restart_server)
        if self.broker:
            some += [self.purge_broker, self.restart_broker]
        return some

    def rest(self) -> None:
        self.did["rested"] += 1

    def keep_workers(self) -> None:
        self.workers = [w for w in self.workers if w.popen.poll() is None]
        while len(self.workers) < WORKERS:
            self.workers.append(self.site.start())
            self.did["started"] += 1

    def kill_worker(self) -> None:
        self.chance.choice(self.workers).tell(signal.SIGKILL)
        self.did["killed worker"] += 1

    def kill_child(self) -> None:
        children = self.chance.choice(self.workers).children()
        if children:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.chance.choice(children).kill()
            self.did["killed child"] += 1

    def freeze(self) -> None:
        worker = self.chance.choice(self.workers)
        if worker in [one for _, one, _ in self.frozen]:
            return
        # Kept: if the worker is killed, a child that had only begun to start is nobody's child.
        tree = worker.tree()
        signal_all(tree, signal.SIGSTOP)
        self.frozen.append((time.monotonic() + self.chance.uniform(0.5, 8.0), worker, tree))
        self.did["froze"] += 1

    def thaw(self, now: float) -> None:
        for each in [each for each in self.frozen if each[0] <= now]:
            signal_all(each[2], signal.SIGCONT)
            self.frozen.remove(each)

    def interrupt(self) -> None:
        """Stop or cancel some jobs and let them go on, perhaps before the first is through."""
        stops = (verbs.stop, verbs.resume), (verbs.cancel, verbs.retry)
        some = self.chance.choices(self.jobs[-100:], k=5)
        gap = self.chance.choice([0, 0, 0.1, 1.0])
        for verb in self.chance.choice(stops):
            self.insist(partial(verb, self.site.app.caller, some))
            pause(gap)
        self.did["interrupted"] += 1

    def insist(self, act: Callable[[], T]) -> T:
        """Ask again while the database is away."""
        for _ in range(100):
            with contextlib.suppress(DatabaseUnavailable):
                return act()
            pause(0.1)
        raise AssertionError("the database did not come back")

    def restart_server(self) -> None:
        assert self.server is not None
        self.server.stop("immediate")
        pause(self.chance.uniform(0, 1.5))
        self.server.start()
        self.did["restarted server"] += 1

    def purge_broker(self) -> None:
        assert self.broker is not None
        self.broker.call("FLUSHALL")
        self.did["purged broker"] += 1

    def restart_broker(self) -> None:
        assert self.broker is not None
        self.broker.kill()
        pause(self.chance.uniform(0, 1.5))
        self.broker.start()
        self.did["restarted broker"] += 1

    def site_has_room(self) -> bool:
        with contextlib.suppress(DatabaseUnavailable):
            states = self.site.states()
            return states["pending"] + states["running"] < 60
        return False

    def submit(self) -> None:
        wishes: list[Submission] = []
        expected: list[str] = []
        for _ in range(20):
            tag = f"{len(self.jobs) + len(wishes)}"
            seconds = self.chance.choice([0, 0.01, 0.05, 0.3])
            if self.chance.random() < 0.3:
                wishes.append(Submission("i.chaos_plain", {"tag": tag, "seconds": seconds}))
                continue
            children = self.chance.choice([0, 0, 0, 4])
            payload = {"tag": tag, "seconds": seconds, "children": children}
            wishes.append(Submission("i.chaos", payload))
            expected += [tag, f"{tag}.early"]
            expected += [f"{tag}.{n}" for n in [*range(children), "last"]] if children else []
        # The key makes the second try of a submission whose answer was lost harmless.
        key = f"k{len(self.jobs)}"
        self.jobs += self.insist(lambda: self.site.app.submit_many(wishes, key=key))
        self.expected += expected


@pytest.fixture(params=["sqlite", "postgres", "celery"])
def monkey(request: pytest.FixtureRequest, home: Path) -> Iterator[Monkey]:
    """A home with its own servers, if it has some, that may be harmed."""
    server = None if request.param == "sqlite" else request.getfixturevalue("pg_server")
    site = Site(home, server.url if server else "")
    broker = None
    if request.param == "celery":
        broker = request.getfixturevalue("valkey")
        columns.deliver(site, request, "celery")
    site.prepare()
    if broker:
        site.schedule()
    seed = request.config.getoption("--chaos-seed") or random.randrange(10**6)
    print(f"seed {seed}")
    yield Monkey(site, server, seed, broker)
    site.close()


def test_random_harm_loses_nothing_and_doubles_nothing(monkey: Monkey, pytestconfig: pytest.Config):
    option = pytestconfig.getoption
    monkey.run(option("--chaos-seconds") or SECONDS, option("--chaos-pause") or PAUSE)
    site = monkey.site
    print(f"{len(monkey.jobs)} jobs; {dict(monkey.did)}")
    began = time.monotonic()
    states = site.until_over(monkey.jobs, within=180)
    print(f"settled {time.monotonic() - began:.1f} s after the last harm")
    assert states == {"completed": len(monkey.jobs)}, failures(site)
    counted = Counter(site.effects())
    assert {tag: n for tag, n in counted.items() if n > 1} == {}
    assert sorted(set(monkey.expected) - set(counted)) == []
    assert sorted(set(counted) - set(monkey.expected)) == []
    logs = site.logs()
    assert "Traceback" not in logs, logs[max(logs.index("Traceback") - 2000, 0) :][:6000]
    for worker in monkey.workers:
        assert worker.leave() == 0
    assert site.own_processes() == []
    site.assert_healthy()


def signal_all(processes: list[psutil.Process], number: int) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)


def failures(site: Site) -> list[object]:
    return [(row.id, row.state, row.error) for row in site.rows("jobs") if row.state == "failed"]
