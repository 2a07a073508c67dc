"""For tests of plugins: a scratch app with a fake clock, and `drain()` to run due tasks.

Handlers run in this process, one after another, on the real store: claims, fences, retries and
steps work as in production. Only the child processes are left out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quire import plugins
from quire.app import App
from quire.clock import FakeClock
from quire.model.contracts import MARK
from quire.model.outcomes import Lease, RunReport
from quire.runtime.inline import InlineWorker
from quire.settings import load
from quire.store.queue import kinds

__all__ = ["FakeClock", "drain", "scratch_app"]

WORKER = "w-testing"


def scratch_app(
    home: Path, *handlers: Callable[..., Any], clock: FakeClock | None = None, **settings: Any
) -> App:
    """Return an app on a new database in `home` that knows these handlers, parsers, sources."""
    app = App(load({}, home=home, **settings))
    for each in handlers:
        app.registry.put(getattr(each, MARK))
    plugins.equip(app.registry)
    app.db.clock = clock or FakeClock()
    app.db.write(lambda conn, now: kinds.announce(conn, app.registry.kinds.values()))
    return app


def drain(
    app: App, *, queues: Sequence[str] = ("default",), limit: int = 10_000
) -> list[RunReport]:
    """Run all due tasks, and those that become due; returns how each run ended."""
    plugins.equip(app.registry)
    reports: list[RunReport] = []
    while len(reports) < limit:
        leases = [lease for queue in queues for lease in _claim(app, queue)]
        if not leases:
            break
        reports += [_run(app, lease) for lease in leases]
    return reports


def _claim(app: App, queue: str) -> list[Lease]:
    return _worker(app).claim(queue)


def _run(app: App, lease: Lease) -> RunReport:
    return _worker(app).run(lease)


def _worker(app: App) -> InlineWorker:
    return InlineWorker(app.db, app.registry.kinds, app.settings.for_children, WORKER)
