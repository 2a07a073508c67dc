"""Rings for ready tasks: keeps a few doorbells in the broker, about two for each slot of a worker.

It asks the broker how many wait and adds what is missing, so a purged or restarted broker is like
any other that lacks some. Several may run: who rings first, by a compare-and-set, rings alone.
It has a thread of its own, so that a broker that does not answer keeps nobody waiting.
"""

import contextlib
import os
import selectors
import threading
import time
import uuid
from typing import Any

from quire import log
from quire.celery import settings as celery_settings
from quire.clock import Instant
from quire.errors import DatabaseUnavailable
from quire.runtime import wakeup
from quire.settings import Settings
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.db.notify import Listener
from quire.store.queue import doorbells, release
from quire.store.queue.doorbells import Wanted

#: Doorbells for each slot: one that is rung, and one behind it.
WINDOW = 2
#: Seconds between two looks while tasks are ready: below the time that a doorbell serves.
LOOK_EVERY = 0.5
#: Seconds between two looks while nothing is: a lost wake-up costs no more.
IDLE_EVERY = 1.0
#: Seconds between two notes that all is well.
NOTE_EVERY = 15.0
LONGEST_TROUBLE = 5.0
PROBE = Wanted(0, 0, "nothing")


class Dispatcher:
    """A thread that rings until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._id = f"d-{uuid.uuid4().hex[:8]}"
        self._name = celery_settings.shown(settings.broker_url)
        self._db = Database.open(settings.database, lease_seconds=settings.lease_seconds)
        self._bells = Bells(settings)
        self._listener = Listener(self._db)
        self._selector = selectors.DefaultSelector()
        self._ear = wakeup.listen(settings.home, self._id)
        self._selector.register(self._ear, selectors.EVENT_READ, "ear")
        self._inner, self._outer = os.pipe()
        self._selector.register(self._inner, selectors.EVENT_READ, "end")
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self._is_over = False
        self._trouble = 0.0
        self._noted_at = 0.0

    def start(self) -> None:
        """Begin to ring."""
        log.event("dispatcher.started", broker=self._name)
        self._thread.start()

    def stop(self) -> None:
        """End, unless the broker keeps it: then it ends with the program."""
        self._is_over = True
        os.write(self._outer, b"!")
        self._thread.join(5.0)
        wakeup.hush(self._settings.home, self._id)

    def _run(self) -> None:
        while not self._is_over:
            wait = LONGEST_TROUBLE
            try:
                self._listener.reopen()
                wait = self.look()
            except DatabaseUnavailable as error:
                log.trouble("dispatcher.waits", error)
            except Exception as error:  # a library's own: the loop has to outlive it
                log.trouble("dispatcher.failed", error)
            self._sleep(wait)
        self._close()

    def _close(self) -> None:
        self._bells.drop()
        self._listener.close()
        self._db.close()
        self._selector.close()
        self._ear.close()
        os.close(self._inner)
        os.close(self._outer)

    def _sleep(self, seconds: float) -> None:
        fd = self._listener.fileno
        known = {k.fd for k in self._selector.get_map().values() if k.data == "listener"}
        for old in known - {fd}:
            self._selector.unregister(old)
        if fd is not None and fd not in known:
            self._selector.register(fd, selectors.EVENT_READ, "listener")
        for key, _ in self._selector.select(seconds):
            if key.data == "ear":
                wakeup.heard(self._ear)
            elif key.data == "listener":
                self._listener.heard()

    def look(self) -> float:
        """Ring for what is ready and not rung for; returns the seconds until the next look."""
        patience = self._settings.lease_seconds
        with self._db.read() as conn:
            now = self._db.now(conn)
            due_at = release.next_due_at(conn)
        if due_at is not None and due_at <= now.wall:
            self._db.write(lambda conn, now: release.move_due(conn, now=now))
        with self._db.read() as conn:
            slots = doorbells.slots(conn, now=now, patience=patience)
            wanted = {q: doorbells.head(conn, q, WINDOW * slots[q]) for q in sorted(slots)}
            for queue in doorbells.unheard(conn, now=now, patience=patience):
                # A worker that claims without us has to hear that we are back.
                wanted[queue] = wanted[queue] or [PROBE]
            seen = {queue: each.seq for queue, each in doorbells.of(conn).items()}
        is_well = self._serve({q: tasks for q, tasks in wanted.items() if tasks}, seen, slots)
        if not is_well:
            return self._trouble
        wait = LOOK_EVERY if any(wanted.values()) else IDLE_EVERY
        if due_at is not None and due_at > now.wall:
            wait = min(wait, max(due_at - now.wall, 0.001))
        return wait

    def _serve(
        self, wanted: dict[str, list[Wanted]], seen: dict[str, int], slots: dict[str, int]
    ) -> bool:
        is_time = time.monotonic() >= self._noted_at + NOTE_EVERY
        unknown = set(wanted) - set(seen)
        try:
            if is_time or self._trouble:
                # Asked though nothing is to be rung for, so that trouble is seen early.
                for queue in slots:
                    self._bells.waiting(queue)
            if slots and (is_time or self._trouble or unknown):
                self._note(slots, None)
            for queue, tasks in wanted.items():
                missing = tasks[self._bells.waiting(queue) :]
                if missing:
                    self._ring(queue, missing, seen.get(queue, 0))
        except self._bells.troubles() as error:
            self._bells.drop()
            self._fail(slots, error)
            return False
        if self._trouble:
            log.event("broker.back", broker=self._name)
            self._trouble = 0.0
        return True

    def _fail(self, slots: dict[str, int], error: BaseException) -> None:
        is_first = not self._trouble
        self._trouble = min(max(self._trouble * 2, 0.25), LONGEST_TROUBLE)
        if is_first:
            # A connection that the broker had closed: a fresh one decides.
            return
        text = f"{type(error).__name__}: {error}".split("\n")[0]
        log.event(
            "broker.away", level="error", broker=self._name, error=text,
            again_in=f"{self._trouble:g} s",
        )  # fmt: skip
        self._note(slots, text)

    def _note(self, slots: dict[str, int], error: str | None) -> None:
        def act(conn: Connection, now: Instant) -> None:
            doorbells.note(conn, self._name, slots, now=now, error=error)

        self._db.write(act)
        self._noted_at = time.monotonic()

    def _ring(self, queue: str, tasks: list[Wanted], seen: int) -> None:
        """Take the numbers first: of two dispatchers that saw the same, one goes on."""

        def act(conn: Connection, now: Instant) -> bool:
            return doorbells.advance(conn, queue, seen=seen, count=len(tasks), now=now)

        if self._db.write(act):
            self._bells.ring(queue, tasks, seen)


class Bells:
    """The broker as the dispatcher uses it: with short patience, and a connection made anew."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = celery_settings.make_app(settings)
        self._connection: Any = None
        self._queues: dict[str, Any] = {}

    def troubles(self) -> tuple[type[BaseException], ...]:
        """Return what a broker in trouble raises."""
        from kombu.exceptions import KombuError, OperationalError

        unused = self._app.connection_for_write()
        own = (*unused.connection_errors, *unused.channel_errors)
        return (OSError, KombuError, OperationalError, *own)

    def waiting(self, queue: str) -> int:
        """Return how many doorbells of a queue nobody has taken; the queue is made if missing."""
        return int(self._queue(queue).queue_declare().message_count)

    def ring(self, queue: str, tasks: list[Wanted], seq: int) -> None:
        """Send one doorbell for each task."""
        place = self._queue(queue)
        with self._app.amqp.Producer(self._connection.default_channel) as producer:
            for number, task in enumerate(tasks, seq + 1):
                self._app.send_task(
                    celery_settings.RING,
                    kwargs={**task._asdict(), "dispatch_seq": number},
                    producer=producer,
                    # Named as a queue: Celery sends what has only a routing key to its default one.
                    # By the nameless exchange, which needs no binding that a FLUSHALL would remove.
                    queue=place,
                    declare=[],
                    retry=False,
                    ignore_result=True,
                )

    def drop(self) -> None:
        """Forget the connection."""
        connection, self._connection, self._queues = self._connection, None, {}
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(1.0)

    def _queue(self, name: str) -> Any:
        if self._connection is None:
            self._connection = self._app.connection_for_write(
                connect_timeout=3.0,
                transport_options=celery_settings.impatient(self._settings),
            )
            self._connection.ensure_connection(max_retries=1, timeout=3.0)
        if name not in self._queues:
            queue = celery_settings.queue_of(name, self._settings)
            self._queues[name] = queue.bind(self._connection.default_channel)
        return self._queues[name]
