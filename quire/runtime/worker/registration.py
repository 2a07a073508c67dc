"""A worker as others see it: its lock, its row in the database, and how it is woken."""

import contextlib
import os
import selectors
import time
from collections.abc import Collection

from quire import log
from quire.clock import Instant, own_pid_start
from quire.errors import DatabaseUnavailable, Transferred
from quire.model.contracts import JobKind, in_queues
from quire.model.outcomes import Settlement
from quire.model.records import WorkerRow
from quire.runtime import wakeup
from quire.runtime.signals import ParentPipe
from quire.runtime.worker import liveness
from quire.runtime.worker.claim_gate import ClaimGate
from quire.settings import Settings
from quire.store import Connection
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.notify import Listener
from quire.store.queue import kinds, settle, workers


class Registration:
    """Registers a worker, and removes what it registered when it ends."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        worker_id: str,
        selector: selectors.BaseSelector,
        gate: ClaimGate,
    ) -> None:
        self.listener = Listener(db)
        self._db = db
        self._settings = settings
        self._id = worker_id
        self._selector = selector
        self._lock = liveness.hold(wakeup.run_folder(settings.home) / f"{worker_id}.lock")
        self._socket = wakeup.listen(settings.home, worker_id)
        selector.register(self._socket, selectors.EVENT_READ, "wakeup")
        self._parent = ParentPipe(selector)
        self._stop_source = gate.watch(selector)
        self._broker = gate.broker

    @property
    def stop_requests(self) -> int:
        """How often the worker was told to stop; a closed parent pipe counts as one request."""
        return self._stop_source.stop_requests or int(self._parent.is_closed)

    def register(self, known: Collection[JobKind], concurrency: int) -> None:
        """Write the worker's row as soon as the database is available."""
        queue_by_kind = self._settings.queue_by_kind
        row = WorkerRow(
            id=self._id, host=liveness.host(), pid=os.getpid(),
            boot_id=liveness.boot_and_namespace(), pid_start=own_pid_start(),
            lock_path=str(self._lock.path), queues=",".join(self._settings.queues),
            concurrency=concurrency, state="running", started_at=0.0, heartbeat_at=0.0,
            stopped_at=None, broker=self._broker,
        )  # fmt: skip
        names = [kind.name for kind in known]
        for name in sorted(set(queue_by_kind) - set(names)):
            log.event("kind.unknown", level="warning", kind=name, queue=queue_by_kind[name])

        def act(conn: Connection, now: Instant) -> dict[str, tuple[str, str]]:
            # The last worker to register decides the queue of a kind, for all of its tasks.
            moved = kinds.announce(conn, in_queues(known, queue_by_kind))
            workers.register(conn, row, names, now=now)
            return moved

        while not self.stop_requests:
            try:
                if self._db.is_embedded:
                    self._db.migrate(alive=liveness.is_alive)
                moved = self._db.write(act)
            except DatabaseUnavailable as error:
                log.trouble("worker.waits", error, worker=self._id)
                self._pause()
                continue
            for name, (old, queue) in moved.items():  # QUIRE_ROUTES may be missing here
                log.event(
                    "kind.moved", level="warning", kind=name, old=old, queue=queue, worker=self._id
                )
            return

    def _pause(self) -> None:
        """Wait a second or until a stop; messages of children do not end the wait."""
        for _ in range(20):
            time.sleep(0.05)
            for key, _mask in self._selector.select(0):
                if isinstance(key.data, str):
                    self.clear_wakeup(key.data)
            if self.stop_requests:
                return

    def clear_wakeup(self, source: str) -> bool:
        """Read what woke the selector; return True if there may be work."""
        if source == "wakeup":
            wakeup.clear(self._socket)
        elif source == "listener":
            self.listener.heard()
        elif source in ("signal", "gate"):
            self._stop_source.clear()
        elif source == "parent":
            self._parent.read()
        return source in ("wakeup", "listener", "gate")

    def mark_draining(self) -> None:
        """Record that this worker claims no more tasks."""
        with contextlib.suppress(DatabaseUnavailable, Transferred):
            self._db.write(
                lambda conn, now: workers.set_state(conn, [self._id], "draining", now=now)
            )

    def leave(self, settlements: list[Settlement]) -> None:
        """Settle the last runs, mark the worker as stopped, and release its lock and socket."""

        def act(conn: Connection, now: Instant) -> None:
            settle.settle(conn, settlements, now=now)
            workers.set_state(conn, [self._id], "stopped", now=now)
            dialect.notify(conn)

        try:
            self._db.write(act)
        except (DatabaseUnavailable, Transferred) as error:
            log.trouble("worker.left_leases", error, worker=self._id, leases=len(settlements))
        wakeup.remove_socket(self._settings.home, self._id)
        self.listener.close()
        self._lock.release()
        wakeup.wake(self._settings.home)
