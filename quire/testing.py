"""For tests of plugins: a scratch app with a fake clock, and `drain()` to run due tasks.

Handlers run in this process, one after another, on the real store: claims, fences, retries and
steps work as in production. Only the child processes are left out.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quire import plugins
from quire.app import App
from quire.clock import FakeClock, Instant
from quire.model.contracts import MARK
from quire.model.outcomes import Lease, Outcome, RunReport, decide
from quire.runtime.child.context import Context
from quire.runtime.child.main import perform
from quire.settings import load
from quire.store import Connection
from quire.store.queue import claim, kinds, progress, release, settle

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
    def act(conn: Connection, now: Instant) -> list[Lease]:
        release.release_due(conn, now=now)
        leases = claim.claim(conn, WORKER, queue, app.registry.kinds, now=now, ttl=60.0)
        claim.advance(conn, leases)
        return leases

    return app.db.write(act)


def _run(app: App, lease: Lease) -> RunReport:
    kind = app.registry.kinds[lease.kind]
    backend = _DatabaseBackend(app, lease)
    context = Context(lease, backend, app.db)
    report = perform(lease, kind, context)._replace(duration=0.0)
    context.close()
    if backend.is_settled:
        return RunReport(lease.task_id, lease.fence, Outcome.SETTLED)
    spread = random.random()  # noqa: S311
    settlement = decide(report, lease, kind, spread, WORKER, asked=backend.is_revoked())
    app.db.write(lambda conn, now: settle.settle(conn, [settlement], now=now))
    return report


class _DatabaseBackend:
    """Does what the backend of a child does, directly in the database."""

    def __init__(self, app: App, lease: Lease) -> None:
        self.scratch_root = app.settings.home / "scratch"
        self.settings: dict[str, Any] = {**app.settings.for_children, "worker_id": WORKER}
        self.is_settled = False
        self._app = app
        self._lease = lease

    def is_revoked(self) -> bool:
        """Tell whether the lease has been lost."""
        key = self._lease.task_id, self._lease.fence
        with self._app.db.read() as conn:
            return not settle.still_held(conn, [key])

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """Write progress at once."""
        told = (self._lease.task_id, self._lease.fence, fraction, message)
        self._app.db.write(lambda conn, now: progress.report(conn, [told], now=now))

    def log_line(self, text: str) -> None:
        """Write a line of the log at once."""
        self.report_progress(None, text)

    def mark_settled(self) -> None:
        """Note that the handler settled its task itself."""
        self.is_settled = True
