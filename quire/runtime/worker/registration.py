"""What makes a worker findable: its lock, its row, and the ways in which it is woken."""

import contextlib
import os
import selectors
from collections.abc import Collection
from typing import Any

from quire import log
from quire.celery.claim_gate import Door
from quire.clock import Instant, own_pid_start
from quire.errors import DatabaseUnavailable
from quire.model.contracts import JobKind, in_queues
from quire.model.records import Ending, WorkerRow
from quire.runtime import wakeup
from quire.runtime.parent_pipe import Leash
from quire.runtime.worker import live_workers, liveness
from quire.settings import Settings
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.notify import Listener
from quire.store.queue import kinds, settle, workers


class Presence:
    """A worker as others see it, from its start to its end."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        worker_id: str,
        selector: selectors.BaseSelector,
        door: Door,
    ) -> None:
        self._db = db
        self._home = settings.home
        self._queues = ",".join(settings.queues)
        self._queue_by_kind = settings.queue_by_kind
        self._id = worker_id
        self._selector = selector
        self._listener = Listener(db)
        self._lock = liveness.hold(wakeup.run_folder(settings.home) / f"{worker_id}.lock")
        self._ear = wakeup.listen(settings.home, worker_id)
        selector.register(self._ear, selectors.EVENT_READ, "ear")
        self.leash = Leash(selector)
        self.bell = door.bell(selector)
        self._broker = door.broker

    def announce(self, known: Collection[JobKind], concurrency: int) -> None:
        """Write the worker's row, as soon as the database allows it."""
        row = WorkerRow(
            id=self._id, host=liveness.host(), pid=os.getpid(), boot_id=liveness.place(),
            pid_start=own_pid_start(), lock_path=str(self._lock.path), queues=self._queues,
            concurrency=concurrency, state="running", started_at=0.0, heartbeat_at=0.0,
            stopped_at=None, broker=self._broker,
        )  # fmt: skip

        for name in sorted(set(self._queue_by_kind) - {kind.name for kind in known}):
            log.event("kind.unknown", level="warning", kind=name, queue=self._queue_by_kind[name])

        def act(conn: Any, now: Instant) -> dict[str, tuple[str, str]]:
            # The queue of a task is the one announced last: where workers differ, no task is split.
            moved = kinds.announce(conn, in_queues(known, self._queue_by_kind))
            workers.register(conn, row, [kind.name for kind in known], now=now)
            return moved

        while not self.bell.rung:
            try:
                if self._db.path is not None:
                    self._db.migrate(alive=live_workers.is_alive)
                self._tell_moved(self._db.write(act))
                return
            except DatabaseUnavailable as error:
                log.trouble("worker.waits", error, worker=self._id)
                self._selector.select(1.0)

    def _tell_moved(self, moved: dict[str, tuple[str, str]]) -> None:
        """Warn of queues that are others now for everybody: a variable may be missing here."""
        for name, (old, queue) in moved.items():
            log.event(
                "kind.moved", level="warning", kind=name, old=old, queue=queue, worker=self._id
            )

    def woken_by(self, word: str) -> bool:
        """Take what a selector's key announced; True if there may be work."""
        if word == "ear":
            wakeup.heard(self._ear)
        elif word == "listener":
            self._listener.heard()
        elif word in ("bell", "doorway"):
            self.bell.hear()
        elif word == "leash":
            self.leash.read()
        return word in ("ear", "listener", "doorway")

    def follow_listener(self) -> None:
        """Keep the selector in step with the listening connection, which comes and goes."""
        fileno = self._listener.fileno
        known = [k.fd for k in self._selector.get_map().values() if k.data == "listener"]
        for fd in known:
            if fd != fileno:
                self._selector.unregister(fd)
        if fileno is not None and fileno not in known:
            self._selector.register(fileno, selectors.EVENT_READ, "listener")

    def reopen_listener(self) -> None:
        """Listen again after the connection was lost."""
        self._listener.reopen()

    def say_draining(self) -> None:
        """Let others see that this worker takes no more work."""
        with contextlib.suppress(DatabaseUnavailable):
            self._db.write(
                lambda conn, now: workers.set_state(conn, [self._id], "draining", now=now)
            )

    def leave(self, endings: list[Ending]) -> None:
        """Settle the last runs, sign off and let go of everything."""

        def act(conn: Any, now: Instant) -> None:
            settle.settle(conn, endings, now=now)
            workers.set_state(conn, [self._id], "stopped", now=now)
            dialect.notify(conn)

        try:
            self._db.write(act)
        except DatabaseUnavailable as error:
            log.trouble("worker.left_leases", error, worker=self._id, leases=len(endings))
        wakeup.hush(self._home, self._id)
        self._listener.close()
        self._lock.release()
        wakeup.ring(self._home)
