"""What the tests with Celery share: workers without the command line, and who rings for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from quire.celery.dispatcher import Dispatcher
from quire.control import outages
from quire.control.explain.job import explain_job
from quire.settings import Settings, load
from tests.brokers import Valkey
from tests.integration.processes import WORKER, Running, Site
from tests.proxy import Proxy
from tests.waiting import until

#: Seconds for programs to start on a machine that is busy.
START = 150.0
#: Longer than any test: then nothing runs but for doorbells.
DEAF = 600.0


def settings_of(site: Site, **more: Any) -> Settings:
    given = {**site.settings, "home": site.home, "database_url": site.url, **more}
    return load({}, **given)


def start_worker(site: Site, code: str = WORKER, **more: Any) -> Running:
    """Start a Celery worker and wait until it has reached its database, not yet its broker."""
    running = site.start(code=code, **more)
    until(
        lambda: running.logs("worker.started") or running.popen.poll() is not None,
        within=START,
        what=lambda: running.log,
    )
    assert running.popen.poll() is None, running.log
    return running


@contextlib.contextmanager
def dispatching(site: Site, count: int = 1, **more: Any) -> Iterator[list[Dispatcher]]:
    """Ring for what is ready, by one dispatcher or several, as `quire scheduler` does."""
    running = [Dispatcher(settings_of(site, **more)) for _ in range(count)]
    with contextlib.ExitStack() as stack:
        for each in running:
            stack.enter_context(each)
        yield running


class Stand:
    """One worker and one dispatcher, both behind a line that can fail."""

    def __init__(self, site: Site, line: Proxy) -> None:
        self.site, self.line = site, line
        self._stack = contextlib.ExitStack()
        self._stack.callback(line.close)
        self._stack.callback(site.close)
        self.worker = start_worker(site)
        [self.dispatcher] = self._stack.enter_context(dispatching(site))

    def close(self) -> None:
        self.line.heal()
        self._stack.close()

    def submit(self, count: int, name: str, **payload: Any) -> list[int]:
        return submit(self.site, count, name, **payload)

    def assert_done_once(self, ids: Sequence[int], name: str) -> None:
        """Check that all jobs ended well, each with one effect."""
        assert self.site.until_over(ids) == {"completed": len(ids)}
        found = [tag for tag in self.site.effects() if tag.startswith(name)]
        assert found == [f"{name}{n:03}" for n in range(len(ids))]
        self.site.assert_healthy()

    def until_rung(self) -> None:
        """Wait until doorbells come through again."""
        until(lambda: not trouble(self.site), what=lambda: trouble(self.site) + self.site.logs())

    def assert_outlives_a_black_hole(self, shown: str) -> None:
        """Swallow all that goes to the broker, and back; `shown` is how its address is told."""
        site, gated = self.site, [{"tag": f"held{n:03}", "gate": "hole"} for n in range(2)]
        self.until_rung()
        held = site.submit_many("i.gated", gated)
        site.until_traced("began", "held001")
        self.line.drop()
        waiting = self.submit(5, "hole")
        until(lambda: "has not answered since" in trouble(site), what=lambda: trouble(site))
        told = explained(site, waiting[0])
        assert "workers poll the database" in told
        assert shown in told and "guest" not in told
        site.open_gate("hole")
        self.assert_done_once(waiting, "hole")
        self.assert_done_once(held, "held")
        self.line.heal()
        self.until_rung()
        self.assert_done_once(self.submit(5, "mended"), "mended")
        assert self.worker.popen.poll() is None, self.worker.log

    def assert_outlives_slowness(self) -> None:
        """Delay every piece that goes to the broker, and back."""
        self.line.delay(0.2)
        try:
            self.assert_done_once(self.submit(20, "slow"), "slow")
        finally:
            self.line.heal()


class ValkeyStand(Stand):
    """A stand whose broker the test may stop, start and empty."""

    def __init__(self, site: Site, valkey: Valkey, line: Proxy) -> None:
        self.valkey = valkey
        super().__init__(site, line)


def trouble(site: Site) -> str:
    """What status, doctor and dashboard say of the broker; empty where all is well."""
    db = site.app.db
    with db.read() as conn:
        found = outages.broker_state(conn, now=db.now(conn), max_silence=60.0)
    return (found or {}).get("problem") or ""


def explained(site: Site, job_id: int) -> str:
    return str(explain_job(site.app.caller, job_id)["text"])


def submit(site: Site, count: int, name: str = "t", **payload: Any) -> list[int]:
    return site.submit_many("i.effect", [{"tag": f"{name}{n:03}", **payload} for n in range(count)])


def assert_once(site: Site, *names: tuple[str, int]) -> None:
    """Check that each effect is there once, and that nothing else is broken."""
    assert site.effects() == sorted(f"{name}{n:03}" for name, count in names for n in range(count))
    site.assert_healthy()
