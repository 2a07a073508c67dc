"""Sends doorbells for ready tasks: keeps about two messages per worker slot in the broker.

It asks the broker how many messages wait and sends what is missing, so a purged or restarted
broker needs no special case. Several dispatchers may run: a compare-and-set on the queue's
sequence number lets one of them send. It runs in a thread of its own, so that a broker that does
not answer blocks nothing else.
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
from quire.errors import DatabaseUnavailable
from quire.runtime import wakeup
from quire.settings import Settings
from quire.store import open_database
from quire.store.db.notify import Listener
from quire.store.queue import doorbells, release
from quire.store.queue.doorbells import ReadyTask

#: Messages per worker slot: one in delivery, and one waiting behind it.
WINDOW = 2
#: Seconds between two rounds while tasks are ready; less than one message keeps a slot open.
BUSY_INTERVAL = 0.5
#: Seconds between two rounds while no task is ready; bounds the cost of a lost wake-up.
IDLE_INTERVAL = 1.0
#: Seconds between two records of the broker's state.
RECORD_INTERVAL = 15.0
MAX_RETRY_DELAY = 5.0
#: A message for no task; it only shows a polling worker that the broker is back.
PROBE = ReadyTask(0, 0, "nothing")


class Dispatcher:
    """A thread that sends doorbells inside a `with` block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._id = f"d-{uuid.uuid4().hex[:8]}"
        self._broker = celery_settings.shown(settings.broker_url)
        self._db = open_database(settings.database, lease_seconds=settings.lease_seconds)
        self._sender = DoorbellSender(settings)
        self._listener = Listener(self._db)
        self._selector = selectors.DefaultSelector()
        self._socket = wakeup.listen(settings.home, self._id)
        self._selector.register(self._socket, selectors.EVENT_READ, "wakeup")
        self._read_end, self._write_end = os.pipe()
        self._selector.register(self._read_end, selectors.EVENT_READ, "stop")
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self._is_stopped = False
        self._retry_delay = 0.0
        self._recorded_at = 0.0

    def __enter__(self) -> None:
        log.event("dispatcher.started", broker=self._broker)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_stopped = True
        os.write(self._write_end, b"!")
        # A thread that the broker blocks ends with the process.
        self._thread.join(5.0)
        wakeup.remove_socket(self._settings.home, self._id)

    def _run(self) -> None:
        while not self._is_stopped:
            wait = MAX_RETRY_DELAY
            try:
                self._listener.reopen()
                wait = self.run_round()
            except DatabaseUnavailable as error:
                log.trouble("dispatcher.waits", error)
            except Exception as error:  # of a broker library; the loop must survive it
                log.trouble("dispatcher.failed", error)
            self._listener.register(self._selector)
            for key, _ in self._selector.select(wait):
                if key.data == "wakeup":
                    wakeup.clear(self._socket)
                elif key.data == "listener":
                    self._listener.heard()
        self._sender.disconnect()
        self._listener.close()
        self._db.close()
        self._selector.close()
        self._socket.close()
        os.close(self._read_end)
        os.close(self._write_end)

    def run_round(self) -> float:
        """Send what is missing; returns the seconds until the next round."""
        max_silence = self._settings.lease_seconds
        with self._db.read() as conn:
            now = self._db.now(conn)
            due_at = release.next_due_at(conn)
        if due_at is not None and due_at <= now.wall:
            self._db.write(lambda conn, now: release.release_due(conn, now=now))
        with self._db.read() as conn:
            slots = doorbells.slots(conn, now=now, max_silence=max_silence)
            wanted = {q: doorbells.head(conn, q, WINDOW * slots[q]) for q in sorted(slots)}
            for queue in doorbells.missed_queues(conn, now=now, max_silence=max_silence):
                # Some worker polls because the broker was silent: show it that messages come.
                wanted[queue] = wanted[queue] or [PROBE]
            seen = {queue: each.seq for queue, each in doorbells.states(conn).items()}
        is_ok = self._serve({q: tasks for q, tasks in wanted.items() if tasks}, seen, slots)
        if not is_ok:
            return self._retry_delay
        wait = BUSY_INTERVAL if any(wanted.values()) else IDLE_INTERVAL
        if due_at is not None and due_at > now.wall:
            wait = min(wait, max(due_at - now.wall, 0.001))
        return wait

    def _serve(
        self, wanted: dict[str, list[ReadyTask]], seen: dict[str, int], slots: dict[str, int]
    ) -> bool:
        """Send to every queue; return False if the broker failed."""
        is_record_due = time.monotonic() >= self._recorded_at + RECORD_INTERVAL
        unknown = set(wanted) - set(seen)
        try:
            if is_record_due or self._retry_delay:
                # Even if there is nothing to send: a broken broker is noticed early.
                for queue in slots:
                    self._sender.waiting(queue)
            if slots and (is_record_due or self._retry_delay or unknown):
                self._record(slots, None)
            for queue, tasks in wanted.items():
                missing = tasks[self._sender.waiting(queue) :]
                if missing:
                    self._send(queue, missing, seen.get(queue, 0))
        except self._sender.errors() as error:
            self._sender.disconnect()
            self._fail(slots, error)
            return False
        if self._retry_delay:
            log.event("broker.back", broker=self._broker)
            self._retry_delay = 0.0
        return True

    def _fail(self, slots: dict[str, int], error: BaseException) -> None:
        is_first = not self._retry_delay
        self._retry_delay = min(max(self._retry_delay * 2, 0.25), MAX_RETRY_DELAY)
        if is_first:
            # The broker may just have closed an idle connection; a new one will tell.
            return
        text = f"{type(error).__name__}: {error}".split("\n")[0]
        log.event(
            "broker.away", level="error", broker=self._broker, error=text,
            again_in=f"{self._retry_delay:g} s",
        )  # fmt: skip
        self._record(slots, text)

    def _record(self, slots: dict[str, int], error: str | None) -> None:
        """Record the state of the broker for `quire status` and the dashboard."""
        self._db.write(
            lambda conn, now: doorbells.record_broker(
                conn, self._broker, slots, now=now, error=error
            )
        )
        self._recorded_at = time.monotonic()

    def _send(self, queue: str, tasks: list[ReadyTask], seen: int) -> None:
        """Advance the sequence number, then send: of two dispatchers only one gets through."""
        count = len(tasks)
        if self._db.write(
            lambda conn, now: doorbells.advance(conn, queue, seen=seen, count=count, now=now)
        ):
            self._sender.send(queue, tasks, seen)


