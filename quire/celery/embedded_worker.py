"""Our worker inside a Celery worker: Celery brings doorbells, our worker claims, runs and settles.

Our worker has a thread of its own beside Celery's, and its children; it starts before Celery has
reached its broker. Celery owns the signals: its warm shutdown drains, its cold one does not wait.
"""

import logging
import os
import socket
import threading
import time
import uuid
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quire import log
from quire.celery import settings as celery_settings
from quire.celery.claim_gate import Doorway
from quire.errors import QuireError
from quire.runtime.worker.loop import Worker
from quire.settings import Settings

if TYPE_CHECKING:
    from celery import Celery

#: Seconds that Celery has to end after our worker has; a broker that is gone may keep it.
LEAVE_WITHIN = 10.0
#: Seconds until Celery is heard again when it says the same.
SAME_AGAIN = 60.0


def equip(settings: Settings) -> "Celery":
    """Make the application whose workers host one of ours."""
    app = celery_settings.make_app(settings)
    from celery import signals

    guest = Guest(settings)

    @app.task(name=celery_settings.RING)  # type: ignore[untyped-decorator]
    def ring(**_: object) -> None:
        """Open one slot; what the message says is for people."""
        guest.door.knock()

    @signals.setup_logging.connect(weak=False)  # type: ignore[untyped-decorator]
    def speak(loglevel: int | str | None = None, **_: object) -> None:
        _speak(settings, loglevel)

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    def shutting_down(**_: object) -> None:
        guest.ask_to_leave()

    app.steps["worker"].add(_hosting(guest))
    return app


def _hosting(guest: "Guest") -> type[Any]:
    """Return the step of Celery's worker that starts and ends ours."""
    from celery import bootsteps

    class Hosting(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        """Starts and ends our worker with Celery's."""

        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            guest.enter(parent)

        def close(self, parent: Any) -> None:
            if not guest.door.rung:
                guest.ask_to_leave()

        def stop(self, parent: Any) -> None:
            guest.leave()

        def terminate(self, parent: Any) -> None:
            while guest.door.rung < 2:
                guest.ask_to_leave()
            guest.leave()

    return Hosting


def run(settings: Settings) -> int:
    """Run a Celery worker with ours inside until it is told to stop; returns the exit code."""
    app = equip(settings)
    from celery.platforms import SecurityWarning

    # It is about pickled messages; ours are JSON and no code.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(
        hostname=f"quire-{uuid.uuid4().hex[:8]}@{socket.gethostname()}",
        loglevel="WARNING",
        quiet=True,
        # Workers need not know each other: they meet in the database.
        without_mingle=True,
        without_gossip=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


class Guest:
    """Our worker while Celery runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.door = Doorway(celery_settings.shown(settings.broker_url), settings.poll_interval)
        self._thread: threading.Thread | None = None
        self._is_failed = False

    def enter(self, host: Any) -> None:
        """Start our worker with as many children, and for the queues, that Celery's has."""
        if host.pool_cls.__module__ != "celery.concurrency.thread":
            log.event(
                "worker.refused", level="error",
                why=f"Celery's pool is {host.pool_cls.__module__}; only -P threads works, as tasks "
                "run in child processes of Quire's own",
            )  # fmt: skip
            raise SystemExit(2)
        consumed = host.app.amqp.queues.consume_from
        names = tuple(name.removeprefix(celery_settings.PREFIX) for name in consumed)
        settings = replace(self._settings, concurrency=host.concurrency, queues=names)
        self._thread = threading.Thread(target=self._work, args=(settings,), name="worker")
        self._thread.start()

    def ask_to_leave(self) -> None:
        """Let it drain; the second time, end at once."""
        self.door.ring()

    def leave(self) -> None:
        """Wait until it has drained and given its leases back."""
        if self._thread is not None:
            self._thread.join()

    def _work(self, settings: Settings) -> None:
        from celery.worker import state

        code = 1
        try:
            code = Worker(settings, self.door).run()
        except QuireError as error:
            log.trouble("worker.failed", error)
        except BaseException as error:
            log.trouble("worker.failed", error)
            raise
        finally:
            self.door.close()
            # Nothing of ours runs any more: Celery has to end too, whatever its broker does.
            state.should_stop = code
            timer = threading.Timer(LEAVE_WITHIN, os._exit, (code,))
            timer.daemon = True
            timer.start()


class _Passing(logging.Handler):
    """Passes what Celery and kombu say on as events of ours."""

    def __init__(self) -> None:
        super().__init__()
        self._again_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line; the same again, which may be tried many times a second, later."""
        text, now = " ".join(record.getMessage().split()), time.monotonic()
        if now < self._again_at.get(text, 0.0):
            return
        self._again_at = {said: at for said, at in self._again_at.items() if at > now}
        self._again_at[text] = now + SAME_AGAIN
        log.event("celery", level=record.levelname.lower(), said=text)


def _speak(settings: Settings, loglevel: int | str | None) -> None:
    log.setup(as_json=settings.log_json, level=settings.log_level)
    for name in ("celery", "kombu"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [_Passing()]
        logger.setLevel(loglevel or "WARNING")
        logger.propagate = False
