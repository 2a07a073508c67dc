"""Runs tasks in this process, one after another, on the real store.

Claims, fences, retries and steps work as in a worker. Only the child processes are left out: a
handler that crashes takes this process with it, and no lease is renewed while it runs.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.clock import Instant
from quire.model.contracts import JobKind
from quire.model.outcomes import Lease, Outcome, RunReport, decide
from quire.runtime.child.context import Context
from quire.runtime.child.main import perform
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.queue import claim, progress, release, settle
from quire.url_secrets import masked

LEASE_SECONDS = 60.0


class InlineWorker:
    """A worker without child processes."""

    def __init__(
        self, db: Database, kinds: Mapping[str, JobKind], settings: dict[str, Any], worker_id: str
    ) -> None:
        self.db = db
        self.worker_id = worker_id
        self.settings = {**settings, "worker_id": worker_id}
        self._kinds = kinds

    def claim(self, queue: str) -> list[Lease]:
        """Claim the next due task of its kinds, if there is one."""

        def act(conn: Connection, now: Instant) -> list[Lease]:
            release.release_due(conn, now=now)
            leases = claim.claim(
                conn, self.worker_id, queue, self._kinds, now=now, ttl=LEASE_SECONDS
            )
            claim.advance(conn, leases)
            return leases

        return self.db.write(act)

    def run(self, lease: Lease) -> RunReport:
        """Run a task and settle it."""
        kind = self._kinds[lease.kind]
        backend = _DatabaseBackend(self, lease)
        context = Context(lease, backend, self.db)
        report = perform(lease, kind, context)._replace(duration=0.0)
        context.close()
        if backend.is_settled:
            return RunReport(lease.task_id, lease.fence, Outcome.SETTLED)
        spread = random.random()  # noqa: S311
        settlement = decide(report, lease, kind, spread, self.worker_id, asked=backend.is_revoked())
        self.db.write(lambda conn, now: settle.settle(conn, [settlement], now=now))
        return report


class _DatabaseBackend:
    """Does what the backend of a child does, directly in the database."""

    def __init__(self, worker: InlineWorker, lease: Lease) -> None:
        self.settings = worker.settings
        self.scratch_root = Path(worker.settings["home"]) / "scratch"
        self.is_settled = False
        self._db = worker.db
        self._lease = lease

    def is_revoked(self) -> bool:
        """Tell whether the lease has been lost."""
        with self._db.read() as conn:
            return not settle.still_held(conn, [(self._lease.task_id, self._lease.fence)])

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """Write progress at once."""
        message = None if message is None else masked(message)
        told = (self._lease.task_id, self._lease.fence, fraction, message)
        self._db.write(lambda conn, now: progress.report(conn, [told], now=now))

    def log_line(self, text: str) -> None:
        """Write a line of the log at once."""
        self.report_progress(None, text)

    def mark_settled(self) -> None:
        """Note that the handler settled its task itself."""
        self.is_settled = True