class DoorbellSender:
    """A broker connection with short timeouts, opened again after each error."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app = celery_settings.make_app(settings)
        self._connection: Any = None
        self._queues: dict[str, Any] = {}

    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions that a failing broker raises."""
        from kombu.exceptions import KombuError, OperationalError

        unused = self._app.connection_for_write()
        own = (*unused.connection_errors, *unused.channel_errors)
        return (OSError, KombuError, OperationalError, *own)

    def waiting(self, queue: str) -> int:
        """Return the number of messages in a queue; creates the queue if it does not exist."""
        return int(self._queue(queue).queue_declare().message_count)

    def send(self, queue: str, tasks: list[ReadyTask], seq: int) -> None:
        """Send one message per task."""
        target = self._queue(queue)
        with self._app.amqp.Producer(self._connection.default_channel) as producer:
            for number, task in enumerate(tasks, seq + 1):
                self._app.send_task(
                    celery_settings.RING,
                    kwargs={**task._asdict(), "dispatch_seq": number},
                    producer=producer,
                    # Given as a queue: with a routing key only, Celery sends to its default queue.
                    # The default exchange needs no binding, which a FLUSHALL would remove.
                    queue=target,
                    declare=[],
                    retry=False,
                    ignore_result=True,
                )

    def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection, self._queues = self._connection, None, {}
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(1.0)

    def _queue(self, name: str) -> Any:
        if self._connection is None:
            self._connection = self._app.connection_for_write(
                connect_timeout=3.0,
                transport_options=celery_settings.short_timeouts(self._settings),
            )
            self._connection.ensure_connection(max_retries=1, timeout=3.0)
        if name not in self._queues:
            queue = celery_settings.queue_of(name, self._settings)
            self._queues[name] = queue.bind(self._connection.default_channel)
        return self._queues[name]
